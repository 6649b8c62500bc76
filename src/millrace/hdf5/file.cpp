#include "millrace/hdf5/file.h"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/hash.h"
#include "millrace/hdf5/detail/chunk_filters.h"
#include "millrace/hdf5/detail/layout.h"
#include "millrace/hdf5/detail/lent_file.h"
#include "millrace/hdf5/detail/library_reader.h"
#include "millrace/hdf5/detail/loadable.h"
#include "millrace/hdf5/remedy.h"

namespace millrace::hdf5 {
namespace {

using detail::Chunk;
using detail::Corner;
using detail::kNoAddress;
using detail::Layout;
using detail::Sizes;
using Place = std::array<std::int64_t, kMaxRank>;

std::atomic<std::uint64_t> g_direct{0};  // number of blocks that this process has read without the library
constexpr std::uint64_t kWindow = std::uint64_t{1} << 20U;

// Buffers of one thread, for all files. They only grow. `chunk` keeps the chunk that was decoded last.
struct Scratch {
  std::vector<std::byte> stored;
  std::vector<std::byte> chunk;
  detail::FilterScratch filters;
  std::uint64_t file = 0;  // number of the file whose chunk is kept; 0: no chunk is kept
  const Layout* layout = nullptr;
  std::size_t index = 0;
  std::span<std::byte> room(std::vector<std::byte>& buffer, std::size_t bytes) {
    if (buffer.size() < bytes) buffer.resize(bytes);
    return std::span(buffer).first(bytes);
  }
};

Scratch& scratch() {
  thread_local Scratch it;
  return it;
}

std::string_view without_slash(std::string_view name) { return name.starts_with('/') ? name.substr(1) : name; }

void fill_block(std::byte* out, Corner target, Sizes count, std::string_view element) {
  Place at{};
  Place place{};
  const detail::Runs runs = detail::runs_of(target.shape, count);
  const std::size_t rank = count.size();
  do {
    for (std::size_t d = 0; d < rank; ++d) place[d] = target.at[d] + (d < runs.axes ? at[d] : 0);
    std::byte* to = out + static_cast<std::size_t>(detail::flat(target.shape, Sizes(place).first(rank))) * element.size();
    for (std::int64_t i = 0; i < runs.run; ++i, to += element.size()) std::memcpy(to, element.data(), element.size());
  } while (detail::advance(std::span(at).first(runs.axes), count));
}

class OpenFile final : public detail::LoadableFile {
 public:
  explicit OpenFile(const std::filesystem::path& path) : file_(path), number_(next_number()) {}

  bool load(std::string_view answer, bool all, bool compares) override {
    detail::Contents contents = detail::read_contents(answer, file_.path(), file_.size());
    attributes_ = std::move(contents.attributes);
    layouts_ = std::move(contents.readable);
    unreadable_ = std::move(contents.unreadable);
    if (!all && !unreadable_.empty()) cannot_be_read(unreadable_.front());
    bool agrees = true;
    for (Layout& layout : layouts_) {
      if (compares) agrees &= file_.with([&](const InputFile& file) { return agrees_with_library(file, layout); });
      datasets_.push_back(layout.dataset);
    }
    for (std::size_t i = 0; i < layouts_.size(); ++i) by_name_.emplace(without_slash(layouts_[i].dataset.name), i);
    file_.return_if_many();
    return agrees;
  }

  void read_by_library() override {
    for (std::size_t i = 0; i < layouts_.size(); ++i) {
      Dataset& dataset = layouts_[i].dataset;
      if (dataset.through_child) continue;
      dataset.through_child = true;
      dataset.reason = "direct reading is off";
      datasets_[i] = dataset;
    }
  }

  [[nodiscard]] detail::Stamp stamp() const override {
    std::array<std::byte, detail::kHeadBytes> head{};
    const std::span<std::byte> part = std::span(head).first(std::min<std::uint64_t>(head.size(), file_.size()));
    file_.with([&](const InputFile& file) { file.read(0, part); });
    return {.bytes = file_.size(), .modified_ns = file_.modified_ns(), .head = crc32c(part)};
  }

