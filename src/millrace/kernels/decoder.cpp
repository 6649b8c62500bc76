#include "millrace/kernels/decoder.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <cmath>

#include "millrace/base/error.h"
#include "millrace/kernels/arguments.h"
#include "millrace/kernels/backward_rules.h"
#include "millrace/kernels/operation_span.h"
#include "millrace/kernels/parallel.h"
#include "millrace/kernels/product.h"

namespace millrace::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor contiguous(const at::Tensor& x) { return x.defined() ? x.contiguous() : x; }
const void* data_of(const at::Tensor& x) { return x.defined() ? x.const_data_ptr() : nullptr; }

// True if x * rate can be computed back from y, because no weight is too close to 0 or too large.
bool has_inverse(const at::Tensor& weight) {
  constexpr float kLeast = 1e-6F, kMost = 1e6F;
  const auto* first = weight.const_data_ptr<float>();
  return std::all_of(first, first + weight.numel(), [](float w) { return std::abs(w) > kLeast && std::abs(w) < kMost; });
}

struct RmsRowsFunction : torch::autograd::Function<RmsRowsFunction> {
  // Without a branch the result is {y}, with a branch {sum, y}.
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const std::optional<at::Tensor>& branch,
                               const at::Tensor& weight, double epsilon, at::ScalarType type) {
    const at::Tensor input = x.contiguous();
    const at::Tensor added = branch ? branch->contiguous() : at::Tensor();
    const at::Tensor scale = weight.contiguous();
    const std::int64_t width = input.size(-1), rows = input.numel() / width;
    // The sum overwrites the branch, which is not read again, unless the branch is a leaf, has another type, or is a result that
    // an earlier RMS norm may have saved.
    const bool overwrites =
        branch && !branch->is_leaf() && added.scalar_type() == input.scalar_type() && !is_kept_result(*branch);
    if (overwrites && added.is_same(*branch)) changes_in_place(added);
    at::Tensor sum = !branch ? input : overwrites ? added.detach() : at::empty_like(input);
    at::Tensor y = at::empty(input.sizes(), input.options().dtype(type));
    const at::Tensor rates = at::empty({rows}, input.options().dtype(at::kFloat));
    const detail::RmsRows args{.x = input.const_data_ptr(),
                               .branch = data_of(added),
                               .sum = branch ? sum.mutable_data_ptr() : nullptr,
                               .y = y.mutable_data_ptr(),
                               .weight = scale.const_data_ptr<float>(),
                               .rates = rates.mutable_data_ptr<float>(),
                               .x_type = type_of(input),
                               .y_type = type_of(type),
                               .width = width,
                               .epsilon = static_cast<float>(epsilon)};
    const detail::Table& table = detail::table();
    parallel(rows, [&](std::int64_t begin, std::int64_t end) { table.rms_rows_forward(args, begin, end); });
    // Saves y instead of the sum if x * rate can be computed back from y. This saves memory, because the matrix product that
    // follows keeps y in any case, and in 16 bits y is smaller than the sum.
    const bool keeps_y = has_inverse(scale);
    context->save_for_backward({keeps_y ? at::Tensor() : sum, keeps_y ? y : at::Tensor(), rates, scale});
    context->saved_data["x_type"] = static_cast<std::int64_t>(x.scalar_type());
    context->saved_data["branch"] = branch.has_value();
    context->saved_data["type"] = static_cast<std::int64_t>(type);
    context->set_materialize_grads(false);
    if (branch) return {sum, y};
    return {y};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    only_first_derivative("a part of a decoder");
    const variable_list saved = context->get_saved_variables();
    const bool has_branch = context->saved_data["branch"].toBool();
    const auto type = static_cast<at::ScalarType>(context->saved_data["type"].toInt());
    const at::Tensor sum_gradient = has_branch ? contiguous(gradients[0]) : at::Tensor();
    const at::Tensor y_gradient = contiguous(gradients.back());
    const at::Tensor &x = saved[0], &y = saved[1], &rates = saved[2], &weight = saved[3];
    const auto x_type = static_cast<at::ScalarType>(context->saved_data["x_type"].toInt());
    if (!y_gradient.defined()) {  // no operation used y, only the sum
      const bool branch_reads = has_branch && sum_gradient.defined();
      return {sum_gradient, branch_reads ? sum_gradient.to(type) : at::Tensor(), {}, {}, {}};
    }
    const std::int64_t width = weight.size(0), rows = rates.numel();
    const bool same_type = type == x_type;
    const at::Tensor x_gradient = at::empty(y_gradient.sizes(), rates.options().dtype(x_type));
    const at::Tensor inverse = y.defined() ? at::reciprocal(weight) : at::Tensor();
    at::Tensor branch_gradient;
    if (has_branch && context->needs_input_grad(1) && !same_type) {
      branch_gradient = at::empty(y_gradient.sizes(), rates.options().dtype(type));
    }
    const detail::RmsRowsBackward args{
        .x = data_of(x),
        .y = data_of(y),
        .inverse = y.defined() ? inverse.const_data_ptr<float>() : nullptr,
        .y_gradient = y_gradient.const_data_ptr(),
        .sum_gradient = data_of(sum_gradient),
        .x_gradient = x_gradient.mutable_data_ptr(),
        .branch_gradient = branch_gradient.defined() ? branch_gradient.mutable_data_ptr() : nullptr,
        .rates = rates.const_data_ptr<float>(),
        .weight = weight.const_data_ptr<float>(),
        .x_type = type_of(x_type),
        .y_type = type_of(type),
        .width = width};
    const detail::Table& table = detail::table();
    variable_list result(5);
    result[0] = x_gradient;
    if (context->needs_input_grad(has_branch ? 2 : 1)) {
      const RowChunks chunks(rows);
      const at::Tensor partial = at::zeros({chunks.count, width}, rates.options());
      auto* partial_data = partial.mutable_data_ptr<float>();
      parallel(chunks, [&](std::int64_t chunk, std::int64_t first, std::int64_t last) {
        table.rms_rows_backward(args, first, last, partial_data + chunk * width);
      });
      result[2] = partial.sum(0);
    } else {
      parallel(rows, [&](std::int64_t begin, std::int64_t end) { table.rms_rows_backward(args, begin, end, nullptr); });
    }
    if (has_branch) result[1] = same_type ? x_gradient : branch_gradient;
    return result;
  }

 private:
  // True if x is the result of another RmsRowsFunction, which may have saved x for its backward pass.
  static bool is_kept_result(const at::Tensor& x) {
    return dynamic_cast<const torch::autograd::CppNode<RmsRowsFunction>*>(x.grad_fn().get()) != nullptr;
  }
};

