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
struct PassedOver;  // defined in format/deflate.h
}

namespace millrace::data {

struct NiftiHeader {
  struct Extension {
    std::int32_t code = 0;     // kind of content of the extension: 4 = AFNI, 6 = a comment, ...
    std::uint64_t offset = 0;  // byte of the decompressed header file at which the extension's content begins
    std::uint64_t bytes = 0;
  };

  int version = 1;       // version of the NIfTI format: 1 or 2
  bool pair = false;     // true: the voxels are in a separate file (.img)
  bool swapped = false;  // true: the byte order is not this machine's
  DType dtype = DType::i16;
  Shape shape;                     // slowest axis first: [t,z,y,x]
  std::uint64_t voxel_offset = 0;  // byte of the decompressed file at which the voxels begin
  std::uint64_t voxel_bytes = 0;
  // value = stored * slope + intercept. If the stored slope is 0 or not finite, there is no scaling: slope is then 1 and
  // intercept 0.
  double slope = 1;
  double intercept = 0;
  bool scaled = false;                          // false: the values are the stored numbers, without scaling
  std::array<double, 8> pixdim{};               // as stored; [1] to [7] are the sizes of a voxel along x, y, z, t, ...
  std::int16_t qform_code = 0, sform_code = 0;  // as stored, but a code that the standard does not have becomes 0
  std::array<double, 6> qform{};                // as stored: b, c and d of the quaternion, then the offsets along x, y and z
  // Maps the voxel (i, j, k, 1), along x, y, z, to millimetres; stored row by row. The matrix is taken from the sform, else from
  // the qform, else from the voxel sizes. In the last case the volume's centre is the origin and x is flipped, as in nibabel. (A
  // negative voxel size counts as positive, 0 counts as 1.)
  std::array<std::array<double, 4>, 4> affine{};
  std::uint8_t units = 0;  // xyzt_units as stored: 2 = mm, 8 = s, ...
  std::string description;
  std::vector<Extension> extensions;
};

// Returns true if the file, decompressed if it is gzip, begins like a NIfTI header, whatever the file's name is. For a pair of
// files, pass the header file.
[[nodiscard]] bool is_nifti(const std::filesystem::path& path);

// A volume that is open for reading; its header was checked against the size of the file. Constant and thread-safe. Each read
// inflates a compressed file completely, into a buffer that the thread keeps. The buffer is as large as the largest file and
// volume that the thread has read. Throws a DataError with the name of the file if the NIfTI header is missing or impossible, if
// voxels are missing, or if the gzip stream is damaged or longer than the header says.
class NiftiFile {
 public:
  explicit NiftiFile(const std::filesystem::path& path);  // for a pair, `path` may be either file
  ~NiftiFile();
  NiftiFile(NiftiFile&& other) noexcept;
  NiftiFile& operator=(NiftiFile&&) = delete;
  NiftiFile(const NiftiFile&) = delete;
  NiftiFile& operator=(const NiftiFile&) = delete;

  [[nodiscard]] const NiftiHeader& header() const noexcept { return header_; }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] std::vector<std::byte> extension(const NiftiHeader::Extension& extension) const;

  // Reads a block of `size` voxels from `offset` (slowest axis first; the block must be inside the volume). `out` gets the stored
  // numbers in C order, in this machine's byte order. Copies only the block; from an uncompressed file it reads little more.
  void read(std::span<const std::int64_t> offset, std::span<const std::int64_t> size, std::span<std::byte> out) const;
  // Reads the same block as read(), scaled in double and rounded to float. Throws DataError for complex voxels.
  void read_scaled(std::span<const std::int64_t> offset, std::span<const std::int64_t> size, std::span<float> out) const;
  // Reads all voxels. `passed_over` receives the numbers of ignored bytes that follow the voxels.
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

// Like read() and read_scaled(), but these functions cut the block out of `voxels`, which holds the whole volume as read()
// returns it. Dtype, shape and scaling are those of `header`. cut_scaled() needs a dtype that is not complex.
void cut(const NiftiHeader& header, std::span<const std::byte> voxels, std::span<const std::int64_t> offset,
         std::span<const std::int64_t> size, std::span<std::byte> out);
void cut_scaled(const NiftiHeader& header, std::span<const std::byte> voxels, std::span<const std::int64_t> offset,
                std::span<const std::int64_t> size, std::span<float> out);

}  // namespace millrace::data
