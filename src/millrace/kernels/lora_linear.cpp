#include "millrace/kernels/lora_linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/kernels/arguments.h"
#include "millrace/kernels/backward_rules.h"
#include "millrace/kernels/decoder.h"
#include "millrace/kernels/detail/dropout_layout.h"
#include "millrace/kernels/operation_span.h"
#include "millrace/kernels/parallel.h"
#include "millrace/kernels/product.h"
#include "millrace/kernels/weight_cache.h"

namespace millrace::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Tensors = std::vector<at::Tensor>;

at::Tensor side_by_side(const Tensors& parts, at::ScalarType type) {
  const auto is = [&](at::ScalarType wanted) {
    return std::ranges::all_of(parts, [&](const at::Tensor& part) { return part.scalar_type() == wanted; });
  };
  const auto is_leaf = [](const at::Tensor& part) { return part.is_leaf(); };
  if (type == at::kBFloat16 && is(at::kFloat) && std::ranges::all_of(parts, is_leaf)) return bf16_copy(parts);
  if (!is(type)) {
    Tensors cast;
    for (const at::Tensor& part : parts) cast.push_back(part.to(type));
    return cast.size() == 1 ? cast.front().contiguous() : at::cat(cast);
  }
  if (parts.size() == 1) return parts.front().contiguous();
  const at::Tensor block = block_of(parts);
  return block.defined() ? block : at::cat(parts);
}

// Indices of a projection's tensors among the function's inputs; -1: absent.
struct ProjectionInputs {
  std::int64_t out = 0, rank = 0;
  std::int64_t weight = -1, bias = -1, a = -1, b = -1;
};
struct Layout {
  std::vector<ProjectionInputs> projections;
  double scale = 1;
  Dropout site;
  std::int64_t width = 0, rank = 0;  // total width of the results, total rank of the adapters
};

// Returns one matrix for all adapters: it holds scale * B of each adapter, in the rows of the adapter's outputs and the columns
// of the adapter's narrow product. The rest is zero.
template <class T>
void spread(const Layout& layout, at::TensorList tensors, T* out) {
  std::int64_t row = 0, column = 0;
  for (const ProjectionInputs& one : layout.projections) {
    if (one.b >= 0) {
      const at::Tensor b = tensors[static_cast<std::size_t>(one.b)].contiguous();
      const auto* values = b.const_data_ptr<float>();
      for (std::int64_t i = 0; i < one.out; ++i) {
        T* to = out + (row + i) * layout.rank + column;
        for (std::int64_t j = 0; j < one.rank; ++j)
          to[j] = static_cast<T>(static_cast<float>(layout.scale) * values[i * one.rank + j]);
      }
      column += one.rank;
    }
    row += one.out;
  }
}

at::Tensor spread_b(const Layout& layout, at::TensorList tensors, const at::Tensor& x) {
  at::Tensor all = at::zeros({layout.width, layout.rank}, x.options());
  if (x.scalar_type() == at::kFloat) {
    spread(layout, tensors, all.mutable_data_ptr<float>());
  } else {
    spread(layout, tensors, all.mutable_data_ptr<at::BFloat16>());
  }
  return all;
}

// Returns keep * scale * x. If `out` is defined, adds keep * scale * x to `out` instead.
at::Tensor dropped(const at::Tensor& x, const at::Tensor& out, const Dropout& site) {
  if (site.p <= 0.0 && !out.defined()) return x;
  at::Tensor to = out.defined() ? out : at::empty_like(x);
  const detail::DropoutArgs args{.x = x.const_data_ptr(),
                                 .residual = out.defined() ? out.const_data_ptr() : nullptr,
                                 .out = to.mutable_data_ptr(),
                                 .x_type = type_of(x),
                                 .out_type = type_of(x),
                                 .count = x.numel(),
                                 .keep = {}};
  run_dropout(args, site, x.device());
  return to;
}

// Number of rows to which dropout and a product are applied at a time. These rows stay in the cache, and no dropped copy of all
// rows is ever in memory.
constexpr std::int64_t kRows = 256;

// dx += dropout(dnarrow A).
void add_through_adapters(const at::Tensor& dx, const at::Tensor& dnarrow, const at::Tensor& a, const Dropout& site) {
  for (std::int64_t row = 0; row < dx.size(0); row += kRows) {
    const std::int64_t count = std::min(kRows, dx.size(0) - row);
    const Dropout here = part_of(site, dx.numel(), row * dx.size(1), count * dx.size(1));
    (void)dropped(at::mm(dnarrow.narrow(0, row, count), a), dx.narrow(0, row, count), here);
  }
}

// left^T dropout(right), in fp32.
at::Tensor summed_by_parts(const at::Tensor& left, const at::Tensor& right, const Dropout& site) {
  at::Tensor sums;
  for (std::int64_t row = 0; row < right.size(0); row += kRows) {
    const std::int64_t count = std::min(kRows, right.size(0) - row);
    const Dropout here = part_of(site, right.numel(), row * right.size(1), count * right.size(1));
    const at::Tensor part =
        weight_gradients(left.narrow(0, row, count), dropped(right.narrow(0, row, count), {}, here), false).weight;
    sums = sums.defined() ? sums.add_(part) : part;
  }
  return sums;
}

