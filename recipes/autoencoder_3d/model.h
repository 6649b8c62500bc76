// A KL autoencoder of volumes and the patch discriminator that judges it. Parameters carry the names that MONAI's AutoencoderKL
// and PatchDiscriminator give them, so that weights move both ways.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "millrace/base/error.h"
#include "recipes/autoencoder_3d/network.h"

namespace millrace::recipes::autoencoder_3d {

// Faults that no network can have: channels that the groups of a norm do not divide, lists of different length, a patch that the
// levels do not divide or that is too small for the discriminator.
[[nodiscard]] std::vector<Problem> shape_problems(const RecipeConfig& config);

// Number of parameters of each network: a closed form for any size, without allocating anything.
[[nodiscard]] double autoencoder_parameters(const RecipeConfig& config);
[[nodiscard]] double discriminator_parameters(const RecipeConfig& config);

// The factor by which the levels shrink each axis: 2^(levels - 1) voxels become one of the latent volume.
[[nodiscard]] std::int64_t size_divisor(const RecipeConfig& config);
// Smallest side of a volume that the discriminator accepts.
[[nodiscard]] std::int64_t smallest_side(const RecipeConfig& config);

class AutoencoderKL : public torch::nn::Module {
 public:
  explicit AutoencoderKL(const RecipeConfig& config, const nn::Fused& fused = {});

  // The distribution of a latent volume (N, z, D/f, H/f, W/f), f = size_divisor(): mean and standard deviation, fp32. log(sd^2)
  // is kept within [-30, 20].
  struct Latent {
    at::Tensor mean, deviation;
  };
  // x (N, C, D, H, W), each side a multiple of f.
  Latent encode(const at::Tensor& x);
  at::Tensor encode_mean(const at::Tensor& x) { return encode(x).mean; }
  // (N, z, d, h, w) -> (N, C, f d, f h, f w).
  at::Tensor decode(const at::Tensor& z);

  void set_channels_last(bool channels_last) noexcept { channels_last_ = channels_last; }  // the memory format of its computation

 private:
  [[nodiscard]] at::Tensor arranged(const at::Tensor& x) const;
  bool channels_last_ = false;
  std::shared_ptr<Coder> encoder_, decoder_;
  std::shared_ptr<Convolution> quant_conv_mu_, quant_conv_log_sigma_, post_quant_conv_;
};

// Judges for patches of a volume whether they look real: convolutions of kernel 4, instance norms, leaky ReLU of slope 0.2.
class PatchDiscriminator : public torch::nn::Module {
 public:
  explicit PatchDiscriminator(const RecipeConfig& config, const nn::Fused& fused = {});
  at::Tensor forward(const at::Tensor& x);  // (N, C, D, H, W) -> (N, 1, d, h, w)
  void set_channels_last(bool channels_last) noexcept { channels_last_ = channels_last; }

 private:
  nn::Fused fused_;
  bool channels_last_ = false;
  std::vector<std::shared_ptr<Convolution>> layers_;
};

// MONAI's initialisation of a discriminator: weights normal with deviation 0.02, biases 0.
void initialise_as_gan(torch::nn::Module& module, at::Generator& generator);

// Both networks. The children of both are side by side, each under MONAI's own name ("encoder", "decoder", "quant_conv_mu", ...;
// "initial_conv", "0", "1", ..., "final_conv"): a snapshot's file of one network is MONAI's state dict.
class VolumeGan : public torch::nn::Module {
 public:
  // Weights are a function of `seed`. There is no discriminator if recipe.adv_weight is 0. ConfigError if the sizes do not fit
  // together.
  explicit VolumeGan(const RecipeConfig& config, std::uint64_t seed = 0, const nn::Fused& fused = {});

  [[nodiscard]] AutoencoderKL& autoencoder() noexcept { return *autoencoder_; }
  [[nodiscard]] bool has_discriminator() const noexcept { return discriminator_ != nullptr; }
  [[nodiscard]] PatchDiscriminator& discriminator();
  void set_channels_last(bool channels_last) noexcept;

 private:
  std::shared_ptr<AutoencoderKL> autoencoder_;
  std::shared_ptr<PatchDiscriminator> discriminator_;
};

}  // namespace millrace::recipes::autoencoder_3d
