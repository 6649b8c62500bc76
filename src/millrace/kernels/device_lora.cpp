#include "millrace/kernels/device_lora.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "millrace/base/error.h"
#include "millrace/kernels/arguments.h"
#include "millrace/kernels/backward_rules.h"
#include "millrace/kernels/detail/dropout_layout.h"
#include "millrace/kernels/operation_span.h"

namespace millrace::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Returns the parts in `type`, one after the other along dimension 0.
at::Tensor gathered(at::TensorList parts, at::ScalarType type) {
  if (const at::Tensor block = block_of(parts); block.defined()) return block.to(type);
  std::vector<std::int64_t> sizes = parts.front().sizes().vec();
  sizes[0] = 0;
  for (const at::Tensor& part : parts) sizes[0] += part.size(0);
  at::Tensor all = at::empty(sizes, parts.front().options().dtype(type).requires_grad(false));
  std::int64_t row = 0;
  for (const at::Tensor& part : parts) {
    all.narrow(0, row, part.size(0)).copy_(part.detach());
    row += part.size(0);
  }
  return all;
}

// What the adapted projections have in common. A projection of rank 0 has no adapter.
struct FrozenPart {
  at::Tensor weight, bias;  // of all projections; `bias` may be undefined
  std::vector<std::int64_t> outs, ranks;
  double scale = 1;
  Dropout site;
};

// Calls body for each projection that has an adapter. The arguments are the projection's first row and number of rows, the
// adapter's first column and number of columns, and the index of the adapter's A in the list of adapters.
template <class Body>
void each_adapter(const std::vector<std::int64_t>& outs, const std::vector<std::int64_t>& ranks, const Body& body) {
  std::int64_t row = 0, column = 0;
  std::size_t next = 0;
  for (std::size_t i = 0; i < outs.size(); ++i) {
    if (ranks[i] > 0) {
      body(row, outs[i], column, ranks[i], next);
      next += 2;
    }
    row += outs[i];
    column += ranks[i];
  }
}

// Returns one matrix for all adapters: it holds scale * B of each adapter, in the rows of the adapter's outputs and the columns
// of the adapter's narrow product. The rest is zero.
at::Tensor spread_out(const FrozenPart& frozen, at::TensorList adapters, at::ScalarType type) {
  std::int64_t columns = 0;
  for (const std::int64_t rank : frozen.ranks) columns += rank;
  at::Tensor all = at::zeros({frozen.weight.size(0), columns}, frozen.weight.options().dtype(type));
  each_adapter(frozen.outs, frozen.ranks,
               [&](std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t rank, std::size_t number) {
                 all.narrow(0, row, rows).narrow(1, column, rank).copy_(adapters[number + 1].detach() * frozen.scale);
               });
  return all;
}

// Returns dropout(x). If `sum` is defined, adds dropout(x) to `sum` in place instead.
at::Tensor device_dropped(const at::Tensor& x, const at::Tensor& sum, const Dropout& site) {
  at::Tensor out = sum.defined() ? sum : at::empty_like(x);
  run_dropout({.x = x.const_data_ptr(),
               .residual = sum.defined() ? sum.const_data_ptr() : nullptr,
               .out = out.mutable_data_ptr(),
               .x_type = type_of(x),
               .out_type = type_of(x),
               .count = x.numel(),
               .keep = {}},
              site, x.device());
  return out;
}