// Bytes of x after dropout that are in memory at a time in the forward pass. Each part of this size costs a call of the library.
constexpr std::int64_t kDroppedBytes = std::int64_t{576} << 10U;

// dropout(x) times the transposed a (rank, in).
at::Tensor narrow_product(const at::Tensor& x, const at::Tensor& a, const Dropout& site) {
  const std::int64_t most = rows_within(kDroppedBytes, x);
  if (site.p <= 0.0 || x.size(0) <= most) return forward_product(dropped(x, {}, site), a, {});
  at::Tensor all = at::empty({x.size(0), a.size(0)}, x.options());
  for (std::int64_t row = 0; row < x.size(0); row += most) {
    const std::int64_t count = std::min(most, x.size(0) - row);
    const Dropout here = part_of(site, x.numel(), row * x.size(1), count * x.size(1));
    all.narrow(0, row, count).copy_(forward_product(dropped(x.narrow(0, row, count), {}, here), a, {}));
  }
  return all;
}

Tensors chosen(const Layout& layout, at::TensorList tensors, std::int64_t ProjectionInputs::*place) {
  Tensors parts;
  for (const ProjectionInputs& one : layout.projections) {
    if (one.*place >= 0) parts.push_back(tensors[static_cast<std::size_t>(one.*place)]);
  }
  return parts;
}

struct LoraFunction : torch::autograd::Function<LoraFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, at::TensorList tensors, const Layout& layout) {
    const at::ScalarType type = x.scalar_type();
    const at::Tensor rows = x.reshape({-1, x.size(-1)}).contiguous();
    const at::Tensor weight = side_by_side(chosen(layout, tensors, &ProjectionInputs::weight), type);
    const Tensors biases = chosen(layout, tensors, &ProjectionInputs::bias);
    const at::Tensor y = forward_product(rows, weight, biases.empty() ? at::Tensor() : side_by_side(biases, type));
    at::Tensor a, b, narrow;
    if (layout.rank > 0) {
      a = side_by_side(chosen(layout, tensors, &ProjectionInputs::a), type);
      b = spread_b(layout, tensors, rows);
      narrow = narrow_product(rows, a, layout.site);
      y.addmm_(narrow, b.t());
    }
    const auto needs_gradient = [](const at::Tensor& part) { return part.requires_grad(); };
    const bool keeps_x = layout.rank > 0 || std::ranges::any_of(tensors, needs_gradient);
    context->save_for_backward({keeps_x ? rows : at::Tensor(), weight, a, b, narrow});
    remember_layout(context, layout, tensors);
    context->saved_data["sizes"] = x.sizes().vec();
    std::vector<std::int64_t> sizes = x.sizes().vec();
    sizes.back() = layout.width;
    return y.view(sizes);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    only_first_derivative("a low-rank adapter");
    note_backward();
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &a = saved[2], &b = saved[3], &narrow = saved[4];
    const Layout layout = layout_of_context(context);
    const at::Tensor dy = gradients[0].reshape({-1, gradients[0].size(-1)}).contiguous();
    std::int64_t inputs = 1;
    for (const ProjectionInputs& one : layout.projections)
      inputs += (one.weight >= 0) + (one.bias >= 0) + (one.a >= 0) + (one.b >= 0);
    variable_list result(static_cast<std::size_t>(inputs) + 1);
    const bool wants_x = context->needs_input_grad(0);
    const auto wants = [&](std::int64_t ProjectionInputs::*place) {
      return std::ranges::any_of(layout.projections, [&](const ProjectionInputs& one) {
        return one.*place >= 0 && context->needs_input_grad(static_cast<std::size_t>(one.*place) + 1);
      });
    };
    // The gradients of adapters, weights and biases come first, while the gradient of x is not allocated yet, because they need
    // temporary memory.
    at::Tensor dnarrow;
    if (layout.rank > 0 && (wants_x || wants(&ProjectionInputs::a))) dnarrow = at::mm(dy, b);
    if (wants(&ProjectionInputs::a)) {
      hand_out_rows(layout, &ProjectionInputs::a, &ProjectionInputs::rank, summed_by_parts(dnarrow, x, layout.site), result);
    }
    if (wants(&ProjectionInputs::b)) hand_out_b(layout, summed_by_parts(dy, narrow, {}), result);
    if (wants(&ProjectionInputs::weight) || wants(&ProjectionInputs::bias)) {
      const WeightGradients sums = weight_gradients(dy, x, wants(&ProjectionInputs::bias));
      hand_out_rows(layout, &ProjectionInputs::weight, &ProjectionInputs::out, sums.weight, result);
      if (sums.bias.defined()) hand_out_rows(layout, &ProjectionInputs::bias, &ProjectionInputs::out, sums.bias, result);
    }
    if (wants_x) {
      const at::Tensor dx = input_gradient(dy, weight);
      if (dnarrow.defined()) add_through_adapters(dx, dnarrow, a, layout.site);
      result[0] = dx.view(context->saved_data["sizes"].toIntVector());
    }
    drop_unwanted(context, result);
    return result;
  }

 private:
  static void remember_layout(AutogradContext* context, const Layout& layout, at::TensorList tensors) {
    remember(context, layout.site);
    context->saved_data["scale"] = layout.scale;
    std::vector<std::int64_t> places, types;
    for (const ProjectionInputs& one : layout.projections) {
      for (const std::int64_t number : {one.out, one.rank, one.weight, one.bias, one.a, one.b}) places.push_back(number);
    }
    for (const at::Tensor& part : tensors) types.push_back(static_cast<std::int64_t>(part.scalar_type()));
    context->saved_data["places"] = places;
    context->saved_data["types"] = types;
  }

  static Layout layout_of_context(AutogradContext* context) {
    Layout layout;
    layout.site = remembered(context);
    layout.scale = context->saved_data["scale"].toDouble();
    const std::vector<std::int64_t> places = context->saved_data["places"].toIntVector();
    for (std::size_t i = 0; i < places.size(); i += 6) {
      layout.projections.push_back({places[i], places[i + 1], places[i + 2], places[i + 3], places[i + 4], places[i + 5]});
      layout.width += places[i];
      layout.rank += places[i + 1];
    }
    return layout;
  }

  // Gives each projection its rows of a gradient.
  static void hand_out_rows(const Layout& layout, std::int64_t ProjectionInputs::*place, std::int64_t ProjectionInputs::*rows,
                            const at::Tensor& gradient, variable_list& result) {
    std::int64_t row = 0;
    for (const ProjectionInputs& one : layout.projections) {
      if (one.*place >= 0) result[static_cast<std::size_t>(one.*place) + 1] = gradient.narrow(0, row, one.*rows);
      row += one.*rows;
    }
  }

  static void hand_out_b(const Layout& layout, const at::Tensor& gradient, variable_list& result) {
    std::int64_t row = 0, column = 0;
    for (const ProjectionInputs& one : layout.projections) {
      if (one.b >= 0) {
        result[static_cast<std::size_t>(one.b) + 1] = gradient.narrow(0, row, one.out).narrow(1, column, one.rank) * layout.scale;
      }
      row += one.out;
      column += one.rank;
    }
  }

  // Converts each gradient to the type of its tensor, and drops gradients that are not required.
  static void drop_unwanted(AutogradContext* context, variable_list& result) {
    const std::vector<std::int64_t> types = context->saved_data["types"].toIntVector();
    for (std::size_t i = 0; i < types.size(); ++i) {
      at::Tensor& gradient = result[i + 1];
      if (!context->needs_input_grad(i + 1)) gradient = at::Tensor();
      if (gradient.defined()) gradient = gradient.to(static_cast<at::ScalarType>(types[i]));
    }
  }
};

}  // namespace

