#include "millrace/kernels/device_decoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

#include "millrace/kernels/arguments.h"
#include "millrace/kernels/backward_rules.h"
#include "millrace/kernels/operation_span.h"

namespace millrace::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

const DeviceTable& table_for(const at::Tensor& x) { return *device_table(x.device().type()); }
const void* data_or_null(const at::Tensor& x) { return x.defined() ? x.const_data_ptr() : nullptr; }

struct DeviceRmsFunction : torch::autograd::Function<DeviceRmsFunction> {
  // Without a branch the result is {y}, with a branch {sum, y}.
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const std::optional<at::Tensor>& branch,
                               const at::Tensor& weight, double epsilon, at::ScalarType type) {
    const at::Tensor input = for_kernel(x), scale = for_kernel(weight);
    const at::Tensor added = branch ? for_kernel(*branch) : at::Tensor();
    at::Tensor sum = branch ? at::empty_like(input) : input;
    at::Tensor y = at::empty(input.sizes(), input.options().dtype(type));
    const at::Tensor rates = at::empty({input.numel() / input.size(-1)}, input.options().dtype(at::kFloat));
    table_for(x).rms_rows({.x = input.const_data_ptr(),
                           .branch = data_or_null(added),
                           .sum = branch ? sum.mutable_data_ptr() : nullptr,
                           .y = y.mutable_data_ptr(),
                           .y_gradient = nullptr,
                           .sum_gradient = nullptr,
                           .x_gradient = nullptr,
                           .branch_gradient = nullptr,
                           .weight = scale.const_data_ptr<float>(),
                           .rates = rates.mutable_data_ptr<float>(),
                           .x_type = type_of(input),
                           .y_type = type_of(type),
                           .rows = rates.numel(),
                           .width = input.size(-1),
                           .epsilon = static_cast<float>(epsilon)},
                          x.device().index());
    context->save_for_backward({sum, rates, scale});
    context->saved_data["branch"] = branch.has_value();
    context->saved_data["type"] = static_cast<std::int64_t>(type);
    context->set_materialize_grads(false);
    if (branch) return {sum, y};
    return {y};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    only_first_derivative("a part of a decoder");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &sum = saved[0], &rates = saved[1], &weight = saved[2];
    const bool has_branch = context->saved_data["branch"].toBool();
    const auto type = static_cast<at::ScalarType>(context->saved_data["type"].toInt());
    const auto given = [](const at::Tensor& x) { return x.defined() ? for_kernel(x) : x; };
    const at::Tensor sum_gradient = has_branch ? given(gradients[0]) : at::Tensor(), y_gradient = given(gradients.back());
    if (!y_gradient.defined()) {  // no operation used y, only the sum
      const bool branch_reads = has_branch && sum_gradient.defined();
      return {sum_gradient, branch_reads ? sum_gradient.to(type) : at::Tensor(), {}, {}, {}};
    }
    const at::Tensor x_gradient = at::empty_like(sum);
    at::Tensor branch_gradient;
    if (has_branch && context->needs_input_grad(1))
      branch_gradient = type == sum.scalar_type() ? x_gradient : at::empty(sum.sizes(), sum.options().dtype(type));
    const bool writes_branch = branch_gradient.defined() && type != sum.scalar_type();
    table_for(sum).rms_rows({.x = sum.const_data_ptr(),
                             .branch = nullptr,
                             .sum = nullptr,
                             .y = nullptr,
                             .y_gradient = y_gradient.const_data_ptr(),
                             .sum_gradient = data_or_null(sum_gradient),
                             .x_gradient = x_gradient.mutable_data_ptr(),
                             .branch_gradient = writes_branch ? branch_gradient.mutable_data_ptr() : nullptr,
                             .weight = weight.const_data_ptr<float>(),
                             .rates = rates.mutable_data_ptr<float>(),
                             .x_type = type_of(sum),
                             .y_type = type_of(type),
                             .rows = rates.numel(),
                             .width = sum.size(-1),
                             .epsilon = 0.0F},
                            sum.device().index());
    at::Tensor weight_gradient;
    if (context->needs_input_grad(has_branch ? 2 : 1)) {
      const at::Tensor normed = sum.to(at::kFloat).reshape({-1, weight.size(0)}) * rates.unsqueeze(1);
      weight_gradient = (normed * y_gradient.to(at::kFloat).reshape({-1, weight.size(0)})).sum(0);
    }
    return {x_gradient, branch_gradient, weight_gradient, {}, {}};
  }
};

