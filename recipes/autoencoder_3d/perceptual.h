// The perceived difference of two volumes: the distance between features of SqueezeNet 1.1 on slices, weighted as in LPIPS (Zhang
// et al. 2018, "The unreasonable effectiveness of deep features as a perceptual metric").
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <array>
#include <cstdint>
#include <filesystem>

#include "millrace/core/batch.h"
#include "millrace/nn/noise.h"

namespace millrace::recipes::autoencoder_3d {

inline constexpr double kSlicePart = 0.2;                    // share of a volume's slices that is compared, for each axis
inline constexpr std::int64_t kSmallestPerceptualSide = 17;  // in voxels; the features of a smaller volume would be empty after
                                                             // pooling

// For each axis (depth, height, width) the indices of n slices for each row: (B, n) i64.
using Slices = std::array<at::Tensor, 3>;
// Draws kSlicePart of a volume's slices across each axis, at least one, all different. The result depends only on `key` and
// `size`.
[[nodiscard]] Slices drawn_slices(const nn::RowKey& key, const std::array<std::int64_t, 3>& size);

// The frozen SqueezeNet. Its weights are buffers with the names of the Python package lpips: "net.slice1.0.weight",
// "lin0.model.1.weight".
class Perceptual : public torch::nn::Module {
 public:
  // Accepts the weight names of lpips, the names of the features in torchvision ("features.0.weight"), and both with MONAI's
  // prefix "perceptual_function.". `maps`: true maps volumes from [0, 1] to [-1, 1], the network's range. Throws SnapshotError
  // if a weight is missing or has another shape.
  Perceptual(const Tensors& weights, bool maps, const std::filesystem::path& from = {});
  // Reads the weights from a .safetensors or .pt file.
  Perceptual(const std::filesystem::path& from, bool maps);

  // The distance of each row, (B) fp32: the mean over the row's slices and channels, summed over the three axes. recon and
  // target are (B, C, D, H, W), each side at least kSmallestPerceptualSide. `slices` must be on the device of recon and target.
  // `target` gets no gradient.
  [[nodiscard]] at::Tensor distances(const at::Tensor& recon, const at::Tensor& target, const Slices& slices) const;

 private:
  // The outputs of the seven layers that LPIPS compares, for images (N, 3, H, W). Each output has unit length along its
  // channels.
  [[nodiscard]] std::array<at::Tensor, 7> features(const at::Tensor& images) const;
  [[nodiscard]] const at::Tensor& weight(const std::string& name) const;
  bool maps_;
  Tensors weights_;           // the same tensors as the buffers, so that a step need not look them up by name
  mutable at::Tensor range_;  // shift and scale for features(), f64, on the device; not saved
};

}  // namespace millrace::recipes::autoencoder_3d