at::Tensor lora_linear(const at::Tensor& x, const std::vector<LoraWeights>& projections, double scale, const Dropout& site) {
  MR_CHECK(has_decoder_kernels(x) && !projections.empty(), "lora_linear takes rows of fp32 or bf16, and at least one projection");
  Layout layout{.projections = {}, .scale = scale, .site = site};
  Tensors tensors;
  const auto place = [&](const at::Tensor& part) -> std::int64_t {
    if (!part.defined()) return -1;
    tensors.push_back(part);
    return static_cast<std::int64_t>(tensors.size()) - 1;
  };
  for (const LoraWeights& one : projections) {
    MR_CHECK(
        one.weight.dim() == 2 && one.weight.size(1) == x.size(-1) && one.a.defined() == one.b.defined() &&
            one.bias.defined() == projections.front().bias.defined(),
        "lora_linear takes weights (out, in) as wide as x, adapters with both A and B, and a bias for every weight or for none");
    const std::int64_t rank = one.a.defined() ? one.a.size(0) : 0;
    MR_CHECK(rank == 0 || (one.a.scalar_type() == at::kFloat && one.b.scalar_type() == at::kFloat &&
                           one.a.size(1) == x.size(-1) && one.b.size(0) == one.weight.size(0) && one.b.size(1) == rank),
             "lora_linear takes adapters A (rank, in) and B (out, rank) in fp32");
    layout.projections.push_back({one.weight.size(0), rank, place(one.weight), place(one.bias), place(one.a), place(one.b)});
    layout.width += one.weight.size(0);
    layout.rank += rank;
  }
  const OperationSpan span("millrace::lora_linear", x, projections.front().weight);
  return LoraFunction::apply(x, at::TensorList(tensors), layout);
}

}  // namespace millrace::kernels
