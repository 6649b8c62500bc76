// The layers of tower and decoder: weights under their published names, and projections that may have an adapter.
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

// On: the decoder's last block computes only the position from which the answer is read. Off: it computes all positions. The
// results agree within tolerance.
inline constexpr nn::Switch kLastPosition{"last_position"};

// The types and the device of a network's weights, whose values the caller fills in.
struct Making {
  at::Device device = at::kCPU;
  at::ScalarType base_type = at::kFloat;  // type of frozen weights; all other weights are fp32
  bool frozen = false;                    // true: the weights of the tower and of the decoder are not trained
};

// A table of embeddings, or the weight of a norm without bias.
struct Weight : torch::nn::Module {
  Weight(at::IntArrayRef shape, const Making& how);
  at::Tensor weight;
};

struct LayerNorm : Weight {
  LayerNorm(std::int64_t width, const Making& how);
  at::Tensor bias;
};

// W x + b. If the projection has an adapter, the children "lora_A" and "lora_B" are the adapter's matrices A and B. B is 0 at
// first, so that the adapter changes nothing.
class Projection : public torch::nn::Module {
 public:
  struct Shape {
    std::int64_t in = 1, out = 1;
    bool bias = false;
    std::int64_t rank = 0;  // rank of the adapter; 0 = no adapter
  };
  // `memory` holds the weight; if it is undefined, the projection allocates its own.
  Projection(const Shape& shape, const Making& how, const at::Tensor& memory = {});
  [[nodiscard]] nn::LoraProjection adapted() const;
  [[nodiscard]] bool has_adapter() const noexcept { return lora_a_ != nullptr; }
  // Moves the weights of these projections, and their biases, into adjacent memory, as side_by_side() does for a new model.
  // Needed after a model was moved to a device, because every parameter then has separate memory.
  static void put_side_by_side(std::initializer_list<Projection*> projections);

 private:
  at::Tensor weight_, bias_;
  std::shared_ptr<Weight> lora_a_, lora_b_;
};

// Memory for the weights (out, in) of several projections of the same input. The weights are adjacent in memory, so that they
// can be multiplied as one matrix.
std::vector<at::Tensor> side_by_side(const std::vector<std::int64_t>& outs, std::int64_t in, const Making& how);

// How projections are computed.
struct Projecting {
  double scale = 1;    // factor of the adapter's product
  double dropout = 0;  // dropout of the adapter's input, in training
  nn::Fused fused;
};
// The results of projections of the same input, concatenated along the last axis.
at::Tensor project(const at::Tensor& x, std::initializer_list<const Projection*> projections, const Projecting& how,
                   bool training);

// Applies the projection `by` to the gated product of `packed` (see nn::lora_swiglu).
at::Tensor project_gated(const at::Tensor& packed, const Projection& by, const Projecting& how, bool training);

// The weight of a norm in the type in which the norm computes, because frozen weights may be kept in 16 bits.
at::Tensor norm_weight(const at::Tensor& weight);

}  // namespace millrace::recipes::image_pairs