  [[nodiscard]] int descriptor() const override {
    return file_.with([](const InputFile& file) { return file.descriptor(); });
  }
  [[nodiscard]] const std::filesystem::path& path() const override { return file_.path(); }
  [[nodiscard]] std::span<const Dataset> datasets() const override { return datasets_; }
  [[nodiscard]] std::span<const Unreadable> unreadable() const override { return unreadable_; }
  [[nodiscard]] std::uint64_t size() const noexcept override { return file_.size(); }
  [[nodiscard]] std::int64_t modified_ns() const noexcept override { return file_.modified_ns(); }
  [[nodiscard]] const Dataset& dataset(std::string_view name) const override { return datasets_[index_of(name)]; }

  [[nodiscard]] const Attributes& attributes(std::string_view object) const override {
    return object == "/" ? attributes_ : layouts_[index_of(object)].attributes;
  }

  [[nodiscard]] std::vector<std::string> filters(std::string_view name) const override {
    static const std::map<std::uint32_t, std::string> kNames = {
        {1, "deflate"},     {2, "shuffle"}, {3, "fletcher32"}, {4, "szip"},           {5, "nbit"},
        {6, "scaleoffset"}, {32000, "lzf"}, {32004, "lz4"},    {32008, "bitshuffle"}, {32015, "zstd"}};
    std::vector<std::string> names;
    for (const std::uint32_t filter : layouts_[index_of(name)].filters) {
      const auto known = kNames.find(filter);
      names.push_back(known != kNames.end() ? known->second : "filter " + std::to_string(filter));
    }
    return names;
  }

  void read(std::string_view name, Sizes offset, Sizes count, std::span<std::byte> out) const override {
    const Layout& layout = layouts_[index_of(name)];
    check_block(layout, offset, count, out.size());
    if (out.empty()) return;
    if (!layout.dataset.through_child) g_direct.fetch_add(1, std::memory_order_relaxed);
    file_.with([&](const InputFile& file) { read_block(file, layout, offset, count, out); });
  }

  void will_need(std::string_view name, Sizes offset, Sizes count) const override {
    const auto found = by_name_.find(without_slash(name));
    if (found == by_name_.end()) return;
    const Layout& layout = layouts_[found->second];
    if (layout.dataset.through_child || !is_inside(layout, offset, count) || detail::product(count) == 0) return;
    try {
      file_.with([&](const InputFile& file) { advise(file, layout, offset, count); });
    } catch (const DataError&) {
      // The error is ignored, because read() will report it.
    }
  }

 private:
  static std::uint64_t next_number() {
    static std::atomic<std::uint64_t> count{0};
    return ++count;
  }

  [[nodiscard]] std::string label(std::string_view name) const {
    return file_.path().filename().string() + ": dataset " + std::string(name);
  }

  [[noreturn]] void cannot_be_read(const Unreadable& dataset) const {
    std::string next = remedy_for(dataset.reason, file_.path());
    if (next.empty()) next = "name another dataset (millrace inspect lists all of the file), or write this one as numbers";
    throw DataError({.what = label(dataset.name) + " can't be read: " + dataset.reason,
                     .where = quoted(file_.path().string()),
                     .next = std::move(next)});
  }

