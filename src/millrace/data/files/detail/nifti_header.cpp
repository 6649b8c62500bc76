#include "millrace/data/files/detail/nifti_header.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>

#include "millrace/base/error.h"
#include "millrace/base/format.h"

namespace millrace::data::detail {
namespace {

// The datatype codes of nifti1.h for which there is a DType.
constexpr std::array<std::pair<int, DType>, 12> kTypes = {{{2, DType::u8},
                                                           {4, DType::i16},
                                                           {8, DType::i32},
                                                           {16, DType::f32},
                                                           {32, DType::c64},
                                                           {64, DType::f64},
                                                           {256, DType::i8},
                                                           {512, DType::u16},
                                                           {768, DType::u32},
                                                           {1024, DType::i64},
                                                           {1280, DType::u64},
                                                           {1792, DType::c128}}};

// Reads numbers at byte offsets, in the file's byte order.
class Bytes {
 public:
  Bytes(std::span<const std::byte> bytes, bool swapped) : bytes_(bytes), swapped_(swapped) {}
  template <class T>
  [[nodiscard]] T at(std::size_t offset) const noexcept {
    std::array<std::byte, sizeof(T)> raw{};
    std::memcpy(raw.data(), bytes_.data() + offset, sizeof(T));
    if (swapped_) std::reverse(raw.begin(), raw.end());
    return std::bit_cast<T>(raw);
  }
  [[nodiscard]] bool swapped() const noexcept { return swapped_; }
  [[nodiscard]] std::string_view text(std::size_t offset, std::size_t size) const noexcept {
    const std::string_view whole(reinterpret_cast<const char*>(bytes_.data()) + offset, size);
    return whole.substr(0, whole.find('\0'));
  }

 private:
  std::span<const std::byte> bytes_;
  bool swapped_;
};

// The fields that both versions of the format have, in the wider types of version 2.
struct Fields {
  std::array<std::int64_t, 8> dim{};
  std::array<double, 8> pixdim{};
  std::array<double, 3> quatern{}, qoffset{};
  std::array<std::array<double, 4>, 3> srow{};
  int datatype = 0, bitpix = 0, qform = 0, sform = 0, units = 0;
  double offset = 0, slope = 0, intercept = 0;
  std::string magic, description;
};

// The byte offset of each field (nifti1.h, nifti2.h).
struct Places {
  std::size_t magic, datatype, bitpix, dim, pixdim, offset, slope, intercept, units, description, qform, sform, quatern, srow;
};
constexpr int kLastForm = 5;  // the last valid code of a qform or an sform; the codes are 0 to 5
constexpr Places kPlaces1 = {344, 70, 72, 40, 76, 108, 112, 116, 123, 148, 252, 254, 256, 280};
constexpr Places kPlaces2 = {4, 12, 14, 16, 104, 168, 176, 184, 500, 240, 344, 348, 352, 400};

template <class Real, class Dim, class Code>
Fields read_fields(const Bytes& bytes, const Places& at) {
  Fields fields;
  for (std::size_t i = 0; i < 8; ++i) {
    fields.dim[i] = bytes.at<Dim>(at.dim + i * sizeof(Dim));
    fields.pixdim[i] = bytes.at<Real>(at.pixdim + i * sizeof(Real));
  }
  for (std::size_t i = 0; i < 3; ++i) {
    fields.quatern[i] = bytes.at<Real>(at.quatern + i * sizeof(Real));
    fields.qoffset[i] = bytes.at<Real>(at.quatern + (3 + i) * sizeof(Real));
    for (std::size_t j = 0; j < 4; ++j) fields.srow[i][j] = bytes.at<Real>(at.srow + (4 * i + j) * sizeof(Real));
  }
  fields.datatype = bytes.at<std::int16_t>(at.datatype);
  fields.bitpix = bytes.at<std::int16_t>(at.bitpix);
  fields.qform = static_cast<int>(bytes.at<Code>(at.qform));
  fields.sform = static_cast<int>(bytes.at<Code>(at.sform));
  fields.slope = bytes.at<Real>(at.slope);
  fields.intercept = bytes.at<Real>(at.intercept);
  fields.units = static_cast<int>(bytes.at<std::uint8_t>(at.units + (sizeof(Code) == 4 && bytes.swapped() ? 3 : 0)));
  fields.magic = bytes.text(at.magic, 4);
  fields.description = bytes.text(at.description, 80);
  return fields;
}

// Returns `code`, or 0 for a code that nifti1.h does not have, as nibabel does.
int known_form(int code) { return code > 0 && code <= kLastForm ? code : 0; }

std::string find_affine(const Fields& fields, NiftiHeader& header) {
  NiftiMatrix& affine = header.affine;
  affine = {};
  affine[3][3] = 1;
  if (fields.sform > 0) {
    std::copy(fields.srow.begin(), fields.srow.end(), affine.begin());
    return "";
  }
  if (fields.qform > 0) return affine_of_qform(header, affine);
  for (std::size_t i = 0; i < 3; ++i) {
    const bool there = static_cast<std::int64_t>(i) < fields.dim[0];
    affine[i][i] = (there ? voxel_size(fields.pixdim[i + 1]) : 1) * (i == 0 ? -1 : 1);
    affine[i][3] = -affine[i][i] * static_cast<double>((there ? fields.dim[i + 1] : 1) - 1) / 2;
  }
  return "";
}

std::string find_shape(const Fields& fields, NiftiHeader& header, bool& is_unread) {
  const auto rank = fields.dim[0];
  if (rank < 1 || rank > 7) return "dim[0] is " + std::to_string(rank) + ", expected 1 to 7";
  header.shape.clear();
  for (std::int64_t axis = rank; axis >= 1; --axis) {
    const std::int64_t size = fields.dim[static_cast<std::size_t>(axis)];
    if (size < 1) return "dim[" + std::to_string(axis) + "] is " + std::to_string(size) + ", expected at least 1";
    header.shape.push_back(size);
  }
  const auto* const type =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& row) { return row.first == fields.datatype; });
  if (type == kTypes.end()) {
    constexpr std::array kUnread = {1, 128, 1536, 2048, 2304};  // valid, but not read: bits, RGB, float128, complex256, RGBA
    is_unread = std::ranges::find(kUnread, fields.datatype) != kUnread.end();
    return "datatype " + std::to_string(fields.datatype) + " is not supported (supported: integers, float32, float64, complex)";
  }
  header.dtype = type->second;
  const auto bytes = static_cast<std::int64_t>(size_of(header.dtype));
  if (fields.bitpix != bytes * 8) {
    return "bitpix is " + std::to_string(fields.bitpix) + ", expected " + std::to_string(bytes * 8) + " for " +
           std::string(name_of(header.dtype));
  }
  const std::optional<std::int64_t> count = element_count(header.shape);
  if (!count || *count > std::numeric_limits<std::int64_t>::max() / bytes) {
    return "a volume of " + to_text(header.shape) + " is larger than any file";
  }
  header.voxel_bytes = static_cast<std::uint64_t>(*count * bytes);
  return "";
}

