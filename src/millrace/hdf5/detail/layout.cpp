#include "millrace/hdf5/detail/layout.h"

#include <algorithm>
#include <utility>

#include "millrace/base/format.h"
#include "millrace/hdf5/detail/attribute_wire.h"
#include "millrace/system/child.h"

namespace millrace::hdf5::detail {
namespace {

constexpr const char* kCutOff = "copy or convert the file again; it is cut off or damaged";

[[noreturn]] void lies(const std::filesystem::path& file, const std::string& dataset, const std::string& what) {
  throw DataError({.what = file.filename().string() + ": dataset " + dataset + " has " + what,
                   .where = quoted(file.string()),
                   .next = "the file is damaged: make it again"});
}

// Returns the bytes of all elements. Throws DataError unless all sizes are valid and the result is below 2^62.
std::uint64_t bytes_of(const Shape& shape, std::size_t element_bytes, const std::filesystem::path& file,
                       const std::string& name) {
  const auto count = element_count(shape);
  std::uint64_t bytes = 0;
  if (!count || __builtin_mul_overflow(static_cast<std::uint64_t>(*count), element_bytes, &bytes) || bytes >> 62U != 0) {
    lies(file, name, "an impossible shape, " + to_text(shape));
  }
  return bytes;
}

void check_end(const std::filesystem::path& file, std::uint64_t file_bytes, const std::string& what, std::uint64_t from,
               std::uint64_t size) {
  if (from <= file_bytes && size <= file_bytes - from) return;
  throw DataError({.what = file.filename().string() + ": " + what + " needs bytes " + std::to_string(from) + " to " +
                           std::to_string(from + size) + ", but the file has only " + std::to_string(file_bytes),
                   .where = quoted(file.string()),
                   .next = kCutOff});
}

void check_chunks(Layout& layout, const std::filesystem::path& file, std::uint64_t file_bytes) {
  const Dataset& dataset = layout.dataset;
  if (dataset.chunk.size() != dataset.shape.size() || *std::min_element(dataset.chunk.begin(), dataset.chunk.end()) < 1) {
    lies(file, dataset.name, "chunks of " + to_text(dataset.chunk) + " for a shape of " + to_text(dataset.shape));
  }
  for (std::size_t d = 0; d < dataset.shape.size(); ++d) {
    layout.grid.push_back(dataset.shape[d] / dataset.chunk[d] +
                          static_cast<std::int64_t>(dataset.shape[d] % dataset.chunk[d] != 0));
  }
  if (dataset.through_child) return;
  layout.chunk_bytes = bytes_of(dataset.chunk, layout.element_bytes, file, dataset.name);
  const auto chunks = element_count(layout.grid);
  if (!chunks || static_cast<std::uint64_t>(*chunks) != layout.chunks.size() || layout.filters.size() > 32) {
    lies(file, dataset.name,
         "a table of " + std::to_string(layout.chunks.size()) + " chunks for a grid of " + to_text(layout.grid));
  }
  for (std::size_t i = 0; i < layout.chunks.size(); ++i) {
    const Chunk& chunk = layout.chunks[i];
    if (chunk.address == kNoAddress) continue;
    const std::string name = "chunk " + std::to_string(i) + " of " + dataset.name;
    check_end(file, file_bytes, name, chunk.address, chunk.size);
    if (layout.filters.empty() && chunk.size != layout.chunk_bytes) {
      lies(file, dataset.name,
           "chunk " + std::to_string(i) + " of " + std::to_string(chunk.size) + " bytes, expected " +
               std::to_string(layout.chunk_bytes));
    }
  }
}

void check_digest(const Layout& layout, const Digest& digest, const std::filesystem::path& file) {
  const Shape& shape = layout.dataset.shape;
  bool fits = digest.offset.size() == shape.size() && digest.count.size() == shape.size();
  for (std::size_t d = 0; fits && d < shape.size(); ++d) {
    fits = digest.offset[d] >= 0 && digest.count[d] >= 1 && digest.offset[d] < shape[d] &&
           digest.count[d] <= shape[d] - digest.offset[d];
  }
  if (!fits) lies(file, layout.dataset.name, "a block " + to_text(digest.count) + " at " + to_text(digest.offset));
}

Layout read_layout(WireReader in, std::string name, const std::filesystem::path& file, std::uint64_t file_bytes) {
  Layout layout;
  Dataset& dataset = layout.dataset;
  dataset.name = std::move(name);
  dataset.dtype = in.get<DType>();
  if (dataset.dtype > DType::c128) lies(file, dataset.name, "no known type");
  layout.element_bytes = size_of(dataset.dtype);
  dataset.shape = in.list<std::int64_t>();
  if (dataset.shape.size() > kMaxRank) lies(file, dataset.name, std::to_string(dataset.shape.size()) + " axes");
  const std::uint64_t bytes = bytes_of(dataset.shape, layout.element_bytes, file, dataset.name);
  dataset.chunk = in.list<std::int64_t>();
  dataset.reason = in.text();
  dataset.through_child = !dataset.reason.empty();
  layout.fill = in.text();
  if (!layout.fill.empty() && layout.fill.size() != layout.element_bytes)
    lies(file, dataset.name, "a fill value of another type");
  layout.address = in.get<std::uint64_t>();
  layout.filters = in.list<std::uint32_t>();
  layout.chunks = in.list<Chunk>();
  if (!dataset.chunk.empty()) {
    check_chunks(layout, file, file_bytes);
  } else if (!dataset.through_child && layout.address != kNoAddress) {
    check_end(file, file_bytes, "dataset " + dataset.name, layout.address, bytes);
  }
  layout.digests.resize(std::min<std::uint32_t>(in.get<std::uint32_t>(), 8));
  for (Digest& digest : layout.digests) {
    digest.offset = in.list<std::int64_t>();
    digest.count = in.list<std::int64_t>();
    digest.failure = in.text();
    digest.crc32c = in.get<std::uint32_t>();
    check_digest(layout, digest, file);
  }
  layout.attributes = get_attributes(in);
  return layout;
}

}  // namespace

Contents read_contents(std::string_view answer, const std::filesystem::path& file, std::uint64_t file_bytes) {
  WireReader in(answer);
  const auto kind = in.get<Answer>();
  const std::string name = file.filename().string();
  if (kind == Answer::died) {
    const auto signal = in.get<std::uint32_t>();
    const auto status = in.get<std::uint32_t>();
    throw DataError({.what = name + ": the HDF5 library failed on this file: its process " +
                             ending(static_cast<int>(signal), static_cast<int>(status)),
                     .where = quoted(file.string()),
                     .next = "the file is damaged or hostile: make it again, or remove it"});
  }
  if (kind == Answer::missing) {
    const std::string dataset = in.text();
    throw DataError({.what = name + ": dataset " + dataset + " is missing (has: " + in.text() + ")",
                     .where = quoted(file.string()),
                     .next = "name an existing one; millrace inspect shows all of the file"});
  }
  if (kind != Answer::ok) {
    throw DataError({.what = name + " is not a valid HDF5 file: " + in.text(),
                     .where = quoted(file.string()),
                     .next = "check the program that wrote it; " + std::string(kCutOff)});
  }
  Contents contents;
  contents.attributes = get_attributes(in);
  const auto count = in.get<std::uint32_t>();
  for (std::uint32_t i = 0; i < count; ++i) {
    std::string dataset = in.text();
    const std::string failure = in.text();
    const std::string layout = in.text();
    if (failure.empty()) {
      contents.readable.push_back(read_layout(WireReader(layout), std::move(dataset), file, file_bytes));
    } else {
      contents.unreadable.push_back({std::move(dataset), failure, layout});
    }
  }
  return contents;
}

}  // namespace millrace::hdf5::detail
