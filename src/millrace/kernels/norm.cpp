#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "millrace/kernels/arguments.h"
#include "millrace/kernels/detail/dropout_layout.h"
#include "millrace/kernels/kernels.h"
#include "millrace/kernels/operation_span.h"
#include "millrace/kernels/parallel.h"

namespace millrace::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Scratch for one row: its values and its keep bits.
float* row_scratch(std::int64_t width) {
  const std::int64_t floats = (width + 15) / 16 * 16;
  return static_cast<float*>(scratch(static_cast<std::size_t>(4 * floats + width / 8 + 128)));
}

struct NormFunction : torch::autograd::Function<NormFunction> {
  // Without a branch the result is {y}, with a branch {sum, y}.
  static variable_list forward(AutogradContext* context, const at::Tensor& residual, const std::optional<at::Tensor>& branch,
                               const at::Tensor& weight, const at::Tensor& bias, double epsilon, at::ScalarType y_type,
                               const Dropout& site) {
    const at::Tensor input = residual.contiguous();
    const at::Tensor dropped = branch ? branch->contiguous() : at::Tensor();
    const at::Tensor scale = weight.to(at::kFloat).contiguous();
    const at::Tensor shift = bias.to(at::kFloat).contiguous();
    const std::int64_t width = input.size(-1);
    const std::int64_t rows = input.numel() / width;
    at::Tensor sum = branch ? at::empty_like(input) : input;
    at::Tensor y = at::empty(input.sizes(), input.options().dtype(y_type));
    at::Tensor statistics = at::empty({rows, 2}, input.options().dtype(at::kFloat));
    detail::NormForward args{.residual = input.const_data_ptr(),
                             .branch = branch ? dropped.const_data_ptr() : nullptr,
                             .sum = branch ? sum.mutable_data_ptr() : nullptr,
                             .y = y.mutable_data_ptr(),
                             .weight = scale.const_data_ptr<float>(),
                             .bias = shift.const_data_ptr<float>(),
                             .statistics = statistics.mutable_data_ptr<float>(),
                             .residual_type = type_of(input),
                             .y_type = type_of(y_type),
                             .width = width,
                             .epsilon = static_cast<float>(epsilon),
                             .keep = {}};
    const detail::Table& table = detail::table();
    const DropoutUnits parts(site, rows, width);
    parallel(rows, [&](std::int64_t begin, std::int64_t end) {
      parts.each(begin, end, [&, args](const detail::Keep& keep, std::int64_t first, std::int64_t last) mutable {
        args.keep = keep;
        table.norm_forward(args, first, last, row_scratch(width));
      });
    });
    context->save_for_backward({sum, statistics, scale});
    remember(context, site);
    context->saved_data["branch"] = branch.has_value();
    context->saved_data["y_type"] = static_cast<std::int64_t>(y_type);
    context->saved_data["weight_type"] = static_cast<std::int64_t>(weight.scalar_type());
    context->set_materialize_grads(false);
    if (branch) return {sum, y};
    return {y};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& sum = saved[0];
    const bool has_branch = context->saved_data["branch"].toBool();
    const auto y_type = static_cast<at::ScalarType>(context->saved_data["y_type"].toInt());
    const auto weight_type = static_cast<at::ScalarType>(context->saved_data["weight_type"].toInt());
    const auto contiguous = [](const at::Tensor& x) { return x.defined() ? x.contiguous() : x; };
    const at::Tensor sum_gradient = has_branch ? contiguous(gradients[0]) : at::Tensor();
    const at::Tensor y_gradient = contiguous(gradients.back());
    const std::int64_t width = sum.size(-1);
    at::Tensor residual_gradient = at::empty_like(sum);
    at::Tensor branch_gradient;
    if (has_branch && context->needs_input_grad(1)) branch_gradient = at::empty(sum.sizes(), sum.options().dtype(y_type));
    detail::NormBackward args{.sum = sum.const_data_ptr(),
                              .y_gradient = y_gradient.defined() ? y_gradient.const_data_ptr() : nullptr,
                              .sum_gradient = sum_gradient.defined() ? sum_gradient.const_data_ptr() : nullptr,
                              .residual_gradient = residual_gradient.mutable_data_ptr(),
                              .branch_gradient = branch_gradient.defined() ? branch_gradient.mutable_data_ptr() : nullptr,
                              .statistics = saved[1].const_data_ptr<float>(),
                              .weight = saved[2].const_data_ptr<float>(),
                              .residual_type = type_of(sum),
                              .y_type = type_of(y_type),
                              .width = width,
                              .keep = {}};
    const RowChunks chunks(sum.numel() / width);
    at::Tensor partial = at::zeros({2, chunks.count, width}, sum.options().dtype(at::kFloat));
    auto* partial_data = partial.mutable_data_ptr<float>();
    const detail::Table& table = detail::table();
    const DropoutUnits parts(remembered(context), chunks.rows, width);
    parallel(chunks, [&](std::int64_t chunk, std::int64_t begin, std::int64_t end) {
      parts.each(begin, end, [&, args](const detail::Keep& keep, std::int64_t first, std::int64_t last) mutable {
        args.keep = keep;
        table.norm_backward(args, first, last, row_scratch(width), partial_data + chunk * width,
                            partial_data + (chunks.count + chunk) * width);
      });
    });
    const at::Tensor totals = partial.sum(1).to(weight_type);
    return {residual_gradient, branch_gradient, totals[0], totals[1], {}, {}, {}, {}};
  }
};

bool norm_fits(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return has_kernel(x) && has_kernel(weight) && has_kernel(bias) && x.numel() > 0 && x.dim() > 0 && weight.dim() == 1 &&
         weight.size(0) == x.size(-1) && bias.sizes().equals(weight.sizes());
}

at::Tensor plain_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon) {
  return at::layer_norm(x, weight.sizes(), weight.to(x.scalar_type()), bias.to(x.scalar_type()), epsilon);
}

}  // namespace

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon,
                      std::optional<at::ScalarType> out) {
  const at::ScalarType type = out.value_or(x.scalar_type());
  const bool has_type = type == at::kFloat || type == at::kBFloat16;
  if (!has_type || !norm_fits(x, weight, bias)) return plain_norm(x, weight, bias, epsilon).to(type);
  const OperationSpan span("millrace::layer_norm", x, weight);
  return NormFunction::apply(x, std::optional<at::Tensor>(), weight, bias, epsilon, type, Dropout{})[0];
}

std::pair<at::Tensor, at::Tensor> dropout_add_layer_norm(const at::Tensor& x, const at::Tensor& residual,
                                                         const at::Tensor& weight, const at::Tensor& bias, double epsilon,
                                                         const Dropout& site) {
  if (!has_kernel(x) || !x.sizes().equals(residual.sizes()) || !norm_fits(residual, weight, bias)) {
    const at::Tensor sum = dropout_add(x, residual, site);
    return {sum, layer_norm(sum, weight, bias, epsilon, x.scalar_type())};
  }
  const OperationSpan span("millrace::dropout_add_layer_norm", x, residual, weight);
  const variable_list out = NormFunction::apply(residual, optional(x), weight, bias, epsilon, x.scalar_type(), site);
  return {out[0], out[1]};
}

}  // namespace millrace::kernels