std::string find_scale(const Fields& fields, NiftiHeader& header) {
  header.scaled = std::isfinite(fields.slope) && fields.slope != 0;
  header.slope = header.scaled ? fields.slope : 1;
  header.intercept = header.scaled ? fields.intercept : 0;
  if (!std::isfinite(header.intercept)) return "scl_slope is " + significant(fields.slope, 6) + ", but scl_inter is not finite";
  header.scaled = header.slope != 1 || header.intercept != 0;
  return "";
}

}  // namespace

int datatype_of(DType dtype) {
  const auto* const type = std::ranges::find(kTypes, dtype, &std::pair<int, DType>::second);
  MR_CHECK(type != kTypes.end(), "NIfTI must have a code for this dtype");
  return type->first;
}

double voxel_size(double stored) { return stored == 0 ? 1 : std::abs(stored); }

std::string affine_of_qform(const NiftiHeader& header, NiftiMatrix& affine) {
  const double b = header.qform[0], c = header.qform[1], d = header.qform[2];
  const double square = b * b + c * c + d * d;
  if (!std::isfinite(square)) return "the qform's quaternion is not finite";
  // nibabel's threshold. If `square` is this close to 1, the difference is a rounding error of float32. Without the threshold
  // the root of the difference would rotate the volume slightly.
  constexpr double kRounding = 3 * static_cast<double>(std::numeric_limits<float>::epsilon());
  const bool is_half_turn = std::abs(1.0 - square) < kRounding;
  if (square > 1.0 && !is_half_turn) return "the qform's quaternion is longer than 1";
  const double a = is_half_turn ? 0 : std::sqrt(1.0 - square);
  const double length = is_half_turn ? square : 1;
  const std::array<std::array<double, 3>, 3> turn = {{{a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c)},
                                                      {2 * (b * c + a * d), a * a + c * c - b * b - d * d, 2 * (c * d - a * b)},
                                                      {2 * (b * d - a * c), 2 * (c * d + a * b), a * a + d * d - b * b - c * c}}};
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 3; ++j) {
      const double flip = j == 2 && header.pixdim[0] == -1 ? -1 : 1;
      affine[i][j] = turn[i][j] / length * voxel_size(header.pixdim[j + 1]) * flip;
    }
    affine[i][3] = header.qform[i + 3];
  }
  return "";
}

