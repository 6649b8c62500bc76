#include "millrace/data/files/nifti.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <utility>

#include "millrace/base/byte_order.h"
#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/input_file.h"
#include "millrace/base/utf8.h"
#include "millrace/data/files/detail/nifti_header.h"
#include "millrace/format/deflate.h"

namespace millrace::data {
namespace {

[[noreturn]] void refuse(const InputFile& file, std::string what, bool is_unread = false) {
  if (is_unread)
    throw UnreadKind(
        {std::move(what), file.path().string(), "convert its voxels to a type that Millrace reads, such as float32"});
  throw DataError({std::move(what), file.path().string(), "use an intact NIfTI file: copy or convert it again"});
}

bool is_gzip(const InputFile& file) {
  std::array<std::byte, 2> magic{};
  if (file.size() >= magic.size()) file.read(0, magic);
  const bool gzip = magic[0] == std::byte{0x1F} && magic[1] == std::byte{0x8B};
  if (!gzip && file.path().extension() == ".gz") refuse(file, "the file is named .gz, but holds no gzip data");
  return gzip;
}

// Returns the first `limit` bytes of a file, decompressed; all bytes if there are fewer.
std::vector<std::byte> head_of(const InputFile& file, std::uint64_t limit) {
  if (!is_gzip(file)) {
    std::vector<std::byte> head(std::min(limit, file.size()));
    file.read(0, head);
    return head;
  }
  // Reads enough compressed bytes for `limit` bytes of content: compressed data is hardly ever longer than its content, and
  // gzip's own header may have a name and 64 kB of extra fields.
  std::vector<std::byte> packed(std::min(file.size(), 2 * limit + (std::uint64_t{1} << 17U)));
  file.read(0, packed);
  std::vector<std::byte> head(std::min(limit, file.size() * format::kDeflateMostExpansion));
  std::size_t written = 0;
  const std::string problem = format::inflate_head(format::DeflateFrame::gzip, packed, head, written);
  head.resize(written);
  if (!problem.empty() && written < detail::kNifti1Bytes) refuse(file, problem);
  return head;
}

bool is_named_gz(const std::filesystem::path& path) { return to_lower(path.extension().string()) == ".gz"; }

// Returns the other file of a pair, such as "a.hdr.gz" for "a.img.gz". Upper case and .gz are as in `path`. If that file does
// not exist, .gz is added or left out.
std::filesystem::path partner(const std::filesystem::path& path, std::string extension) {
  std::filesystem::path base = path;
  const bool gz = is_named_gz(path);
  std::string ending = ".gz";
  if (gz) {
    ending = base.extension().string();
    base.replace_extension();
  }
  if (const std::string own = base.extension().string(); own != to_lower(own)) {
    for (char& letter : extension) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  }
  base.replace_extension(extension);
  std::filesystem::path packed = base;
  packed += ending;
  std::error_code error;
  return std::filesystem::exists(gz ? packed : base, error) == gz ? packed : base;
}

bool is_image_half(const std::filesystem::path& path) {
  return to_lower((is_named_gz(path) ? path.stem() : path).extension().string()) == ".img";
}

// Walks over the block as rows of contiguous bytes: calls take(from, rows, pitch, row_bytes) for `rows` rows that begin `pitch`
// bytes apart.
template <class Take>
void walk(const Shape& shape, std::size_t element, std::span<const std::int64_t> offset, std::span<const std::int64_t> size,
          const Take& take) {
  // Finds the last axes that are read completely; the elements along these axes are contiguous.
  std::size_t axis = shape.size();
  std::uint64_t below = element;
  while (axis > 0 && size[axis - 1] == shape[axis - 1]) below *= static_cast<std::uint64_t>(shape[--axis]);
  if (axis == 0) return take(std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{0}, below);
  const std::size_t row_axis = axis - 1;
  const std::uint64_t row_bytes = below * static_cast<std::uint64_t>(size[row_axis]);
  const std::uint64_t pitch = below * static_cast<std::uint64_t>(shape[row_axis]);
  const std::size_t outer = row_axis == 0 ? 0 : row_axis - 1;  // number of axes in front of the rows
  const std::uint64_t rows = row_axis == 0 ? 1 : static_cast<std::uint64_t>(size[row_axis - 1]);
  std::uint64_t slabs = 1;
  for (std::size_t i = 0; i < outer; ++i) slabs *= static_cast<std::uint64_t>(size[i]);
  std::vector<std::int64_t> index(outer, 0);
  for (std::uint64_t slab = 0; slab < slabs; ++slab) {
    std::uint64_t row = 0;
    for (std::size_t i = 0; i < row_axis; ++i) {
      row = row * static_cast<std::uint64_t>(shape[i]) + static_cast<std::uint64_t>(offset[i] + (i < outer ? index[i] : 0));
    }
    take(row * pitch + static_cast<std::uint64_t>(offset[row_axis]) * below, rows, pitch, row_bytes);
    for (std::size_t i = outer; i-- > 0;) {
      if (++index[i] < size[i]) break;
      index[i] = 0;
    }
  }
}

void copy_rows(const std::byte* from, std::uint64_t rows, std::uint64_t pitch, std::uint64_t row_bytes, std::byte* to) {
  for (std::uint64_t row = 0; row < rows; ++row) std::memcpy(to + row * row_bytes, from + row * pitch, row_bytes);
}

// Returns a thread's buffer. The buffer is kept between reads, because new pages of memory cost more than the copy into them.
std::span<std::byte> scratch(std::vector<std::byte>& kept, std::uint64_t bytes) {
  if (kept.size() < bytes) {
    kept.clear();
    kept.resize(bytes);
  }
  return std::span(kept).first(bytes);
}

template <class T>
void scale(const NiftiHeader& header, std::span<const std::byte> in, std::span<float> out) {
  const double slope = header.slope;
  const double intercept = header.intercept;
  const bool adds = intercept != 0;  // false for 0, because -0.0 + 0 would be +0.0
  for (std::size_t i = 0; i < out.size(); ++i) {
    T stored;
    std::memcpy(&stored, in.data() + i * sizeof(T), sizeof(T));
    const double product = static_cast<double>(stored) * slope;
    out[i] = static_cast<float>(adds ? product + intercept : product);
  }
}

using Scale = void (*)(const NiftiHeader&, std::span<const std::byte>, std::span<float>);

Scale scale_of(DType dtype) {
  switch (dtype) {
    case DType::u8:
      return scale<std::uint8_t>;
    case DType::i8:
      return scale<std::int8_t>;
    case DType::i16:
      return scale<std::int16_t>;
    case DType::u16:
      return scale<std::uint16_t>;
    case DType::i32:
      return scale<std::int32_t>;
    case DType::u32:
      return scale<std::uint32_t>;
    case DType::i64:
      return scale<std::int64_t>;
    case DType::u64:
      return scale<std::uint64_t>;
    case DType::f32:
      return scale<float>;
    case DType::f64:
      return scale<double>;
    default:
      return nullptr;
  }
}

}  // namespace

bool is_nifti(const std::filesystem::path& path) {
  const InputFile file(path);
  std::array<std::byte, 2> magic{};
  if (file.size() < magic.size()) return false;
  file.read(0, magic);
  const bool is_named_otherwise =
      file.path().extension() == ".gz" && (magic[0] != std::byte{0x1F} || magic[1] != std::byte{0x8B});
  if (is_named_otherwise) return false;
  try {
    return detail::has_nifti_magic(head_of(file, detail::kNifti2Bytes));
  } catch (const DataError&) {  // not rethrown, because a file with damaged gzip data is not a NIfTI file
    return false;
  }
}

NiftiFile::NiftiFile(const std::filesystem::path& path) : path_(path) {
  head_ = std::make_unique<InputFile>(is_image_half(path) ? partner(path, ".hdr") : path);
  std::vector<std::byte> head = head_of(*head_, detail::kNifti2Bytes);
  bool is_unread = false;
  if (std::string problem = detail::parse_nifti(head, header_, is_unread); !problem.empty())
    refuse(*head_, std::move(problem), is_unread);
  if (header_.pair) voxels_ = std::make_unique<InputFile>(is_image_half(path) ? path : partner(path, ".img"));
  const InputFile& voxels = header_.pair ? *voxels_ : *head_;
  const bool gzip = is_gzip(voxels);
  const std::uint64_t most = gzip ? voxels.size() * format::kDeflateMostExpansion : voxels.size();
  if (header_.voxel_offset > most || header_.voxel_bytes > most - header_.voxel_offset) {
    refuse(voxels, "voxels of " + to_text(header_.shape) + ' ' + std::string(name_of(header_.dtype)) + " end at byte " +
                       std::to_string(header_.voxel_offset + header_.voxel_bytes) + ", but the file " +
                       (gzip ? "can't hold more than " : "has only ") + std::to_string(most) + " bytes: it was cut off");
  }
  const std::uint64_t end = header_.pair ? (is_gzip(*head_) ? std::uint64_t{1} << 24U : head_->size()) : header_.voxel_offset;
  head = head_of(*head_, end);
  if (std::string problem = detail::parse_extensions(head, std::min<std::uint64_t>(end, head.size()), header_);
      !problem.empty()) {
    refuse(*head_, std::move(problem));
  }
}

NiftiFile::~NiftiFile() = default;
NiftiFile::NiftiFile(NiftiFile&& other) noexcept = default;

std::vector<std::byte> NiftiFile::extension(const NiftiHeader::Extension& extension) const {
  std::vector<std::byte> head = head_of(*head_, extension.offset + extension.bytes);
  if (head.size() != extension.offset + extension.bytes) refuse(*head_, "the extension is cut off");
  return {head.end() - static_cast<std::ptrdiff_t>(extension.bytes), head.end()};
}

void NiftiFile::read(std::span<const std::int64_t> offset, std::span<const std::int64_t> size, std::span<std::byte> out) const {
  read_block(offset, size, out, nullptr);
}

void NiftiFile::read_block(std::span<const std::int64_t> offset, std::span<const std::int64_t> size, std::span<std::byte> out,
                           format::PassedOver* passed_over) const {
  const Shape& shape = header_.shape;
  MR_CHECK(offset.size() == shape.size() && size.size() == shape.size(), "a block must have an offset and a size for each axis");
  std::uint64_t bytes = size_of(header_.dtype);
  for (std::size_t i = 0; i < shape.size(); ++i) {
    MR_CHECK(offset[i] >= 0 && size[i] >= 1 && offset[i] <= shape[i] - size[i], "the block must lie inside the volume");
    bytes *= static_cast<std::uint64_t>(size[i]);
  }
  MR_CHECK(out.size() == bytes, "the memory for a block must have the block's size");

  thread_local std::vector<std::byte> packed;
  thread_local std::vector<std::byte> plain;
  const InputFile& file = header_.pair ? *voxels_ : *head_;
  std::byte* to = out.data();
  if (is_gzip(file)) {
    const std::span<std::byte> whole = scratch(plain, header_.voxel_offset + header_.voxel_bytes);
    if (const std::string problem = format::gunzip(file.read_all(packed), whole, passed_over); !problem.empty())
      refuse(file, problem);
    cut(header_, whole.subspan(header_.voxel_offset), offset, size, out);
  } else {
    if (passed_over != nullptr) passed_over->behind = file.size() - header_.voxel_offset - header_.voxel_bytes;
    walk(shape, size_of(header_.dtype), offset, size, [&](std::uint64_t from, auto rows, auto pitch, auto row_bytes) {
      // Reads everything from the first to the last row with one call. The gaps are read too, because that costs less than a
      // call for each row.
      const std::uint64_t span = (rows - 1) * pitch + row_bytes;
      const std::span<std::byte> slab = rows == 1 ? std::span(to, row_bytes) : scratch(plain, span);
      file.read(header_.voxel_offset + from, slab);
      if (rows > 1) copy_rows(slab.data(), rows, pitch, row_bytes, to);
      to += rows * row_bytes;
    });
  }
  if (header_.swapped) swap_bytes(header_.dtype, out);
}

void NiftiFile::read_scaled(std::span<const std::int64_t> offset, std::span<const std::int64_t> size,
                            std::span<float> out) const {
  if (header_.dtype == DType::f32 && !header_.scaled) return read(offset, size, std::as_writable_bytes(out));
  const Scale convert = scale_of(header_.dtype);
  if (convert == nullptr) {
    throw DataError({.what = "the voxels are complex (" + std::string(name_of(header_.dtype)) + "), which can't be read as float",
                     .where = path_.string(),
                     .next = "read them as stored, or convert the file"});
  }
  thread_local std::vector<std::byte> stored;
  const std::span<std::byte> raw = scratch(stored, out.size() * size_of(header_.dtype));
  read(offset, size, raw);
  convert(header_, raw, out);
}

void cut(const NiftiHeader& header, std::span<const std::byte> voxels, std::span<const std::int64_t> offset,
         std::span<const std::int64_t> size, std::span<std::byte> out) {
  std::byte* to = out.data();
  walk(header.shape, size_of(header.dtype), offset, size, [&](std::uint64_t from, auto rows, auto pitch, auto row_bytes) {
    copy_rows(voxels.data() + from, rows, pitch, row_bytes, to);
    to += rows * row_bytes;
  });
}

void cut_scaled(const NiftiHeader& header, std::span<const std::byte> voxels, std::span<const std::int64_t> offset,
                std::span<const std::int64_t> size, std::span<float> out) {
  if (header.dtype == DType::f32 && !header.scaled) return cut(header, voxels, offset, size, std::as_writable_bytes(out));
  const Scale convert = scale_of(header.dtype);
  MR_CHECK(convert != nullptr, "complex voxels can't be scaled");
  thread_local std::vector<std::byte> stored;
  const std::span<std::byte> raw = scratch(stored, out.size() * size_of(header.dtype));
  cut(header, voxels, offset, size, raw);
  convert(header, raw, out);
}

void NiftiFile::read(std::span<std::byte> out, format::PassedOver* passed_over) const {
  read_block(Shape(header_.shape.size(), 0), header_.shape, out, passed_over);
}

void NiftiFile::read_scaled(std::span<float> out) const { read_scaled(Shape(header_.shape.size(), 0), header_.shape, out); }

}  // namespace millrace::data
