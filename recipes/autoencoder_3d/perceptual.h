// How different two volumes look: features of SqueezeNet 1.1 on slices, weighed as LPIPS does (Zhang et al. 2018, "The
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

inline constexpr double kSlicePart = 0.2;                    // of the slices across an axis are looked at
inline constexpr std::int64_t kSmallestPerceptualSide = 17;  // of a volume: below, pooling leaves nothing

// Of each axis (depth, height, width): (B, n) i64, numbers of n slices of each row.
using Slices = std::array<at::Tensor, 3>;
// kSlicePart of a volume's slices across each axis, at least one, all different; a pure function of `key`.
[[nodiscard]] Slices drawn_slices(const nn::RowKey& key, const std::array<std::int64_t, 3>& size);

// The frozen network. Its weights are buffers, under the names of the package lpips: "net.slice1.0.weight",
// "lin0.model.1.weight".
class Perceptual : public torch::nn::Module {
 public:
  // Takes lpips's names, torchvision's of the features ("features.0.weight"), and both behind MONAI's "perceptual_function.".
  // `maps`: volumes in [0, 1] are mapped to [-1, 1], the network's range. SnapshotError where one is missing or of another shape.
  Perceptual(const Tensors& weights, bool maps, const std::filesystem::path& from = {});
  // Of a .safetensors or .pt file.
  Perceptual(const std::filesystem::path& from, bool maps);

  // (B) fp32: the mean distance over each row's slices (and channels), summed over the three axes. recon and target (B, C, D, H,
  // W), each side at least kSmallestPerceptualSide; `slices` on their device. No gradient goes to `target`.
  [[nodiscard]] at::Tensor distances(const at::Tensor& recon, const at::Tensor& target, const Slices& slices) const;

 private:
  // Outputs of the seven taps for images (N, 3, H, W), each of unit length along its channels.
  [[nodiscard]] std::array<at::Tensor, 7> features(const at::Tensor& images) const;
  [[nodiscard]] const at::Tensor& weight(const std::string& name) const;
  bool maps_;
  Tensors weights_;           // the buffers' handles: not read by name from the module in a step
  mutable at::Tensor range_;  // what features() wants subtracted and divided by, f64, on the device; no file holds it
};

}  // namespace millrace::recipes::autoencoder_3d
