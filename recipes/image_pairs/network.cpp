#include "recipes/image_pairs/network.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <utility>

namespace millrace::recipes::image_pairs {
namespace {

at::Tensor room(at::IntArrayRef shape, const Making& how) {
  return at::empty(shape, at::TensorOptions().dtype(how.frozen ? how.base_type : at::kFloat).device(how.device));
}

// Moves the parameters into one block of memory, unless they are in one block already.
void move_side_by_side(const std::vector<at::Tensor>& parameters) {
  if (parameters.back().is_alias_of(parameters.front())) return;
  const at::NoGradGuard no_grad;
  const at::Tensor all = at::cat(parameters);
  std::int64_t row = 0;
  for (const at::Tensor& parameter : parameters) {
    parameter.set_data(all.narrow(0, row, parameter.size(0)).variable_data());
    row += parameter.size(0);
  }
}

}  // namespace

Weight::Weight(at::IntArrayRef shape, const Making& how) { weight = register_parameter("weight", room(shape, how), !how.frozen); }

LayerNorm::LayerNorm(std::int64_t width, const Making& how) : Weight({width}, how) {
  bias = register_parameter("bias", room({width}, how), !how.frozen);
}

Projection::Projection(const Shape& shape, const Making& how, const at::Tensor& memory) {
  weight_ = register_parameter("weight", memory.defined() ? memory : room({shape.out, shape.in}, how), !how.frozen);
  if (shape.bias) bias_ = register_parameter("bias", room({shape.out}, how), !how.frozen);
  if (shape.rank == 0) return;
  const Making trained{.device = how.device};
  lora_a_ = register_module("lora_A", std::make_shared<Weight>(std::vector{shape.rank, shape.in}, trained));
  lora_b_ = register_module("lora_B", std::make_shared<Weight>(std::vector{shape.out, shape.rank}, trained));
}

nn::LoraProjection Projection::adapted() const {
  if (!lora_a_) return {.weight = weight_, .bias = bias_};
  return {.weight = weight_, .bias = bias_, .lora_a = lora_a_->weight, .lora_b = lora_b_->weight};
}

void Projection::put_side_by_side(std::initializer_list<Projection*> projections) {
  std::vector<at::Tensor> weights, biases;
  for (const Projection* projection : projections) {
    weights.push_back(projection->weight_);
    if (projection->bias_.defined()) biases.push_back(projection->bias_);
  }
  move_side_by_side(weights);
  if (!biases.empty()) move_side_by_side(biases);
}

std::vector<at::Tensor> side_by_side(const std::vector<std::int64_t>& outs, std::int64_t in, const Making& how) {
  std::int64_t rows = 0;
  for (const std::int64_t out : outs) rows += out;
  const at::Tensor all = room({rows, in}, how);
  std::vector<at::Tensor> parts;
  rows = 0;
  for (const std::int64_t out : outs) {
    // a parameter with storage in `all` that autograd does not treat as a view
    parts.push_back(all.narrow(0, rows, out).variable_data());
    rows += out;
  }
  return parts;
}

at::Tensor project(const at::Tensor& x, std::initializer_list<const Projection*> projections, const Projecting& how,
                   bool training) {
  std::vector<nn::LoraProjection> all;
  bool adapted = false;
  for (const Projection* projection : projections) {
    all.push_back(projection->adapted());
    adapted = adapted || projection->has_adapter();
  }
  return nn::lora_linear(x, all, how.scale, training && adapted ? how.dropout : 0.0, how.fused);
}

at::Tensor project_gated(const at::Tensor& packed, const Projection& by, const Projecting& how, bool training) {
  return nn::lora_swiglu(packed, by.adapted(), how.scale, training && by.has_adapter() ? how.dropout : 0.0, how.fused);
}

at::Tensor norm_weight(const at::Tensor& weight) { return weight.to(at::kFloat); }

}  // namespace millrace::recipes::image_pairs