  static void advise(const InputFile& file, const Layout& layout, Sizes offset, Sizes count) {
    const auto want = [&](std::uint64_t from, std::uint64_t bytes) {
      ::posix_fadvise(file.descriptor(), static_cast<off_t>(from), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
    };
    if (!layout.dataset.chunk.empty()) {
      return for_each_chunk(layout, offset, count, [&](std::size_t index, Sizes, Sizes) {
        if (layout.chunks[index].address != kNoAddress) want(layout.chunks[index].address, layout.chunks[index].size);
      });
    }
    if (layout.address == kNoAddress) return;
    Place last{};
    for (std::size_t d = 0; d < count.size(); ++d) last[d] = offset[d] + count[d] - 1;
    const auto begin = static_cast<std::uint64_t>(detail::flat(layout.dataset.shape, offset));
    const auto end = static_cast<std::uint64_t>(detail::flat(layout.dataset.shape, Sizes(last).first(count.size()))) + 1;
    want(layout.address + begin * layout.element_bytes, (end - begin) * layout.element_bytes);
  }

  [[nodiscard]] std::size_t index_of(std::string_view name) const {
    const auto found = by_name_.find(without_slash(name));
    if (found != by_name_.end()) return found->second;
    for (const Unreadable& dataset : unreadable_) {
      if (without_slash(dataset.name) == without_slash(name)) cannot_be_read(dataset);
    }
    const std::string has = joined(datasets_, ", ", &Dataset::name);
    throw DataError({.what = label(name) + " is missing (has: " + (has.empty() ? "nothing" : has) + ")",
                     .where = quoted(file_.path().string()),
                     .next = "name an existing one"});
  }

  static bool is_inside(const Layout& layout, Sizes offset, Sizes count) {
    const Shape& shape = layout.dataset.shape;
    if (offset.size() != shape.size() || count.size() != shape.size()) return false;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (offset[d] < 0 || count[d] < 0 || offset[d] > shape[d] || count[d] > shape[d] - offset[d]) return false;
    }
    return true;
  }

  void check_block(const Layout& layout, Sizes offset, Sizes count, std::size_t bytes) const {
    const Dataset& dataset = layout.dataset;
    if (!is_inside(layout, offset, count)) {
      throw DataError({.what = label(dataset.name) + " has shape " + to_text(dataset.shape) + "; block " +
                               to_text(Shape(count.begin(), count.end())) + " at " +
                               to_text(Shape(offset.begin(), offset.end())) + " was requested",
                       .where = quoted(file_.path().string()),
                       .next = "ask for a block inside the dataset"});
    }
    MR_CHECK(static_cast<std::size_t>(detail::product(count)) * layout.element_bytes == bytes,
             "a block of " + to_text(Shape(count.begin(), count.end())) + " does not have " + std::to_string(bytes) + " bytes");
  }

  [[noreturn]] void damaged(const Layout& layout, std::size_t index, const std::string& what) const {
    const Chunk& chunk = layout.chunks[index];
    throw DataError({.what = label(layout.dataset.name) + ", chunk " + std::to_string(index) + ": " + what,
                     .where = "bytes " + std::to_string(chunk.address) + " to " + std::to_string(chunk.address + chunk.size) +
                              " of " + quoted(file_.path().string()),
                     .next = "the file is damaged: make it again, or let data.bad_samples skip it"});
  }

  void read_block(const InputFile& file, const Layout& layout, Sizes offset, Sizes count, std::span<std::byte> out) const {
    if (layout.dataset.through_child) {
      library_.read(file, layout.dataset.name, offset, count, out, label(layout.dataset.name));
    } else if (layout.dataset.chunk.empty()) {
      read_contiguous(file, layout, offset, count, out);
    } else {
      read_chunks(file, layout, offset, count, out);
    }
    const auto is_no_boolean = [](std::byte byte) { return byte > std::byte{1}; };
    if (layout.dataset.dtype == DType::boolean && std::any_of(out.begin(), out.end(), is_no_boolean)) {
      throw DataError({.what = label(layout.dataset.name) + " holds booleans that are neither FALSE nor TRUE",
                       .where = quoted(file_.path().string()),
                       .next = "the file is damaged: make it again"});
    }
  }

  void check_fill(const Layout& layout) const {
    if (!layout.fill.empty()) return;
    throw DataError({.what = label(layout.dataset.name) + " has a part that was never written, and no fill value",
                     .where = quoted(file_.path().string()),
                     .next = "write the dataset, or define a fill value"});
  }

