#include "millrace/hdf5/detail/library_reader.h"

#include <algorithm>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/hdf5/detail/wire.h"

namespace millrace::hdf5::detail {
namespace {

constexpr std::size_t kBlock = std::size_t{1} << 25U;

}  // namespace

void LibraryReader::read(const InputFile& file, std::string_view name, Sizes offset, Sizes count, std::span<std::byte> out,
                         const std::string& label) {
  const std::lock_guard guard(mutex_);
  read_part(file, name, Shape(offset.begin(), offset.end()), Shape(count.begin(), count.end()), out, label);
}

// Reads in parts of at most kBlock bytes. Cuts the first axis that can be cut, so that each part is contiguous in `out`.
void LibraryReader::read_part(const InputFile& file, std::string_view name, Shape offset, Shape count, std::span<std::byte> out,
                              const std::string& label) {
  const auto axis = std::find_if(count.begin(), count.end(), [](auto size) { return size > 1; });
  if (out.size() <= kBlock || axis == count.end()) return ask(file, name, offset, count, out, label);
  const auto d = static_cast<std::size_t>(axis - count.begin());
  const std::size_t row = out.size() / static_cast<std::size_t>(count[d]);
  const std::int64_t whole = count[d];
  count[d] = std::max<std::int64_t>(1, static_cast<std::int64_t>(kBlock / row));
  for (std::int64_t done = 0; done < whole; done += count[d]) {
    count[d] = std::min(count[d], whole - done);
    const std::size_t bytes = row * static_cast<std::size_t>(count[d]);
    read_part(file, name, offset, count, out.first(bytes), label);
    offset[d] += count[d];
    out = out.subspan(bytes);
  }
}

void LibraryReader::ask(const InputFile& file, std::string_view name, const Shape& offset, const Shape& count,
                        std::span<std::byte> out, const std::string& label) {
  const int descriptor = file.descriptor();
  if (!process_) process_.emplace("read", std::span(&descriptor, 1));
  WireWriter request;
  request.text(name).list(Sizes(offset)).list(Sizes(count));
  std::optional<std::uint64_t> size;
  if (process_->send_frame(request.bytes())) size = process_->receive_size();
  auto kind = Answer::died;
  const bool alive = size && *size > 0 && process_->receive(std::as_writable_bytes(std::span(&kind, 1)));
  if (alive && kind == Answer::ok && *size == out.size() + 1 && process_->receive(out)) return;
  std::string words(alive && kind == Answer::refused ? *size - 1 : 0, '\0');
  if (!words.empty() && process_->receive(std::as_writable_bytes(std::span(words)))) {
    throw DataError({.what = label + " can't be read: " + WireReader(words).text(),
                     .where = quoted(file.path().string()),
                     .next = "the file is damaged, or needs a newer HDF5 library: write it again with h5repack"});
  }
  std::string how = "sent an answer that could not be understood";
  if (!alive)
    how = process_->how_it_ended();
  else if (kind == Answer::ok && *size != out.size() + 1)
    how = "sent " + std::to_string(*size - 1) + " bytes, expected " + std::to_string(out.size());
  process_.reset();
  const bool was_killed = how.starts_with("ended by signal 9 ");  // killed by the system (lack of memory) or by how_it_ended()
  throw DataError({.what = label + ": the HDF5 library failed while reading it: its process " + how,
                   .where = quoted(file.path().string()),
                   .next = was_killed ? "see whether memory ran out (dmesg); otherwise the file is damaged: make it again"
                                      : "the file is damaged or hostile: make it again, or remove it"});
}

}  // namespace millrace::hdf5::detail
