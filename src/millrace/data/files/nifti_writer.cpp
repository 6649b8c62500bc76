#include "millrace/data/files/nifti_writer.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "millrace/base/error.h"
#include "millrace/data/files/detail/nifti_header.h"
#include "millrace/format/deflate.h"

namespace millrace::data {
namespace {

constexpr std::size_t kMostDescription = 79;
constexpr std::int16_t kAligned = 2;  // the sform_code for coordinates that are aligned to another image

template <class T, class Value>
void put(std::vector<std::byte>& bytes, std::size_t at, Value value) {
  const auto stored = static_cast<T>(value);
  std::memcpy(bytes.data() + at, &stored, sizeof stored);
}

void put_text(std::vector<std::byte>& bytes, std::size_t at, std::string_view text) {
  std::memcpy(bytes.data() + at, text.data(), text.size());
}

// Returns the bytes before the voxels: the header, four bytes after it, and the extensions. Offsets are those of nifti1.h.
std::vector<std::byte> head_of(const NiftiHeader& header, std::span<const std::string> comments) {
  std::size_t size = detail::kNifti1Bytes + 4;
  const auto whole = [](const std::string& comment) { return (8 + comment.size() + 15) / 16 * 16; };
  for (const std::string& comment : comments) size += whole(comment);
  std::vector<std::byte> bytes(size);
  put<std::int32_t>(bytes, 0, detail::kNifti1Bytes);
  const std::size_t rank = header.shape.size();
  for (std::size_t i = 0; i < 8; ++i) {
    const std::int64_t axis = i == 0 ? static_cast<std::int64_t>(rank) : i <= rank ? header.shape[rank - i] : 1;
    put<std::int16_t>(bytes, 40 + 2 * i, axis);
    put<float>(bytes, 76 + 4 * i, header.pixdim[i]);
  }
  put<std::int16_t>(bytes, 70, detail::datatype_of(header.dtype));
  put<std::int16_t>(bytes, 72, 8 * size_of(header.dtype));
  put<float>(bytes, 108, size);
  put<float>(bytes, 112, header.scaled ? header.slope : 1);
  put<float>(bytes, 116, header.scaled ? header.intercept : 0);
  put<std::uint8_t>(bytes, 123, header.units);
  put_text(bytes, 148, std::string_view(header.description).substr(0, kMostDescription));
  put<std::int16_t>(bytes, 252, header.qform_code);
  put<std::int16_t>(bytes, 254, header.sform_code);
  for (std::size_t i = 0; i < header.qform.size(); ++i) put<float>(bytes, 256 + 4 * i, header.qform[i]);
  for (std::size_t i = 0; header.sform_code > 0 && i < 12; ++i) put<float>(bytes, 280 + 4 * i, header.affine[i / 4][i % 4]);
  put_text(bytes, 344, "n+1");
  if (!comments.empty()) put<std::uint8_t>(bytes, detail::kNifti1Bytes, 1);
  std::size_t at = detail::kNifti1Bytes + 4;
  for (const std::string& comment : comments) {
    put<std::int32_t>(bytes, at, whole(comment));
    put<std::int32_t>(bytes, at + 4, kNiftiComment);
    put_text(bytes, at + 8, comment);
    at += whole(comment);
  }
  return bytes;
}

void check(const std::filesystem::path& path, const NiftiHeader& header, std::size_t bytes) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int16_t>::max();
  const bool fits = !header.shape.empty() && header.shape.size() <= 7 &&
                    std::ranges::all_of(header.shape, [](std::int64_t size) { return size >= 1 && size <= kMost; });
  if (!fits) {
    throw DataError({"an array of " + to_text(header.shape) + " does not fit into a NIfTI-1 file", path.string(),
                     "write 1 to 7 axes of at most 32,767 voxels"});
  }
  const std::optional<std::int64_t> count = element_count(header.shape);
  MR_CHECK(count && static_cast<std::size_t>(*count) * size_of(header.dtype) == bytes,
           "there must be as many voxels as the shape has");
}

}  // namespace

void write_nifti(Fs& fs, const std::filesystem::path& path, const NiftiHeader& header, std::span<const std::byte> voxels,
                 std::span<const std::string> comments) {
  const bool packed = path.extension() == ".gz";
  if ((packed ? path.stem() : path).extension() != ".nii") {
    throw DataError({"files with this ending can't be written", path.string(), "name the file .nii or .nii.gz"});
  }
  check(path, header, voxels.size());
  std::vector<std::byte> bytes = head_of(header, comments);
  if (packed) {
    bytes.insert(bytes.end(), voxels.begin(), voxels.end());
    bytes = format::deflate(format::DeflateFrame::gzip, bytes);
  }
  write_atomically(fs, path, [&](WritableFile& file) {
    file.write(bytes);
    if (!packed) file.write(voxels);
  });
}

NiftiHeader with_voxels_of(const NiftiHeader& like, double factor) {
  NiftiHeader header = like;
  const auto move = [&](const detail::NiftiMatrix& affine, std::size_t row) {
    return affine[row][3] + (affine[row][0] + affine[row][1] + affine[row][2]) * (factor - 1) / 2;
  };
  for (std::size_t i = 0; i < 3; ++i) {
    header.affine[i][3] = move(like.affine, i);
    for (std::size_t j = 0; j < 3; ++j) header.affine[i][j] *= factor;
    header.pixdim[i + 1] *= factor;
  }
  detail::NiftiMatrix turned{};
  if (like.qform_code > 0 && detail::affine_of_qform(like, turned).empty()) {
    for (std::size_t i = 0; i < 3; ++i) header.qform[i + 3] = move(turned, i);
  }
  if (like.qform_code <= 0 && like.sform_code <= 0) header.sform_code = kAligned;
  return header;
}

}  // namespace millrace::data
