#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "millrace/kernels/arguments.h"
#include "millrace/kernels/backward_rules.h"
#include "millrace/kernels/detail/dropout_layout.h"
#include "millrace/kernels/kernels.h"
#include "millrace/kernels/operation_span.h"
#include "millrace/kernels/parallel.h"

namespace millrace::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Scratch memory for one row's values and keep bits.
float* row_scratch(std::int64_t width) {
  const std::int64_t floats = (width + 15) / 16 * 16;
  return static_cast<float*>(scratch(static_cast<std::size_t>(4 * floats + width / 8 + 128)));
}

detail::NormForward from_row(detail::NormForward args, std::int64_t row) {
  const std::int64_t elements = row * args.width;
  args.residual = moved(args.residual, elements, args.residual_type);
  args.branch = moved(args.branch, elements, args.y_type);
  args.sum = moved(args.sum, elements, args.residual_type);
  args.y = moved(args.y, elements, args.y_type);
  args.statistics += 2 * row;
  return args;
}

detail::NormBackward from_row(detail::NormBackward args, std::int64_t row) {
  const std::int64_t elements = row * args.width;
  args.sum = moved(args.sum, elements, args.residual_type);
  args.y_gradient = moved(args.y_gradient, elements, args.y_type);
  args.sum_gradient = moved(args.sum_gradient, elements, args.residual_type);
  args.residual_gradient = moved(args.residual_gradient, elements, args.residual_type);
  args.branch_gradient = moved(args.branch_gradient, elements, args.y_type);
  args.statistics += 2 * row;
  return args;
}

// Calls launch(args, rows, there) for the rows of each run of the site, in order; `there` is the run's RecordedSite on the
// device, or null.
template <class Args, class Launch>
void over_rows(const Args& whole, const Dropout& site, std::int64_t rows, const Launch& launch) {
  each_run(site, rows * whole.width, [&](const DropoutRun& stretch, DeviceTable::Site there) {
    Args args = from_row(whole, stretch.begin / whole.width);
    args.keep = keep_of(site);
    args.keep.first = stretch.first;
    launch(args, stretch.count / whole.width, there);
  });
}

// True if the device has a norm kernel for rows of x, and the site's elements form whole groups (detail/dropout_map.h).
bool device_norm_fits(const at::Tensor& x, const at::Tensor& weight, const Dropout& site) {
  if (!has_device_kernel(x) || x.dim() == 0 || x.numel() == 0 || !norm_width_fits(x.size(-1))) return false;
  if (weight.device() != x.device() || weight.dim() != 1 || weight.size(0) != x.size(-1)) return false;
  if (site.p <= 0.0) return true;
  return std::ranges::all_of(dropout_runs(site, x.numel()), [&](const DropoutRun& stretch) {
    return stretch.first % kDropoutGroup == 0 && stretch.begin % x.size(-1) == 0 && stretch.count % x.size(-1) == 0;
  });
}

struct NormFunction : torch::autograd::Function<NormFunction> {
  // Without a branch the result is {y}, with a branch {sum, y}.
  static variable_list forward(AutogradContext* context, const at::Tensor& residual, const std::optional<at::Tensor>& branch,
                               const at::Tensor& weight, const at::Tensor& bias, double epsilon, at::ScalarType y_type,
                               const Dropout& site) {
    const at::Tensor input = for_kernel(residual);
    const at::Tensor dropped = branch ? for_kernel(*branch) : at::Tensor();
    const at::Tensor scale = for_kernel(weight.to(at::kFloat));
    const at::Tensor shift = for_kernel(bias.to(at::kFloat));
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
    if (!input.is_cpu()) {
      over_rows(args, site, rows, [&](const detail::NormForward& some, std::int64_t count, DeviceTable::Site there) {
        device_table(input.device().type())->norm_forward(some, count, there, input.device().index());
      });
    } else {
      forward_on_cpu(args, site, rows);
    }
    context->save_for_backward({sum, statistics, scale});
    remember(context, site);
    context->saved_data["branch"] = branch.has_value();
    context->saved_data["y_type"] = static_cast<std::int64_t>(y_type);
    context->saved_data["weight_type"] = static_cast<std::int64_t>(weight.scalar_type());
    context->set_materialize_grads(false);
    if (branch) return {sum, y};
    return {y};
  }

