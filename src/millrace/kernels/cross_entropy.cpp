#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

#include "millrace/kernels/arguments.h"
#include "millrace/kernels/backward_rules.h"
#include "millrace/kernels/kernels.h"
#include "millrace/kernels/operation_span.h"
#include "millrace/kernels/parallel.h"

namespace millrace::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

detail::CrossEntropy arguments(const at::Tensor& logits, const at::Tensor& target, const at::Tensor& log_sums,
                               std::int64_t ignore_index) {
  return {.logits = logits.const_data_ptr(),
          .targets = target.const_data_ptr<std::int64_t>(),
          .log_sums = log_sums.data_ptr<float>(),
          .gradient = nullptr,
          .upstream = nullptr,
          .type = type_of(logits),
          .classes = logits.size(1),
          .ignore_index = ignore_index};
}

struct CrossEntropyFunction : torch::autograd::Function<CrossEntropyFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& logits_any, const at::Tensor& target_any,
                               std::int64_t ignore_index) {
    const at::Tensor logits = logits_any.contiguous();
    const at::Tensor target = target_any.contiguous();
    const auto fp32 = logits.options().dtype(at::kFloat);
    const at::Tensor log_sums = at::empty({logits.size(0)}, fp32);
    const detail::CrossEntropy args = arguments(logits, target, log_sums, ignore_index);
    context->save_for_backward({logits, target, log_sums});
    context->saved_data["ignore_index"] = ignore_index;
    if (!logits.is_cpu()) {
      const at::Tensor losses = at::empty_like(log_sums);
      device_table(logits.device().type())
          ->cross_entropy_forward(args, logits.size(0), losses.mutable_data_ptr<float>(), logits.device().index());
      at::Tensor counted = target.ne(ignore_index).sum().to(at::kFloat);
      context->mark_non_differentiable({counted});
      return {losses.sum(), counted};
    }
    const RowChunks chunks(logits.size(0));
    std::vector<detail::CrossEntropySum> parts(static_cast<std::size_t>(chunks.count));
    const detail::Table& table = detail::table();
    parallel(chunks, [&](std::int64_t chunk, std::int64_t first, std::int64_t last) {
      parts[static_cast<std::size_t>(chunk)] = table.cross_entropy_forward(args, first, last);
    });
    double loss = 0;
    std::int64_t count = 0;
    for (const detail::CrossEntropySum& part : parts) {
      TORCH_CHECK_INDEX(part.bad_row < 0, "cross_entropy_sum: target ", args.targets[part.bad_row], " of row ", part.bad_row,
                        " is not in [0, ", args.classes, ")");
      loss += part.loss;
      count += part.count;
    }
    at::Tensor counted = at::scalar_tensor(static_cast<double>(count), fp32);
    context->mark_non_differentiable({counted});
    return {at::scalar_tensor(loss, fp32), counted};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    only_first_derivative("a cross-entropy");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor upstream = gradients[0].to(at::kFloat).contiguous();
    at::Tensor gradient = at::empty_like(saved[0]);
    detail::CrossEntropy args = arguments(saved[0], saved[1], saved[2], context->saved_data["ignore_index"].toInt());
    args.gradient = gradient.mutable_data_ptr();
    args.upstream = upstream.const_data_ptr<float>();
    if (!gradient.is_cpu()) {
      device_table(gradient.device().type())->cross_entropy_backward(args, gradient.size(0), gradient.device().index());
      return {gradient, {}, {}};
    }
    const detail::Table& table = detail::table();
    parallel(saved[0].size(0), [&](std::int64_t begin, std::int64_t end) { table.cross_entropy_backward(args, begin, end); });
    return {gradient, {}, {}};
  }
};

}  // namespace

std::pair<at::Tensor, at::Tensor> cross_entropy_sum(const at::Tensor& logits, const at::Tensor& target,
                                                    std::int64_t ignore_index) {
  TORCH_CHECK(logits.dim() == 2 && target.dim() == 1 && target.size(0) == logits.size(0) && target.scalar_type() == at::kLong,
              "cross_entropy_sum: logits (N, V) and int64 targets (N) expected, got ", logits.sizes(), " and ", target.sizes());
  const bool fits = logits.is_cpu() ? has_kernel(logits) : has_device_kernel(logits) && logits.size(0) > 0;
  if (fits && target.device() == logits.device() && logits.size(1) > 0) {
    const OperationSpan span("millrace::cross_entropy_sum", logits, target);
    const variable_list out = CrossEntropyFunction::apply(logits, target, ignore_index);
    return {out[0], out[1]};
  }
  const at::Tensor wide = logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat);
  const at::Tensor sum = at::nll_loss(at::log_softmax(wide, 1), target, {}, at::Reduction::Sum, ignore_index);
  return {sum, target.ne(ignore_index).sum().to(at::kFloat)};
}

}  // namespace millrace::kernels