  // Reads distant pieces one by one, and neighbouring pieces together through a window.
  void read_contiguous(const InputFile& file, const Layout& layout, Sizes offset, Sizes count, std::span<std::byte> out) const {
    const Shape& shape = layout.dataset.shape;
    const std::size_t rank = shape.size();
    if (layout.address == kNoAddress) {
      check_fill(layout);
      return fill_block(out.data(), {count, Sizes(Place{}).first(rank)}, count, layout.fill);
    }
    const detail::Runs runs = detail::runs_of(shape, count);
    const std::size_t bytes = static_cast<std::size_t>(runs.run) * layout.element_bytes;
    std::uint64_t stride = layout.element_bytes;  // distance in bytes between neighbouring pieces
    for (std::size_t d = runs.axes; d < rank; ++d) stride *= static_cast<std::uint64_t>(shape[d]);
    const bool together = bytes < kWindow / 8 && stride <= 8 * bytes;
    const std::uint64_t data_end = layout.address + static_cast<std::uint64_t>(detail::product(shape)) * layout.element_bytes;
    Scratch& own = scratch();
    std::uint64_t window_begin = 0;
    std::uint64_t window_end = 0;
    Place at{};
    Place place{};
    std::byte* to = out.data();
    do {
      for (std::size_t d = 0; d < rank; ++d) place[d] = offset[d] + (d < runs.axes ? at[d] : 0);
      const std::uint64_t from =
          layout.address + static_cast<std::uint64_t>(detail::flat(shape, Sizes(place).first(rank))) * layout.element_bytes;
      if (!together || bytes == out.size()) {
        file.read(from, {to, bytes});
      } else {
        if (from < window_begin || from + bytes > window_end) {
          const std::uint64_t left = (out.size() - static_cast<std::size_t>(to - out.data())) / bytes - 1;
          window_begin = from;
          window_end = std::min({from + kWindow, data_end, from + bytes + left * stride});
          window_end = std::max(window_end, from + bytes);
          file.read(from, own.room(own.stored, window_end - window_begin));
        }
        std::memcpy(to, own.stored.data() + (from - window_begin), bytes);
      }
      to += bytes;
    } while (detail::advance(std::span(at).first(runs.axes), count));
  }

  // For each chunk of the block, calls visit() with the chunk's index, and the first element and the size of the part to read.
  template <class Visit>
  static void for_each_chunk(const Layout& layout, Sizes offset, Sizes count, Visit visit) {
    const Shape& chunk = layout.dataset.chunk;
    const std::size_t rank = chunk.size();
    Place first{};
    Place chunks{};
    Place at{};
    for (std::size_t d = 0; d < rank; ++d) {
      if (count[d] == 0) return;
      first[d] = offset[d] / chunk[d];
      chunks[d] = (offset[d] + count[d] - 1) / chunk[d] - first[d] + 1;
    }
    Place begin{};
    Place size{};
    do {
      std::size_t index = 0;
      for (std::size_t d = 0; d < rank; ++d) {
        const std::int64_t position = first[d] + at[d];
        index = index * static_cast<std::size_t>(layout.grid[d]) + static_cast<std::size_t>(position);
        begin[d] = std::max(offset[d], position * chunk[d]);
        // (position + 1) * chunk[d] is avoided, because it may overflow if a chunk is far larger than its axis.
        size[d] = std::min(offset[d] + count[d] - begin[d], chunk[d] - (begin[d] - position * chunk[d]));
      }
      visit(index, Sizes(begin).first(rank), Sizes(size).first(rank));
    } while (detail::advance(std::span(at).first(rank), Sizes(chunks).first(rank)));
  }

  void read_chunks(const InputFile& file, const Layout& layout, Sizes offset, Sizes count, std::span<std::byte> out) const {
    const Shape& chunk = layout.dataset.chunk;
    const std::size_t rank = chunk.size();
    Scratch& own = scratch();
    for_each_chunk(layout, offset, count, [&](std::size_t index, Sizes begin, Sizes size) {
      Place in_out{};
      Place in_chunk{};
      for (std::size_t d = 0; d < rank; ++d) {
        in_out[d] = begin[d] - offset[d];
        in_chunk[d] = begin[d] % chunk[d];
      }
      const Corner target{count, Sizes(in_out).first(rank)};
      if (layout.chunks[index].address == kNoAddress) {
        check_fill(layout);
        return fill_block(out.data(), target, size, layout.fill);
      }
      if (std::equal(size.begin(), size.end(), chunk.begin()) && detail::in_one_piece(count, size)) {
        const auto at = static_cast<std::size_t>(detail::flat(count, target.at)) * layout.element_bytes;
        return decode(file, layout, index, out.subspan(at, layout.chunk_bytes));
      }
      const std::byte* decoded = decode_to_scratch(file, layout, index, own);
      detail::copy_block(decoded, {chunk, Sizes(in_chunk).first(rank)}, out.data(), target, size, layout.element_bytes);
    });
  }

