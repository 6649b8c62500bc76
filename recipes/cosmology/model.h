// A 3-D U-Net with two levels: circular convolutions, batch norms, skip connections. Parameters have the names that hugh (the
// program that this recipe follows) gives them, so that safetensors can be moved in both directions.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "millrace/nn/batch_norm.h"
#include "millrace/nn/volume.h"
#include "recipes/cosmology/config.h"

namespace millrace::recipes::cosmology {

struct ModelConfig {
  std::int64_t filters = 16;
  Activation act = Activation::smooth_leaky;
};

// The number of parameters: 2052 f^2 + 195 f + 2 for f filters.
[[nodiscard]] std::int64_t parameter_count(std::int64_t filters);
[[nodiscard]] double parameters_of(double filters);  // the number of parameters as a double, for sizes that no integer or memory
                                                     // can hold

// A weight and a bias with torch's names but without torch's initialisation. The weight of a transposed convolution is (in, out,
// 3, 3, 3).
struct Convolution : torch::nn::Module {
  Convolution(std::int64_t first, std::int64_t second, std::int64_t out);
  at::Tensor weight, bias;
};

// A convolution, a batch norm and an activation.
class Block : public torch::nn::Module {
 public:
  Block(std::int64_t in, std::int64_t out, std::int64_t stride, Activation act, const nn::Fused& fused);
  // If `skip` is defined, its channels are added behind those of x.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& skip = {});

 private:
  std::int64_t stride_;
  Activation act_;
  nn::Fused fused_;
  std::shared_ptr<Convolution> conv1_;
  nn::BatchNorm bn1_;
};

// A sequence of blocks with the names "0", "1". Each of these is also a memory block (memory/block.h), with the name "<name>.0"
// or "<name>.1".
class Layer : public torch::nn::Module {
 public:
  Layer(std::string name, std::int64_t in, std::int64_t out, int blocks, std::int64_t stride, Activation act,
        const nn::Fused& fused);
  at::Tensor forward(const at::Tensor& x, const at::Tensor& skip = {});

 private:
  std::string name_;
  std::vector<std::shared_ptr<Block>> blocks_;
};

class UNet : public torch::nn::Module {
 public:
  // The weights depend only on `seed`.
  explicit UNet(const ModelConfig& config, std::uint64_t seed = 0, const nn::Fused& fused = {});

  // x is (N, 2, D, H, W), with D, H and W divisible by 4; the result has the same shape. Its memory blocks are layer1.0 to
  // layer7.1, deconv1, deconv2.
  at::Tensor forward(const at::Tensor& x);

  [[nodiscard]] const ModelConfig& config() const noexcept { return config_; }
  void set_channels_last(bool channels_last) noexcept {
    channels_last_ = channels_last;
  }  // the memory format in which forward() computes

 private:
  at::Tensor up(const char* name, const Convolution& deconv, nn::BatchNorm& norm, const at::Tensor& x);
  void initialise(std::uint64_t seed);

  ModelConfig config_;
  nn::Fused fused_;
  bool channels_last_ = false;
  std::shared_ptr<Layer> layer1_, layer2_, layer3_, layer4_, layer5_, layer6_, layer7_;
  std::shared_ptr<Convolution> deconv1_, deconv2_, deconv4_;
  nn::BatchNorm deconv_batchnorm1_, deconv_batchnorm2_;
};

}  // namespace millrace::recipes::cosmology
