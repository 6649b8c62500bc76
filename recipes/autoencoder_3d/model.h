// A KL autoencoder of volumes, and a discriminator that judges patches of its results. Parameters have the names that MONAI's
// AutoencoderKL and PatchDiscriminator give them, so that weights can be moved in both directions.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "millrace/base/error.h"
#include "recipes/autoencoder_3d/network.h"

namespace millrace::recipes::autoencoder_3d {

// Returns the faults that make a network impossible: channels that the groups of a norm do not divide, lists of different
// length, a patch that the levels do not divide or that is too small for the discriminator.
[[nodiscard]] std::vector<Problem> shape_problems(const RecipeConfig& config);

// The number of parameters of each network. Computed by a formula, so it works for any size and allocates nothing.
[[nodiscard]] double autoencoder_parameters(const RecipeConfig& config);
[[nodiscard]] double discriminator_parameters(const RecipeConfig& config);

// The factor by which the network shrinks each axis: 2^(levels - 1) voxels become one voxel of the latent volume.
[[nodiscard]] std::int64_t size_divisor(const RecipeConfig& config);
// The smallest side of a volume that the discriminator accepts.
[[nodiscard]] std::int64_t smallest_side(const RecipeConfig& config);

class AutoencoderKL : public torch::nn::Module {
 public:
  explicit AutoencoderKL(const RecipeConfig& config, const nn::Fused& fused = {});

  // The distribution of a latent volume (N, z, D/f, H/f, W/f), f = size_divisor(): mean and standard deviation in fp32.
  // log(deviation^2) is kept within [-30, 20].
  struct Latent {
    at::Tensor mean, deviation;
  };
  // x is (N, C, D, H, W); each side must be a multiple of f.
  Latent encode(const at::Tensor& x);
  at::Tensor encode_mean(const at::Tensor& x) { return encode(x).mean; }
  // Turns (N, z, d, h, w) into (N, C, f d, f h, f w).
  at::Tensor decode(const at::Tensor& z);

  void set_channels_last(bool channels_last) noexcept {
    channels_last_ = channels_last;
  }  // the memory format in which the network computes

 private:
  [[nodiscard]] at::Tensor arranged(const at::Tensor& x) const;
  bool channels_last_ = false;
  std::shared_ptr<Coder> encoder_, decoder_;
  std::shared_ptr<Convolution> quant_conv_mu_, quant_conv_log_sigma_, post_quant_conv_;
};

// Judges whether patches of a volume look real. The network consists of convolutions with kernel 4, instance norms and leaky
// ReLUs of slope 0.2.
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

// Initialises a discriminator as MONAI does: weights are normal with deviation 0.02, biases are 0.
void initialise_as_gan(torch::nn::Module& module, at::Generator& generator);

// Both networks in one module. The children of both networks are direct children of this module, each under MONAI's name
// ("encoder", "decoder", "quant_conv_mu", ...; "initial_conv", "0", "1", ..., "final_conv"), so that a snapshot's file of one
// network is a state dict of MONAI.
class VolumeGan : public torch::nn::Module {
 public:
  // The weights depend only on `seed`. If recipe.adv_weight is 0, there is no discriminator. Throws ConfigError if the sizes do
  // not fit together.
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