struct DeviceSwigluFunction : torch::autograd::Function<DeviceSwigluFunction> {
  static at::Tensor run(const at::Tensor& x, const at::Tensor& gradient) {
    std::vector<std::int64_t> sizes = x.sizes().vec();
    if (!gradient.defined()) sizes.back() /= 2;
    at::Tensor out = at::empty(sizes, x.options());
    table_for(x).swiglu({.x = x.const_data_ptr(),
                         .gradient = data_or_null(gradient),
                         .out = out.mutable_data_ptr(),
                         .type = type_of(x),
                         .rows = x.numel() / x.size(-1),
                         .width = x.size(-1) / 2},
                        x.device().index());
    return out;
  }
  static at::Tensor forward(AutogradContext* context, const at::Tensor& packed) {
    const at::Tensor x = for_kernel(packed);
    context->save_for_backward({x});
    return run(x, {});
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    only_first_derivative("a part of a decoder");
    return {run(context->get_saved_variables()[0], for_kernel(gradients[0]))};
  }
};

struct DeviceTurnFunction : torch::autograd::Function<DeviceTurnFunction> {
  // Rotates x (B, T, H, w) by the angles of its rows and writes the result to `out`, which may be x.
  static void turn(const at::Tensor& x, const at::Tensor& out, const at::Tensor& cos, const at::Tensor& sin, bool back) {
    table_for(x).turn({.x = x.const_data_ptr(),
                       .out = out.mutable_data_ptr(),
                       .cos = cos.const_data_ptr<float>(),
                       .sin = sin.const_data_ptr<float>(),
                       .type = type_of(x),
                       .batch = x.size(0),
                       .rows = x.size(1),
                       .heads = x.size(2),
                       .half = x.size(3) / 2,
                       .batch_stride = x.stride(0),
                       .row_stride = x.stride(1),
                       .out_batch_stride = out.stride(0),
                       .out_row_stride = out.stride(1),
                       .back = back},
                      x.device().index());
  }
  static variable_list parts_of(const at::Tensor& packed, std::int64_t parts, std::int64_t heads) {
    variable_list all;
    for (const at::Tensor& part : packed.detach().unflatten(2, {parts, heads, packed.size(2) / (parts * heads)}).unbind(2))
      all.push_back(part.detach());
    return all;
  }
  static variable_list forward(AutogradContext* context, const at::Tensor& packed, std::int64_t parts, std::int64_t turned,
                               std::int64_t heads, const at::Tensor& cos, const at::Tensor& sin) {
    const at::Tensor c = for_kernel(cos), s = for_kernel(sin);
    context->save_for_backward({c, s});
    context->saved_data["turned"] = turned;
    const at::Tensor rows = for_kernel(packed);
    if (rows.is_same(packed)) changes_in_place(rows);
    variable_list all = parts_of(rows, parts, heads);
    for (std::int64_t i = 0; i < turned; ++i) turn(all[i], all[i], c, s, /*back=*/false);
    return all;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    only_first_derivative("a part of a decoder");
    const variable_list saved = context->get_saved_variables();
    const std::int64_t turned = context->saved_data["turned"].toInt(), parts = std::ssize(gradients);
    const at::Tensor& first = gradients.front();
    const at::Tensor packed = at::empty({first.size(0), first.size(1), parts * first.size(2) * first.size(3)}, first.options());
    const variable_list out = parts_of(packed, parts, first.size(2));
    for (std::int64_t i = 0; i < parts; ++i) {
      if (i < turned) {
        turn(for_kernel(gradients[i]), out[i], saved[0], saved[1], /*back=*/true);
      } else {
        out[i].copy_(gradients[i]);
      }
    }
    return {packed, {}, {}, {}, {}, {}};
  }
};

}  // namespace

bool has_device_rows(const at::Tensor& x) { return has_device_kernel(x) && x.dim() > 0 && x.numel() > 0 && x.size(-1) % 8 == 0; }

std::pair<at::Tensor, at::Tensor> device_rms_rows(const at::Tensor& x, const at::Tensor& branch, const at::Tensor& weight,
                                                  double epsilon, at::ScalarType type) {
  const OperationSpan span("millrace::rms_rows", x, weight);
  const variable_list out = DeviceRmsFunction::apply(x, optional(branch), weight, epsilon, type);
  return {branch.defined() ? out[0] : x, out.back()};
}

at::Tensor device_swiglu(const at::Tensor& packed) {
  const OperationSpan span("millrace::swiglu", packed);
  return DeviceSwigluFunction::apply(packed);
}

bool has_device_turn(const at::Tensor& packed, std::int64_t parts, std::int64_t heads, const at::Tensor& cos) {
  if (!has_device_kernel(packed) || packed.dim() != 3 || packed.numel() == 0 || packed.size(2) % (8 * parts * heads) != 0)
    return false;
  return cos.device() == packed.device() && cos.scalar_type() == at::kFloat && cos.dim() == 2 && cos.size(0) == packed.size(1) &&
         cos.size(1) == packed.size(2) / (2 * parts * heads);
}

std::vector<at::Tensor> device_turn_parts(const at::Tensor& packed, std::int64_t parts, std::int64_t turned, std::int64_t heads,
                                          const at::Tensor& cos, const at::Tensor& sin) {
  const OperationSpan span("millrace::rotary", packed);
  return DeviceTurnFunction::apply(packed, parts, turned, heads, cos, sin);
}

}  // namespace millrace::kernels
