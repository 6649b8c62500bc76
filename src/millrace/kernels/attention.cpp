#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <cmath>

#include "millrace/base/error.h"
#include "millrace/kernels/arguments.h"
#include "millrace/kernels/attention_draws.h"
#include "millrace/kernels/backward_rules.h"
#include "millrace/kernels/decoder.h"
#include "millrace/kernels/detail/dropout_layout.h"
#include "millrace/kernels/kernels.h"
#include "millrace/kernels/operation_span.h"
#include "millrace/kernels/parallel.h"
#include "millrace/kernels/plain.h"

namespace millrace::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Heads = std::array<at::Tensor, 3>;  // queries, keys, values, each (B, T, H, D)

struct Form {
  double scale = 1;
  bool causal = true;
  at::Tensor cos = {}, sin = {};  // for rotary positions, (T, D / 2); undefined: no rotation
};

detail::HeadView view_of(const at::Tensor& x) { return {x.data_ptr(), x.stride(0), x.stride(1), x.stride(2)}; }

at::Tensor with_contiguous_rows(const at::Tensor& x) { return x.stride(3) == 1 || x.size(3) == 1 ? x : x.contiguous(); }

// Queries, keys and values as views of a packed tensor (B, T, 3 H D).
Heads heads_of(const at::Tensor& packed, std::int64_t heads) {
  const at::Tensor five = packed.view({packed.size(0), packed.size(1), 3, heads, packed.size(2) / (3 * heads)});
  return {five.select(2, 0), five.select(2, 1), five.select(2, 2)};
}

detail::Attention arguments(const Heads& in, const at::Tensor& out, const at::Tensor& log_sums, const Form& form) {
  return {.q = view_of(in[0]),
          .k = view_of(in[1]),
          .v = view_of(in[2]),
          .out = view_of(out),
          .out_gradient = {},
          .q_gradient = {},
          .k_gradient = {},
          .v_gradient = {},
          .log_sums = log_sums.data_ptr<float>(),
          .type = type_of(in[0]),
          .batch = in[0].size(0),
          .rows = in[0].size(1),
          .heads = in[0].size(2),
          .head_size = in[0].size(3),
          .scale = static_cast<float>(form.scale),
          .causal = form.causal,
          .keep = {}};
}

// Runs the kernel. If there are angles, queries and keys are rotated before the kernel runs, and their gradients afterwards.
void run(const detail::Attention& args, bool backward, const Form& form, const Dropout& site) {
  const detail::Table& table = detail::table();
  const std::size_t bytes = table.attention_scratch(args, backward);
  const auto turn = [&](const detail::HeadView& x, std::int64_t begin, std::int64_t end) {
    table.rotate({.x = x,
                  .cos = form.cos.const_data_ptr<float>(),
                  .sin = form.sin.const_data_ptr<float>(),
                  .positions = nullptr,
                  .type = args.type,
                  .rows = args.rows,
                  .heads = args.heads,
                  .half = args.head_size / 2,
                  .back = backward},
                 begin, end);
  };
  const DropoutUnits heads(site, args.batch * args.heads, args.rows * args.rows);
  parallel(args.batch * args.heads, [&](std::int64_t begin, std::int64_t end) {
    if (!backward && form.cos.defined()) turn(args.q, begin, end), turn(args.k, begin, end);
    heads.each(begin, end, [&, here = args](const detail::Keep& keep, std::int64_t first, std::int64_t last) mutable {
      here.keep = keep;
      (backward ? table.attention_backward : table.attention_forward)(here, first, last, scratch(bytes));
    });
    if (backward && form.cos.defined()) turn(args.q_gradient, begin, end), turn(args.k_gradient, begin, end);
  });
}

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  // Either q, k and v are each (B, T, H, D), or q is the packed tensor (B, T, 3 H D) with `heads` heads, and k and v are absent.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const std::optional<at::Tensor>& k,
                            const std::optional<at::Tensor>& v, std::int64_t heads, const Dropout& site, const Form& form) {
    const at::Tensor packed = k ? at::Tensor() : q.contiguous();
    const Heads in =
        k ? Heads{with_contiguous_rows(q), with_contiguous_rows(*k), with_contiguous_rows(*v)} : heads_of(packed, heads);
    at::Tensor out = at::empty(in[0].sizes(), in[0].options());
    at::Tensor log_sums = at::empty({in[0].size(0), in[0].size(2), in[0].size(1)}, in[0].options().dtype(at::kFloat));
    if (form.cos.defined() && packed.is_same(q)) changes_in_place(packed);
    run(arguments(in, out, log_sums, form), false, form, site);
    if (k) {
      context->save_for_backward({out, log_sums, in[0], in[1], in[2]});
    } else {
      context->save_for_backward({out, log_sums, packed, form.cos, form.sin});
    }
    context->saved_data["packed"] = !k.has_value();
    context->saved_data["heads"] = heads;
    context->saved_data["scale"] = form.scale;
    context->saved_data["causal"] = form.causal;
    remember(context, site);
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    only_first_derivative("an attention");
    const variable_list saved = context->get_saved_variables();
    const bool is_packed = context->saved_data["packed"].toBool();
    const std::int64_t heads = context->saved_data["heads"].toInt();
    const Heads in = is_packed ? heads_of(saved[2], heads) : Heads{saved[2], saved[3], saved[4]};
    const at::Tensor out_gradient = with_contiguous_rows(gradients[0]);
    at::Tensor packed_gradient = is_packed ? at::empty_like(saved[2]) : at::Tensor();
    const auto fresh = [](const at::Tensor& x) { return at::empty(x.sizes(), x.options()); };
    const Heads out = is_packed ? heads_of(packed_gradient, heads) : Heads{fresh(in[0]), fresh(in[1]), fresh(in[2])};
    Form form{.scale = context->saved_data["scale"].toDouble(), .causal = context->saved_data["causal"].toBool()};
    if (is_packed) form.cos = saved[3], form.sin = saved[4];
    detail::Attention args = arguments(in, saved[0], saved[1], form);
    args.out_gradient = view_of(out_gradient);
    args.q_gradient = view_of(out[0]);
    args.k_gradient = view_of(out[1]);
    args.v_gradient = view_of(out[2]);
    run(args, true, form, remembered(context));
    if (is_packed) return {packed_gradient, {}, {}, {}, {}, {}};
    return {out[0], out[1], out[2], {}, {}, {}};
  }
};

