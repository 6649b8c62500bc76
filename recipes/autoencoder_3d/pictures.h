// Pictures of a validation: reconstructions next to their originals in three planes, and the latent volume.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <string>
#include <vector>

#include "millrace/picture/picture.h"

namespace millrace::recipes::autoencoder_3d {

// The first sample of a validation, as the pictures show it.
struct Shown {
  at::Tensor target, recon;         // (D, H, W) fp32 on the CPU; the target is in [0, 1]
  at::Tensor latent;                // (z, d, h, w): the mean of the latent distribution
  std::string sample;               // name of the sample's file
  std::array<double, 3> spacing{};  // size of a voxel in mm along D, H, W; 0 = unknown
};

// For each axis, draws the middle slice of the original and of the reconstruction, both with one grey scale, and the difference
// of the two, with a symmetric scale of its own. The scale bar is in mm, or in voxels if the voxels' size is unknown.
[[nodiscard]] Picture draw_planes(const Shown& shown);
// Draws the middle axial slice of each latent channel, of at most 16 channels, with a symmetric scale.
[[nodiscard]] Picture draw_latent(const Shown& shown);
// Draws for each axis the middle slice as a plain grey picture: "val_img_0" ... and "val_recon_0" ... These names are the
// TensorBoard tags of 3d_ldm, the program that this recipe follows.
[[nodiscard]] std::vector<Picture> draw_slices(const Shown& shown);

}  // namespace millrace::recipes::autoencoder_3d
