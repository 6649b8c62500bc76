// The parts of tower and decoder: weights under their published names, and projections with an optional adapter.
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

// On: the decoder's last block computes only the position from which the answer is read; off: all positions. Tolerance.
inline constexpr nn::Switch kLastPosition{"last_position"};

// The types and place of a network's weights. The caller fills in their values.
struct Making {
  at::Device device = at::kCPU;
  at::ScalarType base_type = at::kFloat;  // type of frozen weights; all others are fp32
  bool frozen = false;                    // tower and decoder
};

// A table, or the weight of a norm without bias.
struct Weight : torch::nn::Module {
  Weight(at::IntArrayRef shape, const Making& how);
  at::Tensor weight;
};

struct LayerNorm : Weight {
  LayerNorm(std::int64_t width, const Making& how);
  at::Tensor bias;
};

// W x + b with children "lora_A" and "lora_B" if it has an adapter. B starts at 0, so that the adapter changes nothing at first.
class Projection : public torch::nn::Module {
 public:
  struct Shape {
    std::int64_t in = 1, out = 1;
    bool bias = false;
    std::int64_t rank = 0;  // of the adapter; 0 = no adapter
  };
  // `memory` holds the weight; undefined: the projection allocates its own.
  Projection(const Shape& shape, const Making& how, const at::Tensor& memory = {});
  [[nodiscard]] nn::LoraProjection adapted() const;
  [[nodiscard]] bool has_adapter() const noexcept { return lora_a_ != nullptr; }

 private:
  at::Tensor weight_, bias_;
  std::shared_ptr<Weight> lora_a_, lora_b_;
};

// Memory for weights (out, in) of projections with one input, one behind the other: they are multiplied as one in place.
std::vector<at::Tensor> side_by_side(const std::vector<std::int64_t>& outs, std::int64_t in, const Making& how);

// The settings for computing projections.
struct Projecting {
  double scale = 1;    // factor of an adapter's product
  double dropout = 0;  // of an adapter's input, in training
  nn::Fused fused;
};
// The projections of one input, side by side.
at::Tensor project(const at::Tensor& x, std::initializer_list<const Projection*> projections, const Projecting& how,
                   bool training);

// Projection `by` of the gated product of `packed` (nn::lora_swiglu).
at::Tensor project_gated(const at::Tensor& packed, const Projection& by, const Projecting& how, bool training);

// A norm's weight in the type of its computation: frozen weights may be kept in 16 bits.
at::Tensor norm_weight(const at::Tensor& weight);

}  // namespace millrace::recipes::image_pairs