// With more rows, there would be too many scores to keep.
constexpr std::int64_t kMostCountedRows = 256;

bool drops_by_counter(const at::Tensor& q) {
  if (counts_attention()) return true;
  return q.scalar_type() == at::kDouble ||
         (q.scalar_type() == at::kFloat && q.size(1) <= kMostCountedRows && !at::globalContext().allowTF32CuBLAS());
}

bool fits(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return has_kernel(q) && has_kernel(k) && has_kernel(v) && q.scalar_type() == k.scalar_type() &&
         q.scalar_type() == v.scalar_type();
}

}  // namespace

at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Dropout& site,
                            std::optional<double> scale) {
  TORCH_CHECK(q.dim() == 4 && k.sizes().equals(q.sizes()) && v.sizes().equals(q.sizes()),
              "causal_attention: q, k, v of one shape (B, T, H, D) expected, got ", q.sizes(), ", ", k.sizes(), ", ", v.sizes());
  if (fits(q, k, v)) {
    const double factor = scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(3))));
    const OperationSpan span("millrace::causal_attention", q, k, v);
    return AttentionFunction::apply(q, optional(k), optional(v), q.size(2), site, Form{.scale = factor});
  }
  if (q.is_cpu() || (site.p > 0.0 && drops_by_counter(q))) {
    at::Tensor keep;
    if (site.p > 0.0) keep = dropout_mask({q.size(0), q.size(2), q.size(1), q.size(1)}, site, q.device());
    return causal_attention_with_mask(q, k, v, keep, site.p, scale);
  }
  const auto heads_first = [](const at::Tensor& x) { return x.transpose(1, 2); };
  return at::scaled_dot_product_attention(heads_first(q), heads_first(k), heads_first(v), {}, site.p, true, scale)
      .transpose(1, 2)
      .contiguous();
}

at::Tensor causal_attention_packed(const at::Tensor& qkv, std::int64_t heads, const Dropout& site, std::optional<double> scale) {
  TORCH_CHECK(qkv.dim() == 3 && heads > 0 && qkv.size(2) % (3 * heads) == 0,
              "causal_attention_packed: (B, T, 3 H D) with H = ", heads, " expected, got ", qkv.sizes());
  if (!has_kernel(qkv)) {
    const Heads in = heads_of(qkv.contiguous(), heads);
    return causal_attention(in[0], in[1], in[2], site, scale);
  }
  const double factor = scale.value_or(1.0 / std::sqrt(static_cast<double>(qkv.size(2)) / static_cast<double>(3 * heads)));
  const OperationSpan span("millrace::causal_attention_packed", qkv);
  return AttentionFunction::apply(qkv, std::optional<at::Tensor>(), std::optional<at::Tensor>(), heads, site,
                                  Form{.scale = factor});
}

at::Tensor full_attention_packed(const at::Tensor& qkv, std::int64_t heads) {
  TORCH_CHECK(qkv.dim() == 3 && heads > 0 && qkv.size(2) % (3 * heads) == 0,
              "full_attention_packed: (B, T, 3 H D) with H = ", heads, " expected, got ", qkv.sizes());
  if (!has_kernel(qkv)) {
    const Heads in = heads_of(qkv.contiguous(), heads);
    return at::scaled_dot_product_attention(in[0].transpose(1, 2), in[1].transpose(1, 2), in[2].transpose(1, 2)).transpose(1, 2);
  }
  const auto none = std::optional<at::Tensor>();
  const Form form{.scale = 1.0 / std::sqrt(static_cast<double>(qkv.size(2)) / static_cast<double>(3 * heads)), .causal = false};
  const OperationSpan span("millrace::full_attention_packed", qkv);
  return AttentionFunction::apply(qkv, none, none, heads, Dropout{}, form);
}

at::Tensor rotary_attention_packed(const at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin, std::int64_t heads) {
  MR_CHECK(has_decoder_kernels(qkv) && qkv.dim() == 3 && heads > 0 && qkv.size(2) % (6 * heads) == 0,
           "rotary_attention_packed takes (B, T, 3 H D) with heads of an even width");
  const std::int64_t width = qkv.size(2) / (3 * heads);
  MR_CHECK(cos.size(0) >= qkv.size(1) && cos.size(1) == width / 2 && sin.sizes().equals(cos.sizes()),
           "rotary_attention_packed takes angles for each position");
  const auto none = std::optional<at::Tensor>();
  const OperationSpan span("millrace::rotary_attention_packed", qkv);
  const Form form{
      .scale = 1.0 / std::sqrt(static_cast<double>(width)), .causal = true, .cos = cos.contiguous(), .sin = sin.contiguous()};
  return AttentionFunction::apply(qkv, none, none, heads, Dropout{}, form).flatten(2);
}

}  // namespace millrace::kernels
