// What tower and decoder are made of: weights under their published names, and projections with an adapter beside them.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "millrace/nn/decoder.h"
#include "recipes/image_pairs/config.h"

namespace millrace::recipes::image_pairs {

// On: the decoder's last block computes the position alone that the answer is read from; off: all positions. Tolerance.
inline constexpr nn::Switch kLastPosition{"last_position"};

// How the weights of a network are kept. Their values are the caller's to fill in.
struct Making {
  at::Device device = at::kCPU;
  at::ScalarType base_type = at::kFloat;  // of what is frozen; all else is fp32
  bool frozen = false;                    // tower and decoder
};

// A table, or the weight of a norm without a bias.
struct Weight : torch::nn::Module {
  Weight(at::IntArrayRef shape, const Making& how);
  at::Tensor weight;
};

struct LayerNorm : Weight {
  LayerNorm(std::int64_t width, const Making& how);
  at::Tensor bias;
};

// W x + b with children "lora_A" and "lora_B" where it has an adapter. B begins at 0, so that nothing changes at first.
class Projection : public torch::nn::Module {
 public:
  struct Shape {
    std::int64_t in = 1, out = 1;
    bool bias = false;
    std::int64_t rank = 0;  // of the adapter; 0 = none
  };
  // `memory`: what the weight is kept in; undefined: memory of its own.
  Projection(const Shape& shape, const Making& how, const at::Tensor& memory = {});
  [[nodiscard]] nn::LoraProjection adapted() const;
  [[nodiscard]] bool has_adapter() const noexcept { return lora_a_ != nullptr; }

 private:
  at::Tensor weight_, bias_;
  std::shared_ptr<Weight> lora_a_, lora_b_;
};

// Memory for weights (out, in) of projections of one input, one behind the other: they are multiplied as one where they lie.
std::vector<at::Tensor> side_by_side(const std::vector<std::int64_t>& outs, std::int64_t in, const Making& how);

// How projections are computed.
struct Projecting {
  double scale = 1;    // of an adapter's product
  double dropout = 0;  // of an adapter's input, while training
  nn::Fused fused;
};
// Results side by side, from one input.
at::Tensor project(const at::Tensor& x, std::initializer_list<const Projection*> projections, const Projecting& how,
                   bool training);

// `by` of the gated product of `packed` (nn::lora_swiglu).
at::Tensor project_gated(const at::Tensor& packed, const Projection& by, const Projecting& how, bool training);

// What a norm computes with: frozen weights may be kept in 16 bits.
at::Tensor norm_weight(const at::Tensor& weight);

}  // namespace millrace::recipes::image_pairs