// True if a gradient may overwrite the saved input, because no other backward pass will read it.
bool overwrites(AutogradContext* context) {
  return context->saved_data["overwrites"].toBool() && !torch::autograd::get_current_graph_task_keep_graph();
}

// Returns the memory of x, because x's gradient overwrites it.
at::Tensor given_up(const at::Tensor& x) {
  changes_in_place(x);
  return x.detach();
}

// `out` is half as wide as x in the forward pass, and as wide as x in the backward pass, which has a `gradient`.
void run_swiglu(const at::Tensor& x, const at::Tensor& gradient, const at::Tensor& out) {
  const detail::Swiglu args{.x = x.const_data_ptr(),
                            .gradient = data_of(gradient),
                            .out = out.mutable_data_ptr(),
                            .type = type_of(x),
                            .width = x.size(-1) / 2};
  const detail::Table& table = detail::table();
  parallel(x.numel() / x.size(-1), [&](std::int64_t begin, std::int64_t end) { table.swiglu(args, begin, end); });
}

struct SwigluFunction : torch::autograd::Function<SwigluFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& packed) {
    const at::Tensor input = packed.contiguous();
    context->save_for_backward({input});
    context->saved_data["overwrites"] = !packed.is_leaf();
    std::vector<std::int64_t> sizes = input.sizes().vec();
    sizes.back() /= 2;
    at::Tensor out = at::empty(sizes, input.options());
    run_swiglu(input, {}, out);
    return out;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    only_first_derivative("a part of a decoder");
    const at::Tensor x = context->get_saved_variables()[0];
    at::Tensor out = overwrites(context) ? given_up(x) : at::empty_like(x);
    run_swiglu(x, gradients[0].contiguous(), out);
    return {out};
  }
};

// Bytes of swiglu's result that are in memory at a time. Each part of this size costs a call of the library.
constexpr std::int64_t kSwigluBytes = std::int64_t{1536} << 10U;