struct DeviceLora : torch::autograd::Function<DeviceLora> {
  // `adapters`: A and B of each projection that has an adapter.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, at::TensorList adapters, const FrozenPart& frozen) {
    const at::Tensor rows = for_kernel(x.reshape({-1, x.size(-1)}));
    at::Tensor y = frozen.bias.defined() ? at::addmm(frozen.bias, rows, frozen.weight.t()) : at::mm(rows, frozen.weight.t());
    variable_list saved{frozen.weight};
    if (!adapters.empty()) {
      std::vector<at::Tensor> firsts;
      for (std::size_t i = 0; i < adapters.size(); i += 2) firsts.push_back(adapters[i]);
      const at::Tensor a = gathered(firsts, x.scalar_type()), b = spread_out(frozen, adapters, x.scalar_type());
      const at::Tensor input = frozen.site.p > 0.0 ? device_dropped(rows, {}, frozen.site) : rows;
      const at::Tensor narrow = at::mm(input, a.t());
      y.addmm_(narrow, b.t());
      saved.insert(saved.end(), {a, b, input, narrow});
    }
    context->save_for_backward(saved);
    remember(context, frozen.site);
    context->saved_data["scale"] = frozen.scale;
    context->saved_data["outs"] = frozen.outs;
    context->saved_data["ranks"] = frozen.ranks;
    context->saved_data["sizes"] = x.sizes().vec();
    std::vector<std::int64_t> sizes = x.sizes().vec();
    sizes.back() = frozen.weight.size(0);
    return y.view(sizes);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    only_first_derivative("a low-rank adapter");
    const variable_list saved = context->get_saved_variables();
    const std::vector<std::int64_t> outs = context->saved_data["outs"].toIntVector(),
                                    ranks = context->saved_data["ranks"].toIntVector();
    const at::Tensor dy = gradients[0].reshape({-1, gradients[0].size(-1)});
    const at::Tensor& weight = saved[0];
    const auto adapters = 2 * std::count_if(ranks.begin(), ranks.end(), [](std::int64_t rank) { return rank > 0; });
    // The function has two more inputs: x, and the frozen part, which gets no gradient.
    variable_list result(static_cast<std::size_t>(adapters) + 2);
    at::Tensor dx = context->needs_input_grad(0) ? at::mm(dy, weight) : at::Tensor();
    if (adapters > 0) {
      const at::Tensor &a = saved[1], &b = saved[2], &input = saved[3], &narrow = saved[4];
      const double scale = context->saved_data["scale"].toDouble();
      const at::Tensor dnarrow = at::mm(dy, b);
      const at::Tensor of_a = at::mm(dnarrow.t(), input), of_b = at::mm(dy.t(), narrow);
      each_adapter(outs, ranks, [&](std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t rank, std::size_t i) {
        result[i + 1] = of_a.narrow(0, column, rank).to(at::kFloat);
        result[i + 2] = of_b.narrow(0, row, rows).narrow(1, column, rank).to(at::kFloat) * scale;
      });
      if (dx.defined()) add_through_adapters(dx, dnarrow, a, remembered(context));
    }
    if (dx.defined()) result[0] = dx.view(context->saved_data["sizes"].toIntVector());
    return result;
  }

 private:
  // dx += dropout(dnarrow A).
  static void add_through_adapters(at::Tensor& dx, const at::Tensor& dnarrow, const at::Tensor& a, const Dropout& site) {
    if (site.p > 0.0) {
      (void)device_dropped(at::mm(dnarrow, a), dx, site);
    } else {
      dx.addmm_(dnarrow, a);
    }
  }
};

}  // namespace

bool has_device_lora(const at::Tensor& x, const std::vector<LoraWeights>& projections) {
  if (!has_device_kernel(x) || x.dim() == 0 || x.numel() == 0 || projections.empty()) return false;
  return std::ranges::all_of(projections, [&](const LoraWeights& one) {
    const bool is_frozen = !one.weight.requires_grad() && !(one.bias.defined() && one.bias.requires_grad());
    return is_frozen && one.weight.device() == x.device() && one.weight.dim() == 2 && one.weight.size(1) == x.size(-1) &&
           one.bias.defined() == projections.front().bias.defined() && one.a.defined() == one.b.defined();
  });
}

at::Tensor device_lora_linear(const at::Tensor& x, const std::vector<LoraWeights>& projections, double scale,
                              const Dropout& site) {
  MR_CHECK(has_device_lora(x, projections),
           "device_lora_linear takes rows on a device, and frozen projections as wide as the rows");
  const OperationSpan span("millrace::lora_linear", x, projections.front().weight);
  std::vector<at::Tensor> weights, biases, adapters;
  FrozenPart frozen{.scale = scale, .site = site};
  for (const LoraWeights& one : projections) {
    weights.push_back(one.weight);
    if (one.bias.defined()) biases.push_back(one.bias);
    if (one.a.defined()) adapters.insert(adapters.end(), {one.a, one.b});
    frozen.outs.push_back(one.weight.size(0));
    frozen.ranks.push_back(one.a.defined() ? one.a.size(0) : 0);
  }
  frozen.weight = gathered(weights, x.scalar_type());
  if (!biases.empty()) frozen.bias = gathered(biases, x.scalar_type());
  return DeviceLora::apply(x, at::TensorList(adapters), frozen);
}

}  // namespace millrace::kernels