  // Decodes a whole chunk, of which a block needs only a part. The neighbouring block is often read next, so the thread keeps
  // the chunk.
  const std::byte* decode_to_scratch(const InputFile& file, const Layout& layout, std::size_t index, Scratch& own) const {
    if (own.file == number_ && own.layout == &layout && own.index == index) return own.chunk.data();
    own.file = 0;
    const Chunk& chunk = layout.chunks[index];
    if (!detail::is_plausible(layout.filters, chunk.mask, chunk.size, layout.chunk_bytes)) too_short(layout, index);
    decode(file, layout, index, own.room(own.chunk, layout.chunk_bytes));
    own.file = number_;
    own.layout = &layout;
    own.index = index;
    return own.chunk.data();
  }

  [[noreturn]] void too_short(const Layout& layout, std::size_t index) const {
    damaged(layout, index,
            std::to_string(layout.chunks[index].size) + " bytes can't hold a chunk of " + std::to_string(layout.chunk_bytes) +
                " bytes");
  }

  void decode(const InputFile& file, const Layout& layout, std::size_t index, std::span<std::byte> out) const {
    const Chunk& chunk = layout.chunks[index];
    // The size of the stored chunk equals that of `out`; this was checked when the file was opened.
    if (layout.filters.empty()) return file.read(chunk.address, out);
    if (!detail::is_plausible(layout.filters, chunk.mask, chunk.size, layout.chunk_bytes)) too_short(layout, index);
    Scratch& own = scratch();
    const std::span<std::byte> stored = own.room(own.stored, chunk.size);
    file.read(chunk.address, stored);
    const char* wrong = detail::undo_filters(layout.filters, chunk.mask, stored, out, layout.element_bytes, own.filters);
    if (wrong != nullptr) damaged(layout, index, wrong);
  }

  // Returns true if this process and the library get the same bytes when they decode some blocks. Otherwise the library reads
  // this data set from now on.
  bool agrees_with_library(const InputFile& file, Layout& layout) const {
    std::vector<std::byte> bytes;
    for (const detail::Digest& digest : layout.digests) {
      std::string failure;
      std::uint32_t own = 0;
      try {
        bytes.resize(static_cast<std::size_t>(detail::product(digest.count)) * layout.element_bytes);
        read_block(file, layout, digest.offset, digest.count, bytes);
        own = crc32c(bytes);
      } catch (const DataError& error) {
        failure = error.message().what;
      }
      if (!failure.empty() && !digest.failure.empty()) continue;  // reading a sample will report the error
      if (failure.empty() && digest.failure.empty() && own == digest.crc32c) continue;
      layout.dataset.through_child = true;
      layout.dataset.reason = !failure.empty() ? "Millrace's own decoding fails: " + failure
                              : !digest.failure.empty()
                                  ? "the library fails: " + digest.failure
                                  : "Millrace's own decoding of block " + to_text(digest.offset) + " differs from the library's";
      return false;
    }
    return true;
  }

  detail::LentFile file_;
  std::uint64_t number_;
  Attributes attributes_;  // attributes of the root group
  std::vector<Layout> layouts_;
  std::vector<Dataset> datasets_;
  std::vector<Unreadable> unreadable_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
  mutable detail::LibraryReader library_;
};

}  // namespace

namespace detail {

std::shared_ptr<LoadableFile> open_loadable(const std::filesystem::path& path) { return std::make_shared<OpenFile>(path); }

}  // namespace detail

std::uint64_t blocks_read_directly() noexcept { return g_direct; }

}  // namespace millrace::hdf5
