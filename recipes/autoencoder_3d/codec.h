// New volumes through a trained autoencoder: a volume file becomes a latent file, and a latent file a volume again.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/fs.h"
#include "millrace/base/json.h"
#include "millrace/data/files/nifti.h"
#include "recipes/autoencoder_3d/config.h"
#include "recipes/autoencoder_3d/model.h"

namespace millrace::recipes::autoencoder_3d {

// The description of the encoded volume in a latent file, as JSON in a NIfTI comment: decoding needs it.
struct LatentRecord {
  std::array<std::int64_t, 3> shape{};        // depth, height, width of the volume
  std::vector<std::array<double, 2>> ranges;  // for each channel: the values that became 0 and 1
  data::NiftiHeader place;                    // pixdim, both transforms and their codes, units
  std::string weights;                        // the weights that encoded it
};
[[nodiscard]] std::string text_of(const LatentRecord& record);
// nullopt if the text is not such a record with this many channels.
[[nodiscard]] std::optional<LatentRecord> record_of(const std::string& text, std::int64_t channels);

// `tile` and `overlap` are multiples of `grain`, and overlap < tile. A function of tiles turns n voxels along each axis into
// n * up / down.
struct Tiles {
  std::int64_t tile = 64, overlap = 16, grain = 1;
  std::int64_t up = 1, down = 1;
};
// Applies fn to overlapping tiles of x (1, C, D, H, W), one after the other, and blends the results with weights that fall
// towards a tile's edges. The sides of x are multiples of tiles.grain; a side up to tiles.tile is not cut.
[[nodiscard]] at::Tensor in_tiles(const at::Tensor& x, const Tiles& tiles,
                                  const std::function<at::Tensor(const at::Tensor&)>& fn);

// Upper estimate of the memory of a pass over a volume of this many voxels, without gradients.
[[nodiscard]] double pass_bytes(const RecipeConfig& recipe, double voxels);

// The state shared by all files of a command. Not thread-safe.
class VolumeCodec {
 public:
  struct Options {
    at::Device device = at::kCPU;
    std::optional<at::ScalarType> autocast;
    std::int64_t tile = 0;   // voxels along each axis; 0: whole volumes if they fit into half of the free memory, else tiles
    std::string weights;     // goes into the record
    std::uint64_t free = 0;  // bytes that a pass may use; 0 = half of the free memory
  };
  VolumeCodec(AutoencoderKL& model, const RecipeConfig& recipe, Options options);

  // Writes the mean of the latent distribution, [z,d,h,w] f32, as `out` (.nii or .nii.gz): voxel sizes and origin are those of
  // the coarser grid, the record is a comment. The input is .nii, .nii.gz, or .npz, which has no place in space; its values are
  // scaled by the percentiles of the whole volume. Returns a summary in words. DataError: see open_volume_file(); also if even a
  // tile of one patch needs more memory than there is.
  std::string encode(Fs& fs, const std::filesystem::path& in, const std::filesystem::path& out);
  // Writes the volume of a latent file, f32, in the shape, place and values of the encoded one; without a record, as a separate
  // grid with values from 0 to 1. DataError: not a latent volume of this model.
  std::string decode(Fs& fs, const std::filesystem::path& in, const std::filesystem::path& out);

 private:
  at::Tensor pass(const at::Tensor& x, bool encodes, std::string& how);
  [[nodiscard]] std::int64_t tile_for(const at::Tensor& x, bool encodes, const std::filesystem::path& file) const;

  AutoencoderKL& model_;
  RecipeConfig recipe_;
  Options options_;
  std::filesystem::path file_;  // the file being processed
};

}  // namespace millrace::recipes::autoencoder_3d