struct SwigluLinearFunction : torch::autograd::Function<SwigluLinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& packed, const at::Tensor& weight) {
    const at::Tensor x = packed.reshape({-1, packed.size(-1)}).contiguous(), w = weight.contiguous();
    context->save_for_backward({x, w});
    context->saved_data["overwrites"] = !packed.is_leaf();
    context->saved_data["sizes"] = packed.sizes().vec();
    const auto product = [&](std::int64_t row, std::int64_t count) {
      const at::Tensor gated = at::empty({count, w.size(1)}, x.options());
      run_swiglu(x.narrow(0, row, count), {}, gated);
      return forward_product(gated, w, {});
    };
    std::vector<std::int64_t> sizes = packed.sizes().vec();
    sizes.back() = w.size(0);
    const std::int64_t most = part_of(x);
    if (x.size(0) <= most) return product(0, x.size(0)).view(sizes);
    const at::Tensor out = at::empty({x.size(0), w.size(0)}, x.options());
    for (std::int64_t row = 0; row < x.size(0); row += most) {
      const std::int64_t count = std::min(most, x.size(0) - row);
      out.narrow(0, row, count).copy_(product(row, count));
    }
    return out.view(sizes);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    only_first_derivative("a part of a decoder");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const at::Tensor gradient = gradients[0].reshape({-1, gradients[0].size(-1)}).contiguous();
    const at::Tensor out = overwrites(context) ? given_up(x) : at::empty_like(x);
    const std::int64_t most = part_of(x);
    for (std::int64_t row = 0; row < x.size(0); row += most) {
      const std::int64_t count = std::min(most, x.size(0) - row);
      const auto rows_of = [&](const at::Tensor& all) { return all.narrow(0, row, count); };
      run_swiglu(rows_of(x), input_gradient(rows_of(gradient), weight), rows_of(out));
    }
    return {out.view(context->saved_data["sizes"].toIntVector()), {}};
  }

 private:
  static std::int64_t part_of(const at::Tensor& packed) { return rows_within(2 * kSwigluBytes, packed); }
};

// Part number `part` of x (B, T, parts H D), viewed as heads.
detail::HeadView view_of(const at::Tensor& x, std::int64_t part, std::int64_t head_size) {
  const std::int64_t offset = part * head_size * x.element_size();
  return {static_cast<char*>(x.data_ptr()) + offset, x.stride(0), x.stride(1), head_size};
}

struct OneQueryFunction : torch::autograd::Function<OneQueryFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& kv, const at::Tensor& positions,
                            const at::Tensor& cos, const at::Tensor& sin, std::int64_t heads) {
    // Rotates a copy of the query, because a norm of queries may have saved the query itself. The query is small.
    const at::Tensor query = q.clone(at::MemoryFormat::Contiguous), keys = kv.contiguous(), where = positions.contiguous();
    if (keys.is_same(kv)) changes_in_place(keys);
    at::Tensor out = at::empty(query.sizes(), query.options());
    const at::Tensor weights = at::empty({query.size(0), heads, keys.size(1)}, query.options().dtype(at::kFloat));
    const variable_list saved{query, keys, where, weights, cos.contiguous(), sin.contiguous()};
    detail::OneQuery args = arguments(saved, heads);
    args.out = view_of(out, 0, args.head_size);
    const detail::Table& table = detail::table();
    parallel(query.size(0) * heads, [&](std::int64_t begin, std::int64_t end) {
      turn(saved, args.q, 1, heads, false, begin, end);
      turn(saved, args.k, keys.size(1), heads, false, begin, end);
      table.one_query_forward(args, begin, end, memory(args));
    });
    context->save_for_backward(saved);
    context->saved_data["heads"] = heads;
    context->saved_data["overwrites"] = !kv.is_leaf();
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    only_first_derivative("a part of a decoder");
    const variable_list saved = context->get_saved_variables();
    const std::int64_t heads = context->saved_data["heads"].toInt();
    const at::Tensor gradient = gradients[0].contiguous();
    const at::Tensor of_query = at::empty_like(saved[0]),
                     of_keys = overwrites(context) ? given_up(saved[1]) : at::empty_like(saved[1]);
    detail::OneQuery args = arguments(saved, heads);
    args.out_gradient = view_of(gradient, 0, args.head_size);
    args.q_gradient = view_of(of_query, 0, args.head_size);
    args.k_gradient = view_of(of_keys, 0, args.head_size);
    args.v_gradient = view_of(of_keys, heads, args.head_size);
    const detail::Table& table = detail::table();
    parallel(saved[0].size(0) * heads, [&](std::int64_t begin, std::int64_t end) {
      table.one_query_backward(args, begin, end, memory(args));
      turn(saved, args.q_gradient, 1, heads, true, begin, end);
      turn(saved, args.k_gradient, saved[1].size(1), heads, true, begin, end);
    });
    return {of_query, of_keys, {}, {}, {}, {}};
  }

 private:
  static float* memory(const detail::OneQuery& args) {
    return static_cast<float*>(scratch(sizeof(float) * static_cast<std::size_t>(args.head_size + args.keys + 32)));
  }

  static detail::OneQuery arguments(const variable_list& saved, std::int64_t heads) {
    const std::int64_t head_size = saved[0].size(2) / heads;
    return {.q = view_of(saved[0], 0, head_size),
            .k = view_of(saved[1], 0, head_size),
            .v = view_of(saved[1], heads, head_size),
            .out = {},
            .out_gradient = {},
            .q_gradient = {},
            .k_gradient = {},
            .v_gradient = {},
            .positions = saved[2].const_data_ptr<std::int64_t>(),
            .weights = saved[3].mutable_data_ptr<float>(),
            .type = type_of(saved[0]),
            .heads = heads,
            .keys = saved[1].size(1),
            .head_size = head_size,
            .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_size)))};
  }

  static void turn(const variable_list& saved, const detail::HeadView& x, std::int64_t rows, std::int64_t heads, bool back,
                   std::int64_t begin, std::int64_t end) {
    const bool is_query = rows == 1;
    const detail::Rotate args{.x = x,
                              .cos = saved[4].const_data_ptr<float>(),
                              .sin = saved[5].const_data_ptr<float>(),
                              .positions = is_query ? saved[2].const_data_ptr<std::int64_t>() : nullptr,
                              .type = type_of(saved[0]),
                              .rows = rows,
                              .heads = heads,
                              .half = saved[4].size(1),
                              .back = back};
    detail::table().rotate(args, begin, end);
  }
};

