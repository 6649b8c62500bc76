#include "millrace/train/watch/thaw_watch.h"

#include <torch/nn/module.h>

#include <string>

#include "millrace/base/error.h"
#include "millrace/base/format.h"

namespace millrace {

ThawWatch::ThawWatch(const torch::nn::Module& model) {
  for (const auto& item : model.named_parameters()) {
    if (!item.value().requires_grad()) frozen_.push_back({item.key(), item.value()});
  }
}

void ThawWatch::look(std::int64_t step) const {
  constexpr std::size_t kNamed = 3;
  std::vector<std::string> thawed;
  for (const optim::NamedParameter& parameter : frozen_) {
    if (parameter.value.requires_grad()) thawed.push_back(quoted(parameter.name));
  }
  if (thawed.empty()) return;
  const std::size_t count = thawed.size(), more = count > kNamed ? count - kNamed : 0;
  thawed.resize(count - more);
  throw RecipeError(
      {std::string(count == 1 ? "parameter " : "parameters ") + joined(thawed, ", ") +
           (more > 0 ? " and " + std::to_string(more) + " more" : "") +
           (count == 1 ? " was frozen when the run began and requires a gradient now, but no optimiser updates it"
                       : " were frozen when the run began and require a gradient now, but no optimiser updates them"),
       "set_requires_grad(true) in the recipe, before the log line of step " + std::to_string(step),
       "leave the layer trainable from the beginning, and detach() its output until the step at which the layer is to learn: "
       "a parameter without a gradient does not change"});
}

}  // namespace millrace
