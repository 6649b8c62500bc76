#include "millrace/nn/detail/joined_lora.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>

#include "millrace/kernels/device_decoder.h"

namespace millrace::nn::detail {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor rows_of(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

// Adds a b to `sum`, which is undefined before the first product.
void add_product(at::Tensor& sum, const at::Tensor& a, const at::Tensor& b) {
  if (sum.defined()) {
    sum.addmm_(a, b);
  } else {
    sum = at::mm(a, b);
  }
}

struct JoinedLora : torch::autograd::Function<JoinedLora> {
  // `as` and `bs`: the adapters' halves, none or as many as weights.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const std::optional<at::Tensor>& dropped,
                            at::TensorList weights, at::TensorList as, at::TensorList bs, double scale) {
    const at::Tensor from = rows_of(x), narrow_from = as.empty() ? at::Tensor() : rows_of(*dropped);
    std::int64_t width = 0;
    for (const at::Tensor& weight : weights) width += weight.size(0);
    at::Tensor out = at::empty({from.size(0), width}, from.options());
    variable_list saved = {narrow_from};
    std::int64_t first = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      at::Tensor part = out.narrow(1, first, weights[i].size(0));
      at::mm_out(part, from, weights[i].t());
      first += weights[i].size(0);
      saved.push_back(weights[i]);
      if (as.empty()) continue;
      const at::Tensor narrow = at::mm(narrow_from, as[i].t());
      part.addmm_(narrow, bs[i].t(), 1, scale);
      saved.insert(saved.end(), {as[i], bs[i], narrow});
    }
    context->save_for_backward(saved);
    context->saved_data["scale"] = scale;
    context->saved_data["adapts"] = !as.empty();
    context->saved_data["sizes"] = x.sizes().vec();
    std::vector<std::int64_t> sizes = x.sizes().vec();
    sizes.back() = width;
    return out.view(sizes);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const bool adapts = context->saved_data["adapts"].toBool();
    const double scale = context->saved_data["scale"].toDouble();
    const at::Tensor all = rows_of(gradients[0]);
    const std::size_t of_each = adapts ? 4 : 1, count = (saved.size() - 1) / of_each;
    at::Tensor of_x, of_dropped;
    variable_list of_as, of_bs;
    std::int64_t first = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const at::Tensor& weight = saved[1 + i * of_each];
      const at::Tensor part = all.narrow(1, first, weight.size(0));
      first += weight.size(0);
      if (context->needs_input_grad(0)) add_product(of_x, part, weight);
      if (!adapts) continue;
      const at::Tensor &a = saved[2 + i * of_each], &b = saved[3 + i * of_each], &narrow = saved[4 + i * of_each];
      const at::Tensor of_narrow = at::mm(part, b).mul_(scale);
      if (context->needs_input_grad(1)) add_product(of_dropped, of_narrow, a);
      of_as.push_back(at::mm(of_narrow.t(), saved[0]));
      of_bs.push_back(at::mm(part.t(), narrow).mul_(scale));
    }
    const std::vector<std::int64_t> sizes = context->saved_data["sizes"].toIntVector();
    const auto shaped = [&](const at::Tensor& one) { return one.defined() ? one.view(sizes) : one; };
    variable_list results = {shaped(of_x), shaped(of_dropped)};
    results.resize(2 + count);  // weights
    results.insert(results.end(), of_as.begin(), of_as.end());
    results.insert(results.end(), of_bs.begin(), of_bs.end());
    results.emplace_back();
    return results;
  }
};

}  // namespace

bool joins_lora(const at::Tensor& x, const std::vector<LoraProjection>& projections) {
  if (projections.size() < 2 || !kernels::has_device_rows(x)) return false;
  const bool adapts = projections.front().lora_a.defined();
  return std::ranges::all_of(projections, [&](const LoraProjection& one) {
    return !one.bias.defined() && !one.weight.requires_grad() && one.weight.device() == x.device() &&
           one.lora_a.defined() == adapts;
  });
}

at::Tensor joined_lora(const at::Tensor& x, const at::Tensor& dropped, const std::vector<LoraProjection>& projections,
                       double scale) {
  variable_list weights, as, bs;
  for (const LoraProjection& one : projections) {
    weights.push_back(one.weight.to(x.scalar_type()));
    if (!one.lora_a.defined()) continue;
    as.push_back(one.lora_a.to(x.scalar_type()));
    bs.push_back(one.lora_b.to(x.scalar_type()));
  }
  const std::optional<at::Tensor> narrow_from = as.empty() ? std::nullopt : std::optional(dropped);
  return JoinedLora::apply(x, narrow_from, at::TensorList(weights), at::TensorList(as), at::TensorList(bs), scale);
}

}  // namespace millrace::nn::detail