bool is_weight(const at::Tensor& weight, std::int64_t width) {
  return weight.is_cpu() && weight.scalar_type() == at::kFloat && weight.dim() == 1 && weight.size(0) == width;
}

}  // namespace

bool has_decoder_kernels(const at::Tensor& x) { return has_kernel(x) && x.numel() > 0 && x.dim() > 0; }

at::Tensor rms_rows(const at::Tensor& x, const at::Tensor& weight, double epsilon, at::ScalarType type) {
  MR_CHECK(has_decoder_kernels(x) && is_weight(weight, x.size(-1)) && (type == at::kFloat || type == at::kBFloat16),
           "rms_rows takes rows of fp32 or bf16 and an fp32 weight for each column");
  const OperationSpan span("millrace::rms_rows", x, weight);
  return RmsRowsFunction::apply(x, std::optional<at::Tensor>(), weight, epsilon, type)[0];
}

std::pair<at::Tensor, at::Tensor> add_rms_rows(const at::Tensor& branch, const at::Tensor& residual, const at::Tensor& weight,
                                               double epsilon) {
  MR_CHECK(has_decoder_kernels(residual) && has_kernel(branch) && branch.sizes().equals(residual.sizes()) &&
               is_weight(weight, residual.size(-1)),
           "add_rms_rows takes a branch and a residual of one size, fp32 or bf16, and an fp32 weight for each column");
  const OperationSpan span("millrace::add_rms_rows", branch, residual, weight);
  const variable_list out = RmsRowsFunction::apply(residual, optional(branch), weight, epsilon, branch.scalar_type());
  return {out[0], out[1]};
}

at::Tensor swiglu(const at::Tensor& packed) {
  MR_CHECK(has_decoder_kernels(packed) && packed.size(-1) % 2 == 0, "swiglu takes rows of an even width, fp32 or bf16");
  const OperationSpan span("millrace::swiglu", packed);
  return SwigluFunction::apply(packed);
}

at::Tensor swiglu_linear(const at::Tensor& packed, const at::Tensor& weight) {
  MR_CHECK(has_decoder_kernels(packed) && weight.is_cpu() && weight.dim() == 2 && packed.size(-1) == 2 * weight.size(1) &&
               weight.scalar_type() == packed.scalar_type() && !weight.requires_grad(),
           "swiglu_linear takes rows (..., 2 f), fp32 or bf16, and a weight (out, f) of their type that requires no gradient");
  return SwigluLinearFunction::apply(packed, weight);
}

at::Tensor rotary_attention_at(const at::Tensor& q, const at::Tensor& kv, const at::Tensor& positions, const at::Tensor& cos,
                               const at::Tensor& sin, std::int64_t heads) {
  MR_CHECK(has_decoder_kernels(q) && has_decoder_kernels(kv) && kv.scalar_type() == q.scalar_type() && q.dim() == 3 &&
               kv.dim() == 3 && q.size(1) == 1 && kv.size(0) == q.size(0) && kv.size(2) == 2 * q.size(2),
           "rotary_attention_at takes q (B, 1, C) and kv (B, T, 2 C) of one type");
  MR_CHECK(q.size(2) % (2 * heads) == 0 && positions.is_cpu() && positions.scalar_type() == at::kLong &&
               positions.numel() == q.size(0) && cos.size(0) >= kv.size(1) && cos.size(1) == q.size(2) / (2 * heads),
           "rotary_attention_at takes a position for each row, heads of an even width and angles for each position");
  const at::Tensor where = positions.contiguous();
  const auto* first = where.const_data_ptr<std::int64_t>();
  const auto is_inside = [&](std::int64_t position) { return position >= 0 && position < kv.size(1); };
  MR_CHECK(std::all_of(first, first + where.numel(), is_inside), "rotary_attention_at: a position lies outside its row");
  const OperationSpan span("millrace::rotary_attention_at", q, kv);
  return OneQueryFunction::apply(q, kv, where, cos, sin, heads);
}

}  // namespace millrace::kernels