  static void forward_on_cpu(const detail::NormForward& args, const Dropout& site, std::int64_t rows) {
    const std::int64_t width = args.width;
    const detail::Table& table = detail::table();
    const DropoutUnits parts(site, rows, width);
    parallel(rows, [&](std::int64_t begin, std::int64_t end) {
      parts.each(begin, end, [&](const detail::Keep& keep, std::int64_t first, std::int64_t last) {
        detail::NormForward some = args;
        some.keep = keep;
        table.norm_forward(some, first, last, row_scratch(width));
      });
    });
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    only_first_derivative("a layer norm");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& sum = saved[0];
    const bool has_branch = context->saved_data["branch"].toBool();
    const auto y_type = static_cast<at::ScalarType>(context->saved_data["y_type"].toInt());
    const auto weight_type = static_cast<at::ScalarType>(context->saved_data["weight_type"].toInt());
    const auto given = [](const at::Tensor& x) { return x.defined() ? for_kernel(x) : x; };
    const at::Tensor sum_gradient = has_branch ? given(gradients[0]) : at::Tensor();
    const at::Tensor y_gradient = given(gradients.back());
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
    const Dropout site = remembered(context);
    const at::Tensor partial =
        sum.is_cpu() ? backward_on_cpu(args, site, sum) : backward_on_device(args, y_gradient, y_type, site, sum);
    const at::Tensor totals = partial.sum(1).to(weight_type);
    return {residual_gradient, branch_gradient, totals[0], totals[1], {}, {}, {}, {}};
  }

  // This function and backward_on_cpu() return (2, parts, width): summands of the gradients of weight and bias.
  static at::Tensor backward_on_device(detail::NormBackward args, const at::Tensor& y_gradient, at::ScalarType y_type,
                                       const Dropout& site, const at::Tensor& sum) {
    const std::int64_t at_once = args.width <= 512 ? 528 : 396;  // as many blocks as an H100 runs at the same time
    at::Tensor zeros;
    if (!y_gradient.defined()) {
      zeros = at::zeros(sum.sizes(), sum.options().dtype(y_type));
      args.y_gradient = zeros.const_data_ptr();
    }
    const std::int64_t rows = sum.numel() / args.width;
    const auto runs = static_cast<std::int64_t>(dropout_runs(site, sum.numel()).size());
    const std::int64_t blocks = std::min(at_once, (rows + 3) / 4);
    const at::Tensor partial = at::empty({runs, 2, blocks, args.width}, sum.options().dtype(at::kFloat));
    auto* parts = partial.mutable_data_ptr<float>();
    over_rows(args, site, rows, [&](const detail::NormBackward& some, std::int64_t count, DeviceTable::Site there) {
      device_table(sum.device().type())->norm_backward(some, count, blocks, there, parts, sum.device().index());
      parts += 2 * blocks * args.width;
    });
    return runs == 1 ? partial[0] : partial.transpose(0, 1).flatten(1, 2);
  }

  static at::Tensor backward_on_cpu(const detail::NormBackward& args, const Dropout& site, const at::Tensor& sum) {
    const std::int64_t width = args.width;
    const RowChunks chunks(sum.numel() / width);
    at::Tensor partial = at::zeros({2, chunks.count, width}, sum.options().dtype(at::kFloat));
    auto* partial_data = partial.mutable_data_ptr<float>();
    const detail::Table& table = detail::table();
    const DropoutUnits parts(site, chunks.rows, width);
    parallel(chunks, [&](std::int64_t chunk, std::int64_t begin, std::int64_t end) {
      parts.each(begin, end, [&](const detail::Keep& keep, std::int64_t first, std::int64_t last) {
        detail::NormBackward some = args;
        some.keep = keep;
        table.norm_backward(some, first, last, row_scratch(width), partial_data + chunk * width,
                            partial_data + (chunks.count + chunk) * width);
      });
    });
    return partial;
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
  const bool has_type = type == at::kFloat || type == at::kBFloat16 || (!x.is_cpu() && type == at::kHalf);
  const bool fits = norm_fits(x, weight, bias) || (device_norm_fits(x, weight, {}) && bias.sizes().equals(weight.sizes()));
  if (!has_type || !fits) return plain_norm(x, weight, bias, epsilon).to(type);
  const OperationSpan span("millrace::layer_norm", x, weight);
  return NormFunction::apply(x, std::optional<at::Tensor>(), weight, bias, epsilon, type, Dropout{})[0];
}

std::pair<at::Tensor, at::Tensor> dropout_add_layer_norm(const at::Tensor& x, const at::Tensor& residual,
                                                         const at::Tensor& weight, const at::Tensor& bias, double epsilon,
                                                         const Dropout& site) {
  const bool fits_here = has_kernel(x) && norm_fits(residual, weight, bias);
  const bool fits_there = has_device_kernel(x) && x.device() == residual.device() && bias.sizes().equals(weight.sizes()) &&
                          device_norm_fits(residual, weight, site);
  if (!x.sizes().equals(residual.sizes()) || (!fits_here && !fits_there)) {
    const at::Tensor sum = dropout_add(x, residual, site);
    return {sum, layer_norm(sum, weight, bias, epsilon, x.scalar_type())};
  }
  const OperationSpan span("millrace::dropout_add_layer_norm", x, residual, weight);
  const variable_list out = NormFunction::apply(residual, optional(x), weight, bias, epsilon, x.scalar_type(), site);
  return {out[0], out[1]};
}

}  // namespace millrace::kernels
