// The arrays of a file, whatever its kind, to be looked at piece by piece.
#pragma once

#include <filesystem>
#include <vector>

#include "millrace/cli/inspect/value_table.h"

namespace millrace::cli {

// Of a file's arrays, in the order in which inspect lists them. Memory is bounded by a few megabytes, but for what can only be
// decoded whole: pictures, compressed members of .npz, .nii.gz, transposed tensors of .pt; one of them at a time. NIfTI voxels
// are taken as their header scales them. What is thrown, at once or by `pieces`: DataError.
using FileArrays = std::vector<LyingArray> (*)(const std::filesystem::path&);

[[nodiscard]] std::vector<LyingArray> safetensors_arrays(const std::filesystem::path& path);
[[nodiscard]] std::vector<LyingArray> npy_arrays(const std::filesystem::path& path);
[[nodiscard]] std::vector<LyingArray> npz_arrays(const std::filesystem::path& path);
[[nodiscard]] std::vector<LyingArray> pt_arrays(const std::filesystem::path& path);
[[nodiscard]] std::vector<LyingArray> nifti_arrays(const std::filesystem::path& path);
[[nodiscard]] std::vector<LyingArray> hdf5_arrays(const std::filesystem::path& path);
[[nodiscard]] std::vector<LyingArray> image_arrays(const std::filesystem::path& path);
[[nodiscard]] std::vector<LyingArray> token_arrays(const std::filesystem::path& path);

}  // namespace millrace::cli
