// Passes new volumes through a trained autoencoder: turns a volume file into a latent file, and a latent file into a volume
// again.
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

// The facts about an encoded volume that decoding needs. A latent file stores them as JSON in a NIfTI comment.
struct LatentRecord {
  std::array<std::int64_t, 3> shape{};        // depth, height, width of the volume
  std::vector<std::array<double, 2>> ranges;  // for each channel, the values that were scaled to 0 and to 1
  data::NiftiHeader place;  // the orientation and position of the volume in space: pixdim, qform and sform with their codes,
                            // units
  std::string weights;      // a text that names the weights which encoded the volume
};
[[nodiscard]] std::string text_of(const LatentRecord& record);
// Reads a record from its JSON text. nullopt if the text is not a record with this many channels.
[[nodiscard]] std::optional<LatentRecord> record_of(const std::string& text, std::int64_t channels);

// How an array is cut into tiles, in voxels along each axis. `tile` and `overlap` must be multiples of `grain`, and `overlap`
// must be less than `tile`. The function that is applied to a tile turns each side of n voxels into n * up / down voxels.
struct Tiles {
  std::int64_t tile = 64, overlap = 16, grain = 1;
  std::int64_t up = 1, down = 1;
};
// Applies fn to overlapping tiles of x (1, C, D, H, W), one after the other, and blends the results with weights that fall
// towards the edges of a tile. The sides of x must be multiples of tiles.grain; a side of at most tiles.tile is not cut.
[[nodiscard]] at::Tensor in_tiles(const at::Tensor& x, const Tiles& tiles,
                                  const std::function<at::Tensor(const at::Tensor&)>& fn);

// An upper estimate of the memory, in bytes, of a forward pass without gradients over a volume of this many voxels.
[[nodiscard]] double pass_bytes(const RecipeConfig& recipe, double voxels);

// Encodes and decodes the files of a command. Not thread-safe.
class VolumeCodec {
 public:
  struct Options {
    at::Device device = at::kCPU;
    std::optional<at::ScalarType> autocast;
    std::int64_t tile = 0;   // voxels of a tile along each axis; 0: whole volumes if their pass fits into half of the free
                             // memory, otherwise tiles of a size that fits
    std::string weights;     // a text that names the weights; encode() stores it in the LatentRecord
    std::uint64_t free = 0;  // bytes that a pass may use; 0 = half of the free memory
  };
  VolumeCodec(AutoencoderKL& model, const RecipeConfig& recipe, Options options);

  // Encodes the volume file `in` and writes the mean of the latent distribution, [z,d,h,w] f32, as `out` (.nii or .nii.gz).
  // `out` has the voxel sizes and the origin of the coarser grid, and the record as a comment. `in` is .nii, .nii.gz or .npz; an
  // .npz file has no position in space. The values of `in` are scaled by the percentiles of the whole volume. Returns a summary
  // for people. Throws DataError as open_volume_file() does, and if there is not enough memory even for a tile of one patch.
  std::string encode(Fs& fs, const std::filesystem::path& in, const std::filesystem::path& out);
  // Decodes the latent file `in` and writes the volume, f32, with the shape, place and range of values that the encoded volume
  // had. If the latent file has no record, values go from 0 to 1, and the voxel size is computed from that of the latent volume.
  // Throws DataError if `in` is not a latent volume of this model.
  std::string decode(Fs& fs, const std::filesystem::path& in, const std::filesystem::path& out);

 private:
  at::Tensor pass(const at::Tensor& x, bool encodes, std::string& how);
  [[nodiscard]] std::int64_t tile_for(const at::Tensor& x, bool encodes, const std::filesystem::path& file) const;

  AutoencoderKL& model_;
  RecipeConfig recipe_;
  Options options_;
  std::filesystem::path file_;  // the file that is being processed
};

}  // namespace millrace::recipes::autoencoder_3d
