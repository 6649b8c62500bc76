// The parts of the two networks, under the names that MONAI's AutoencoderKL and PatchDiscriminator give them.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "millrace/nn/residual.h"
#include "recipes/autoencoder_3d/config.h"

namespace millrace::recipes::autoencoder_3d {

struct Block : torch::nn::Module {
  virtual nn::Biased forward(const nn::Biased& x) = 0;
};

// A convolution whose weight (and bias, if there is one) belongs to a child named "conv".
class Convolution : public Block {
 public:
  struct Shape {
    std::int64_t in = 1, out = 1, kernel = 3, stride = 1, padding = 1;
    bool bias = true;
  };
  explicit Convolution(const Shape& shape, const nn::Fused& fused = {});
  at::Tensor forward(const at::Tensor& x);
  nn::Biased forward(const nn::Biased& x) override;  // does not add the bias if nn::leaves_out_biases() is true
  [[nodiscard]] const at::Tensor& weight() const noexcept { return weights_->weight; }
  [[nodiscard]] const at::Tensor& bias() const noexcept { return weights_->bias; }  // undefined if there is no bias

 private:
  struct Weights : torch::nn::Module {
    explicit Weights(const Shape& shape);
    at::Tensor weight, bias;
  };
  [[nodiscard]] bool is_of_voxels() const noexcept;
  Shape shape_;
  nn::Fused fused_;
  std::shared_ptr<Weights> weights_;
};
[[nodiscard]] double parameters_of(const Convolution::Shape& shape);

enum class StageKind : std::uint8_t { convolution, residual, attention, down, up, norm };

// An entry of the list "blocks" of an encoder or a decoder.
struct Stage {
  StageKind kind = StageKind::convolution;
  std::int64_t in = 1, out = 1;
};
[[nodiscard]] std::vector<Stage> encoder_stages(const RecipeConfig& config);
[[nodiscard]] std::vector<Stage> decoder_stages(const RecipeConfig& config);
[[nodiscard]] double parameters_of(const std::vector<Stage>& stages);

struct StageOptions {
  std::int64_t groups = 32;  // number of groups of a group norm
  double eps = 1e-6;
  nn::Fused fused;
};

// A sequence of stages, as children "blocks.0", "blocks.1", ... Each stage except norms and plain convolutions is a memory block
// (memory/block.h) with the name "<name>.<number>".
class Coder : public torch::nn::Module {
 public:
  Coder(std::string name, const std::vector<Stage>& stages, const StageOptions& options);
  at::Tensor forward(const at::Tensor& x);

 private:
  std::string name_;
  std::vector<Stage> stages_;
  std::vector<std::shared_ptr<Block>> blocks_;
};

// Initialises as torch does: convolutions and linear layers uniformly within 1 / sqrt(fan in), norms with weight one and bias
// zero.
void initialise_as_torch(torch::nn::Module& module, at::Generator& generator);

// Attention with one head and without a mask: softmax(q k^T / sqrt(C)) v for q, k, v (B, T, C). Throws DeviceError if T exceeds
// kMostMappedTokens and LibTorch would hold the T x T products in memory.
inline constexpr std::int64_t kMostMappedTokens = 4096;
[[nodiscard]] at::Tensor self_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

}  // namespace millrace::recipes::autoencoder_3d
