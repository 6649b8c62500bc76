// Layers that a loss uses and the model does not hold: no optimiser moves them, no snapshot keeps them, so that a later process
// computes with other values.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <unordered_set>
#include <vector>

#include "millrace/core/batch.h"

namespace torch::nn {
class Module;
}

namespace millrace {

// Walks the autograd graphs of losses for leaves that need a gradient and are no parameters of the model. Belongs to one thread.
class StrayLeaves {
 public:
  explicit StrayLeaves(const torch::nn::Module& model);
  void look(const std::string& objective, const Loss& loss);  // before the backward pass
  // Called once the graphs are gone. RecipeError if a leaf has outlived them, with its shape and the line that registers its
  // likely layer. A leaf that a loss makes for itself (an input of which it takes the gradient) has not, and fields of `batch`
  // don't count.
  void refuse(const Batch& batch) const;

 private:
  struct Leaf {
    std::string objective, type, user;  // user: the operation that takes it
    std::vector<std::int64_t> sizes;
    c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
  };
  void add(const std::string& objective, const at::Tensor& leaf, const std::string& user);
  [[nodiscard]] static std::string layer_of(const std::vector<const Leaf*>& leaves);

  std::unordered_set<const c10::TensorImpl*> known_;  // parameters, and leaves that were seen
  std::vector<Leaf> leaves_;
};

}  // namespace millrace