bool has_nifti_magic(std::span<const std::byte> bytes) {
  if (bytes.size() < kNifti1Bytes) return false;
  const auto is = [&](std::int32_t size) {
    return Bytes(bytes, false).at<std::int32_t>(0) == size || Bytes(bytes, true).at<std::int32_t>(0) == size;
  };
  const bool first = is(kNifti1Bytes), second = is(kNifti2Bytes);
  const std::string_view magic = Bytes(bytes, false).text(first ? kPlaces1.magic : kPlaces2.magic, 4);
  return (first && (magic == "n+1" || magic == "ni1")) || (second && (magic == "n+2" || magic == "ni2"));
}

std::string parse_nifti(std::span<const std::byte> bytes, NiftiHeader& header, bool& is_unread) {
  if (bytes.size() < kNifti1Bytes) {
    return "not a NIfTI file, or cut off: " + std::to_string(bytes.size()) + " bytes, but the header alone has 348";
  }
  const auto size = Bytes(bytes, false).at<std::int32_t>(0);
  const auto turned = Bytes(bytes, true).at<std::int32_t>(0);
  const bool first = size == 348 || turned == 348;
  if (!first && size != 540 && turned != 540) {
    return "not a NIfTI file: sizeof_hdr is " + std::to_string(size) + ", expected 348 or 540";
  }
  if (!first && bytes.size() < kNifti2Bytes)
    return "cut off: it has " + std::to_string(bytes.size()) + " bytes, but a NIfTI-2 header has 540";
  header.version = first ? 1 : 2;
  header.swapped = turned == 348 || turned == 540;
  const Bytes ordered(bytes, header.swapped);
  Fields fields = first ? read_fields<float, std::int16_t, std::int16_t>(ordered, kPlaces1)
                        : read_fields<double, std::int64_t, std::int32_t>(ordered, kPlaces2);
  const std::string number(1, first ? '1' : '2');
  if (fields.magic != "n+" + number && fields.magic != "ni" + number) {
    return "the magic is " + quoted(fields.magic) + ", expected \"n+" + number + "\" or \"ni" + number + "\"";
  }
  header.pair = fields.magic[1] == 'i';
  // In version 1 the offset is a float, which may not be a whole number of bytes inside the file. So the offset is checked
  // before it is converted.
  const double offset = first ? static_cast<double>(ordered.at<float>(kPlaces1.offset))
                              : static_cast<double>(ordered.at<std::int64_t>(kPlaces2.offset));
  const double least = header.pair ? 0 : first ? 352 : 544;
  // Some writers store 0 in a single file, which means "right after the header".
  const double meant = offset == 0 ? least : offset;
  if (!(meant >= least && meant < 1e15) || meant != std::floor(meant)) {
    return "vox_offset is " + significant(offset, 6) + ", expected a whole number of at least " + significant(least, 3);
  }
  header.voxel_offset = static_cast<std::uint64_t>(meant);
  header.pixdim = fields.pixdim;
  fields.qform = known_form(fields.qform);
  fields.sform = known_form(fields.sform);
  std::ranges::copy(fields.quatern, header.qform.begin());
  std::ranges::copy(fields.qoffset, header.qform.begin() + 3);
  for (std::string problem : {find_shape(fields, header, is_unread), find_scale(fields, header), find_affine(fields, header)}) {
    if (!problem.empty()) return problem;
  }
  header.qform_code = static_cast<std::int16_t>(fields.qform);
  header.sform_code = static_cast<std::int16_t>(fields.sform);
  header.units = static_cast<std::uint8_t>(fields.units);
  header.description = std::move(fields.description);
  return "";
}

std::string parse_extensions(std::span<const std::byte> bytes, std::uint64_t end, NiftiHeader& header) {
  const std::uint64_t begin = header.version == 1 ? kNifti1Bytes : kNifti2Bytes;
  header.extensions.clear();
  if (end < begin + 4 || bytes[begin] == std::byte{0}) return "";
  const Bytes ordered(bytes, header.swapped);
  // Fewer than 8 bytes after the last extension are padding.
  for (std::uint64_t at = begin + 4; at + 8 <= end;) {
    const auto size = ordered.at<std::int32_t>(at);
    if (size == 0) break;
    if (size < 8 || static_cast<std::uint64_t>(size) > end - at) {
      return "the extension at byte " + std::to_string(at) + " announces " + std::to_string(size) + " bytes, but only " +
             std::to_string(end - at) + " remain before the voxels";
    }
    header.extensions.push_back(
        {.code = ordered.at<std::int32_t>(at + 4), .offset = at + 8, .bytes = static_cast<std::uint64_t>(size) - 8});
    at += static_cast<std::uint64_t>(size);
  }
  return "";
}

}  // namespace millrace::data::detail
