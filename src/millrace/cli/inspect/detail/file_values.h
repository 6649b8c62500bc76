// Reads the arrays of a file of any known kind, in pieces.
#pragma once

#include <filesystem>
#include <vector>

#include "millrace/cli/inspect/value_table.h"

namespace millrace::cli {

// Returns the arrays of a file, in the order in which `inspect` lists them. Reading takes a few megabytes of memory. Pictures,
// sounds, compressed members of .npz, .nii.gz, and transposed tensors of .pt can be decoded only as a whole, so each of these
// takes the memory of one whole array. NIfTI voxels are scaled as their header says. Throws DataError at once, or when
// LyingArray::pieces is called.
using FileArrays = std::vector<LyingArray> (*)(const std::filesystem::path&);

[[nodiscard]] std::vector<LyingArray> safetensors_arrays(const std::filesystem::path& path);
[[nodiscard]] std::vector<LyingArray> npy_arrays(const std::filesystem::path& path);
[[nodiscard]] std::vector<LyingArray> npz_arrays(const std::filesystem::path& path);
[[nodiscard]] std::vector<LyingArray> pt_arrays(const std::filesystem::path& path);
[[nodiscard]] std::vector<LyingArray> nifti_arrays(const std::filesystem::path& path);
[[nodiscard]] std::vector<LyingArray> hdf5_arrays(const std::filesystem::path& path);
[[nodiscard]] std::vector<LyingArray> image_arrays(const std::filesystem::path& path);
[[nodiscard]] std::vector<LyingArray> sound_arrays(const std::filesystem::path& path);
[[nodiscard]] std::vector<LyingArray> token_arrays(const std::filesystem::path& path);

}  // namespace millrace::cli
