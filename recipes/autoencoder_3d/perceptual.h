// The perceived difference of two volumes: features of SqueezeNet 1.1 on slices, weighted as in LPIPS (Zhang et al. 2018, "The
// unreasonable effectiveness of deep features as a perceptual metric").
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <array>
#include <cstdint>
#include <filesystem>

#include "millrace/core/batch.h"
#include "millrace/nn/noise.h"

namespace millrace::recipes::autoencoder_3d {

inline constexpr double kSlicePart = 0.2;                    // share of the slices across an axis that is compared
inline constexpr std::int64_t kSmallestPerceptualSide = 17;  // voxels; pooling leaves nothing of a smaller volume

// For each axis (depth, height, width): (B, n) i64, the indices of n slices per row.
using Slices = std::array<at::Tensor, 3>;
// kSlicePart of a volume's slices across each axis, at least one, all different; a pure function of `key`.
[[nodiscard]] Slices drawn_slices(const nn::RowKey& key, const std::array<std::int64_t, 3>& size);

// The frozen network. Its weights are buffers, under the names of the package lpips: "net.slice1.0.weight",
// "lin0.model.1.weight".
class Perceptual : public torch::nn::Module {
 public:
  // Accepts lpips's names, torchvision's names of the features ("features.0.weight"), and both behind MONAI's
  // "perceptual_function.". `maps`: volumes in [0, 1] are mapped to [-1, 1], the network's range. SnapshotError if a weight is
  // missing or has another shape.
  Perceptual(const Tensors& weights, bool maps, const std::filesystem::path& from = {});
  // Reads a .safetensors or .pt file.
  Perceptual(const std::filesystem::path& from, bool maps);

  // (B) fp32: the mean distance over each row's slices (and channels), summed over the three axes. recon and target (B, C, D, H,
  // W), each side at least kSmallestPerceptualSide; `slices` on their device. No gradient goes to `target`.
  [[nodiscard]] at::Tensor distances(const at::Tensor& recon, const at::Tensor& target, const Slices& slices) const;

 private:
  // Outputs of the seven taps for images (N, 3, H, W), each of unit length along its channels.
  [[nodiscard]] std::array<at::Tensor, 7> features(const at::Tensor& images) const;
  [[nodiscard]] const at::Tensor& weight(const std::string& name) const;
  bool maps_;
  Tensors weights_;           // the buffers' handles, so that a step does not look them up by name
  mutable at::Tensor range_;  // shift and scale of features(), f64, on the device; not saved in any file
};

}  // namespace millrace::recipes::autoencoder_3d
