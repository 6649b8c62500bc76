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

// For each axis the middle slice of original, reconstruction and their difference. The first two share a grey scale; the
// difference has its own symmetric scale. A scale bar is in mm, or in voxels if their size is unknown.
[[nodiscard]] Picture draw_planes(const Shown& shown);
// The middle axial slice of each latent channel, at most 16, with a symmetric scale.
[[nodiscard]] Picture draw_latent(const Shown& shown);
// For each axis the middle slice as a plain grey picture: "val_img_0" ... and "val_recon_0" ... These are the TensorBoard tags of
// 3d_ldm, the program that this recipe follows.
[[nodiscard]] std::vector<Picture> draw_slices(const Shown& shown);

}  // namespace millrace::recipes::autoencoder_3d
