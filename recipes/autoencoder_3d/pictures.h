// Pictures of a validation: reconstructions next to originals in three planes, and the latent volume.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <string>
#include <vector>

#include "millrace/picture/picture.h"

namespace millrace::recipes::autoencoder_3d {

// The first sample of a validation.
struct Shown {
  at::Tensor target, recon;         // (D, H, W) fp32 on the CPU, target in [0, 1]
  at::Tensor latent;                // (z, d, h, w): mean of the latent distribution
  std::string sample;               // file name
  std::array<double, 3> spacing{};  // voxel size in mm along D, H, W; 0 = unknown
};

// The middle slice of each axis: original, reconstruction (same grey scale) and their difference (its own, symmetric scale), with
// a scale bar in mm, or in voxels if their size is unknown.
[[nodiscard]] Picture draw_planes(const Shown& shown);
// The middle axial slice of each latent channel (at most 16), symmetric scale.
[[nodiscard]] Picture draw_latent(const Shown& shown);
// One plain grey picture per axis of the middle slice: "val_img_0" ... and "val_recon_0" ...: 3d_ldm's TensorBoard tags.
[[nodiscard]] std::vector<Picture> draw_slices(const Shown& shown);

}  // namespace millrace::recipes::autoencoder_3d
