// Finds stray layers: layers that a loss uses but the model does not register. No optimiser trains such a layer and no snapshot
// keeps it, so a later process would compute with other weights.
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

// Walks the autograd graphs of losses and collects the leaf tensors that need a gradient but are not parameters of the model.
// Belongs to one thread.
class StrayLeaves {
 public:
  explicit StrayLeaves(const torch::nn::Module& model);
  void look(const std::string& objective, const Loss& loss);  // called before the backward pass
  // Called after the backward pass, when the graphs are gone. Throws RecipeError if a collected leaf still exists, because then a
  // layer of the recipe holds it; the error has the leaf's shape and the line that would register its likely layer. A leaf that a
  // loss makes for itself (such as an input whose gradient it takes) no longer exists here. Fields of `batch` are not counted.
  void refuse(const Batch& batch) const;

 private:
  struct Leaf {
    std::string objective, type, user;  // user: the operation that takes the leaf as an input
    std::vector<std::int64_t> sizes;
    c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
  };
  void add(const std::string& objective, const at::Tensor& leaf, const std::string& user);
  [[nodiscard]] static std::string layer_of(const std::vector<const Leaf*>& leaves);

  std::unordered_set<const c10::TensorImpl*> known_;  // parameters, and leaves that look() has seen
  std::vector<Leaf> leaves_;
};

}  // namespace millrace
