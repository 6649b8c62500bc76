#include "millrace/train/recipe/stray_leaves.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <algorithm>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/core/scalar_type.h"

namespace millrace {
namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::Node;

std::string word_of(at::ScalarType type) {
  const auto ours = dtype_of(type);
  return ours ? std::string(name_of(*ours)) : c10::toString(type);
}

// "3" for equal sides, otherwise a list such as "{3, 1, 1}".
std::string kernel_of(const std::vector<std::int64_t>& sides) {
  const auto number = [](std::int64_t side) { return std::to_string(side); };
  const bool equal = std::ranges::all_of(sides, [&](std::int64_t side) { return side == sides.front(); });
  return equal ? number(sides.front()) : "{" + joined(sides, ", ", number) + "}";
}

}  // namespace

StrayLeaves::StrayLeaves(const torch::nn::Module& model) {
  for (const at::Tensor& parameter : model.parameters()) known_.insert(parameter.unsafeGetTensorImpl());
}

void StrayLeaves::add(const std::string& objective, const at::Tensor& leaf, const std::string& user) {
  if (!known_.insert(leaf.unsafeGetTensorImpl()).second) return;
  leaves_.push_back({.objective = objective,
                     .type = word_of(leaf.scalar_type()),
                     .user = user,
                     .sizes = leaf.sizes().vec(),
                     .tensor = c10::weak_intrusive_ptr<c10::TensorImpl>(leaf.getIntrusivePtr())});
}

void StrayLeaves::look(const std::string& objective, const Loss& loss) {
  std::unordered_set<const Node*> seen;
  std::vector<const Node*> open;
  const auto visit = [&](const torch::autograd::Edge& edge, const std::string& user) {
    const Node* node = edge.function.get();
    if (node == nullptr || !seen.insert(node).second) return;
    const auto* leaf = dynamic_cast<const AccumulateGrad*>(node);
    if (leaf == nullptr) return open.push_back(node);
    add(objective, leaf->variable, user);
  };
  for (const LossTerm& term : loss.terms) {
    if (term.sum.requires_grad()) visit(torch::autograd::impl::gradient_edge(term.sum), "");
  }
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    for (const torch::autograd::Edge& edge : node->next_edges()) visit(edge, node->name());
  }
}

// The line of code that makes and registers the layer whose tensors have these shapes.
std::string StrayLeaves::layer_of(const std::vector<const Leaf*>& leaves) {
  const auto line = [](const std::string& layer) { return "layer = register_module(\"layer\", torch::nn::" + layer + ")"; };
  for (const Leaf* leaf : leaves) {
    const auto& sizes = leaf->sizes;
    const auto two = [](std::int64_t a, std::int64_t b) { return std::to_string(a) + ", " + std::to_string(b); };
    if (leaf->user.starts_with("Embedding")) return line("Embedding(" + two(sizes[0], sizes[1]) + ")");
    if (sizes.size() == 2) return line("Linear(" + two(sizes[1], sizes[0]) + ")");
    if (sizes.size() >= 3 && sizes.size() <= 5) {
      const std::string kernel = kernel_of({sizes.begin() + 2, sizes.end()});
      return line("Conv" + std::to_string(sizes.size() - 2) + "d(" + two(sizes[1], sizes[0]) + ", " + kernel + ")");
    }
  }
  return "values = register_parameter(\"values\", at::zeros({" +
         joined(leaves.front()->sizes, ", ", [](std::int64_t size) { return std::to_string(size); }) + "}))";
}

void StrayLeaves::refuse(const Batch& batch) const {
  std::unordered_set<const c10::TensorImpl*> fields;
  for (const Group& group : batch.groups()) {
    for (const auto& [name, tensor] : group.fields) fields.insert(tensor.unsafeGetTensorImpl());
  }
  std::vector<const Leaf*> held;
  for (const Leaf& leaf : leaves_) {
    if (!leaf.tensor.expired() && !fields.contains(leaf.tensor._unsafe_get_target())) held.push_back(&leaf);
  }
  if (held.empty()) return;
  constexpr std::size_t kListed = 6;
  const auto shape = [](const Leaf* leaf) { return leaf->type + " " + to_text(Shape(leaf->sizes.begin(), leaf->sizes.end())); };
  std::string list =
      joined(std::vector(held.begin(), held.begin() + static_cast<std::ptrdiff_t>(std::min(held.size(), kListed))), ", ", shape);
  if (held.size() > kListed) list += " and " + std::to_string(held.size() - kListed) + " more";
  const bool one = held.size() == 1;
  throw RecipeError({"the loss of objective " + quoted(held.front()->objective) + " depends on " +
                         (one ? "a tensor" : "tensors") + " that model() does not hold: " + list + (one ? " needs" : " need") +
                         " a gradient, but no optimiser updates and no snapshot keeps " + (one ? "it" : "them"),
                     "objective " + quoted(held.front()->objective) + ", " + to_text(batch.origin()) +
                         "\nlikely a layer that was not registered",
                     layer_of(held) +
                         " in the constructor of the module that model() returns, or of a module inside it; register layers "
                         "that must not be trained too, and call set_requires_grad(false) on their parameters"});
}

}  // namespace millrace
