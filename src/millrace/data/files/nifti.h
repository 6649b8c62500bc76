// NIfTI volumes (nifti1.h and nifti2.h of the NIfTI Data Format Working Group): .nii, .nii.gz, and the pair .hdr/.img (also .gz),
// in either byte order. Axes are listed slowest first, as for arrays in C order: an x, y, z volume has shape [z,y,x].
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "millrace/base/field.h"

namespace millrace {
class InputFile;
}
namespace millrace::format {
struct PassedOver;  // format/deflate.h
}

namespace millrace::data {

struct NiftiHeader {
  struct Extension {
    std::int32_t code = 0;     // 4: AFNI, 6: a comment, ...
    std::uint64_t offset = 0;  // of its content in the header file, decompressed
    std::uint64_t bytes = 0;
  };

  int version = 1;       // 1 or 2
  bool pair = false;     // voxels in a separate file (.img)
  bool swapped = false;  // not in this machine's byte order
  DType dtype = DType::i16;
  Shape shape;                     // slowest axis first: [t,z,y,x]
  std::uint64_t voxel_offset = 0;  // in the voxel file, decompressed
  std::uint64_t voxel_bytes = 0;
  // value = stored * slope + intercept. A stored slope that is 0 or not finite means that there is no scaling and is read as
  // slope 1, intercept 0.
  double slope = 1;
  double intercept = 0;
  bool scaled = false;                          // false: values are as stored
  std::array<double, 8> pixdim{};               // as stored: [1] to [7] are the sizes of a voxel along x, y, z, t, ...
  std::int16_t qform_code = 0, sform_code = 0;  // 0 for a code that the standard does not have
  std::array<double, 6> qform{};                // as stored: b, c and d of the quaternion, then the offset along x, y, z
  // Maps voxel (i, j, k, 1) along x, y, z to millimetres, row by row: from the sform, else the qform, else the voxel sizes about
  // the volume's centre with x flipped, as in nibabel (a negative voxel size counts as positive, 0 as 1).
  std::array<std::array<double, 4>, 4> affine{};
  std::uint8_t units = 0;  // xyzt_units as stored: 2 = mm, 8 = s, ...
  std::string description;
  std::vector<Extension> extensions;
};

// True if a file begins as a NIfTI header does, after gunzipping: decided by content, whatever its name. For a pair, pass the
// header file.
[[nodiscard]] bool is_nifti(const std::filesystem::path& path);

// A volume open for reading, its header checked against the file's size. Const and thread-safe. Compressed files are inflated
// whole at each read, into a buffer that each thread keeps (as large as the largest file and volume it has read). DataError names
// the file and what is wrong: no NIfTI header, an impossible header, missing voxels, a gzip stream that is damaged or longer than
// the header says.
class NiftiFile {
 public:
  explicit NiftiFile(const std::filesystem::path& path);  // for a pair, either file
  ~NiftiFile();
  NiftiFile(NiftiFile&& other) noexcept;
  NiftiFile& operator=(NiftiFile&&) = delete;
  NiftiFile(const NiftiFile&) = delete;
  NiftiFile& operator=(const NiftiFile&) = delete;

  [[nodiscard]] const NiftiHeader& header() const noexcept { return header_; }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] std::vector<std::byte> extension(const NiftiHeader::Extension& extension) const;

  // Reads the block of `size` voxels per axis from `offset` (slowest axis first, inside the volume), in C order: the stored
  // numbers in this machine's byte order. Copies only the block; of an uncompressed file it reads little more.
  void read(std::span<const std::int64_t> offset, std::span<const std::int64_t> size, std::span<std::byte> out) const;
  // Reads the same block, scaled in double and rounded to float. DataError for complex voxels.
  void read_scaled(std::span<const std::int64_t> offset, std::span<const std::int64_t> size, std::span<float> out) const;
  // Reads all voxels. `passed_over`: receives what follows them in the voxel file.
  void read(std::span<std::byte> out, format::PassedOver* passed_over = nullptr) const;
  void read_scaled(std::span<float> out) const;

 private:
  void read_block(std::span<const std::int64_t> offset, std::span<const std::int64_t> size, std::span<std::byte> out,
                  format::PassedOver* passed_over) const;

  std::filesystem::path path_;
  std::unique_ptr<InputFile> head_;    // the header file
  std::unique_ptr<InputFile> voxels_;  // the voxel file of a pair; null if head_ holds the voxels
  NiftiHeader header_;
};

// Cut the same block out of a whole volume in memory, as read() returned it; they use the header's dtype, shape and scaling.
// cut_scaled needs a dtype that is not complex.
void cut(const NiftiHeader& header, std::span<const std::byte> voxels, std::span<const std::int64_t> offset,
         std::span<const std::int64_t> size, std::span<std::byte> out);
void cut_scaled(const NiftiHeader& header, std::span<const std::byte> voxels, std::span<const std::int64_t> offset,
                std::span<const std::int64_t> size, std::span<float> out);

}  // namespace millrace::data
