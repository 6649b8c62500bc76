#include "millrace/format/npy.h"

#include <algorithm>
#include <utility>

#include "millrace/base/byte_order.h"
#include "millrace/base/error.h"
#include "millrace/base/input_file.h"
#include "millrace/format/detail/npy_header.h"

namespace millrace::format {
namespace {

[[noreturn]] void refuse(const InputFile& file, std::string what, bool is_unread = false) {
  Message message{std::move(what), file.path().string(),
                  "use an intact .npy file of plain numbers: write it again with numpy.save"};
  if (is_unread) throw UnreadKind(std::move(message));
  throw DataError(std::move(message));
}

// Returns true if the bytes after the array are only zeros or blanks, which tapes, archives and editors leave.
bool is_padded(const InputFile& file, const NpyLayout& layout) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 20U;
  const std::uint64_t there = file.size() - layout.header_bytes;
  if (layout.bytes == 0 || there <= layout.bytes || there - layout.bytes > kMost) return false;
  std::vector<std::byte> tail(there - layout.bytes);
  file.read(layout.header_bytes + layout.bytes, tail);
  return std::all_of(tail.begin(), tail.end(), [](std::byte b) {
    return b == std::byte{0} || b == std::byte{'\n'} || b == std::byte{'\r'} || b == std::byte{' '};
  });
}

NpyLayout read_layout(const InputFile& file) {
  std::vector<std::byte> header(std::min<std::uint64_t>(detail::kNpyPrologue, file.size()));
  file.read(0, header);
  const detail::NpyPrologue prologue = detail::parse_prologue(header);
  if (!prologue.problem.empty()) refuse(file, prologue.problem);
  if (prologue.header_bytes > file.size()) {
    refuse(file, "the file is cut off inside its header: it has " + std::to_string(file.size()) +
                     " bytes, but the header alone has " + std::to_string(prologue.header_bytes));
  }
  header.resize(prologue.header_bytes);
  file.read(0, header);
  const std::string_view text(reinterpret_cast<const char*>(header.data()), header.size());
  detail::ParsedNpy parsed = detail::parse_npy(text.substr(prologue.text_at), prologue.header_bytes, file.size());
  if (!parsed.problem.empty() && is_padded(file, parsed.layout)) parsed.problem.clear();
  if (!parsed.problem.empty()) refuse(file, std::move(parsed.problem), parsed.is_unread);
  return std::move(parsed.layout);
}

}  // namespace

NpyFile::NpyFile(const std::filesystem::path& path) : file_(std::make_unique<InputFile>(path)), layout_(read_layout(*file_)) {}
NpyFile::~NpyFile() = default;
NpyFile::NpyFile(NpyFile&& other) noexcept = default;

void NpyFile::read(std::span<std::byte> out) const {
  MR_CHECK(out.size() == layout_.bytes, "the memory for an array must have the array's size");
  if (!layout_.fortran || layout_.shape.size() < 2) {
    file_->read(layout_.header_bytes, out);
    if (layout_.swapped) swap_bytes(layout_.dtype, out);
    return;
  }
  std::vector<std::byte> stored(layout_.bytes);
  file_->read(layout_.header_bytes, stored);
  detail::to_native(layout_, stored, out);
}

void NpyFile::read_rows(std::int64_t first, std::int64_t count, std::span<std::byte> out) const {
  MR_CHECK(!layout_.shape.empty() && first >= 0 && count >= 0 && first <= layout_.shape[0] - count, "no such rows of the array");
  const auto rows = static_cast<std::uint64_t>(layout_.shape[0]);
  const std::uint64_t row_bytes = rows == 0 ? 0 : layout_.bytes / rows;
  MR_CHECK(out.size() == static_cast<std::uint64_t>(count) * row_bytes, "the memory for rows must have the rows' size");
  if (!layout_.fortran || layout_.shape.size() < 2) {
    file_->read(layout_.header_bytes + static_cast<std::uint64_t>(first) * row_bytes, out);
    if (layout_.swapped) swap_bytes(layout_.dtype, out);
    return;
  }
  // In Fortran order the rows are scattered, but for each element of a row the values of all requested rows are contiguous.
  const std::size_t element = size_of(layout_.dtype);
  const std::size_t run = static_cast<std::size_t>(count) * element;
  std::vector<std::byte> stored(out.size());
  for (std::size_t i = 0; run > 0 && i * run < stored.size(); ++i) {
    file_->read(layout_.header_bytes + (i * rows + static_cast<std::uint64_t>(first)) * element,
                std::span(stored).subspan(i * run, run));
  }
  NpyLayout slab = layout_;
  slab.shape[0] = count;
  detail::to_native(slab, stored, out);
}

void write_npy(WritableFile& file, DType dtype, const Shape& shape, std::span<const std::byte> bytes) {
  const std::string header = detail::npy_header(dtype, shape, bytes.size());
  file.write(std::as_bytes(std::span(header)));
  file.write(bytes);
}

}  // namespace millrace::format
