#include "millrace/train/recipe/recipe.h"

#include <ATen/ops/scalar_tensor.h>

#include "millrace/base/error.h"
#include "millrace/train/recipe/switchboard.h"

namespace millrace {

bool Context::on(std::string_view row) const { return switches == nullptr || switches->on(row); }

nn::Fused Context::fused() const {
  std::vector<nn::Switch> off;
  if (switches != nullptr) {
    for (const Switches::Setting& setting : switches->settings()) {
      if (!setting.on) off.push_back({setting.row->name});
    }
  }
  return nn::Fused::without(std::move(off));
}

at::Tensor StepContext::number(const StepNumbers::Number& number, at::Device device) const {
  if (numbers != nullptr) return numbers->place_of(number);
  return at::scalar_tensor(number(step, epoch), at::TensorOptions(at::kDouble).device(device));
}

Tensors Recipe::predict(const Tensors& /*inputs*/) {
  throw UsageError({"this recipe does not predict", "Recipe::predict is not overridden",
                    "use millrace eval, or give the recipe a predict method"});
}

}  // namespace millrace
