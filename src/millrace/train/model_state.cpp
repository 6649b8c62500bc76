#include "millrace/train/model_state.h"

#include <torch/nn/module.h>

#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/field.h"

namespace millrace {
namespace {

constexpr std::size_t kListed = 8;  // names in a message before "and N more"

std::string shape_text(const at::Tensor& tensor) { return to_text(Shape(tensor.sizes().begin(), tensor.sizes().end())); }

}  // namespace

std::map<std::string, Tensors> model_tensors(const torch::nn::Module& model, const Stepper& stepper) {
  std::map<const void*, std::string> owner;
  if (stepper.objectives() > 1) {
    for (std::size_t i = 0; i < stepper.objectives(); ++i) {
      for (const auto& group : stepper.parameter_groups(i)) {
        for (const auto& parameter : group.parameters)
          owner[parameter.value.unsafeGetTensorImpl()] = "model." + stepper.objective_name(i);
      }
    }
  }
  std::map<std::string, Tensors> models;
  const auto put = [&](const std::string& name, const at::Tensor& value) {
    const auto it = owner.find(value.unsafeGetTensorImpl());
    models[it == owner.end() ? "model" : it->second][name] = value.detach();
  };
  for (const auto& item : model.named_parameters()) put(item.key(), item.value());
  for (const auto& item : model.named_buffers()) put(item.key(), item.value());
  return models;
}

void load_model_tensors(torch::nn::Module& model, const std::map<std::string, Tensors>& models) {
  const at::NoGradGuard no_grad;
  Tensors all;
  for (const auto& [file, tensors] : models) all.insert(tensors.begin(), tensors.end());
  std::vector<std::string> problems;
  const auto copy = [&](const std::string& name, at::Tensor target) {
    const auto it = all.find(name);
    if (it == all.end()) {
      problems.push_back(name + " is missing");
    } else if (it->second.sizes() != target.sizes()) {
      problems.push_back(name + " is " + shape_text(it->second) + ", the model has " + shape_text(target));
    } else {
      target.copy_(it->second);
    }
    if (it != all.end()) all.erase(it);
  };
  for (const auto& item : model.named_parameters()) copy(item.key(), item.value());
  for (const auto& item : model.named_buffers()) copy(item.key(), item.value());
  for (const auto& [name, tensor] : all) problems.push_back(name + " is not part of the model");
  if (problems.empty()) return;
  std::string list;
  for (std::size_t i = 0; i < std::min(problems.size(), kListed); ++i) list += (i == 0 ? "" : "; ") + problems[i];
  if (problems.size() > kListed) list += "; and " + std::to_string(problems.size() - kListed) + " more";
  throw SnapshotError({"the saved weights do not fit the model", list,
                       "use the config the weights were trained with, or start over with --fresh"});
}

}  // namespace millrace
