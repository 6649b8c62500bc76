#include "millrace/train/assembly/model_state.h"

#include <torch/nn/module.h>

#include <set>
#include <span>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/field.h"
#include "millrace/base/format.h"
#include "millrace/base/hash.h"
#include "millrace/nn/weights.h"

namespace millrace {
namespace {

constexpr std::size_t kListed = 8;  // a message lists at most this number of names and ends with "and N more"

std::string shape_text(const at::Tensor& tensor) { return to_text(Shape(tensor.sizes().begin(), tensor.sizes().end())); }

bool leaves_out(const Json& frozen, const std::string& name) {
  return frozen.is_object() && frozen.contains("sha256") && frozen["sha256"].contains(name);
}

std::string hash_of(const at::Tensor& value) {
  const at::Tensor host = value.detach().to(at::kCPU).contiguous();
  Sha256 hash;
  hash.update(std::as_bytes(std::span(static_cast<const char*>(host.const_data_ptr()), host.nbytes())));
  return hash.hex();
}

void check_frozen(const Json& frozen, const Json& known, const std::string& name, const at::Tensor& value) {
  const std::string hash = leaves_out(known, name) ? known["sha256"][name].get<std::string>() : hash_of(value);
  if (frozen["sha256"][name] == hash) return;
  const std::string source = frozen.value("source", "");
  throw SnapshotError(
      {"the frozen weight " + quoted(name) + " is not the one this run was trained with, and the snapshot does not contain it",
       source.empty() ? "snapshot.frozen=leave_out" : "the run had it from " + source,
       "give the recipe the weights that the run was trained with, or start over with --fresh"});
}

}  // namespace

std::vector<std::string> frozen_names(const torch::nn::Module& model, const Stepper& stepper) {
  std::set<const void*> trained;
  for (const ObjectiveStep& objective : stepper.objectives()) {
    for (const auto& group : objective.optimizer().groups()) {
      for (const auto& parameter : group.parameters) trained.insert(parameter.value.unsafeGetTensorImpl());
    }
  }
  std::vector<std::string> names;
  for (const auto& item : model.named_parameters()) {
    if (!trained.contains(item.value().unsafeGetTensorImpl())) names.push_back(item.key());
  }
  return names;
}

Json record_of_frozen(const torch::nn::Module& model, const Stepper& stepper, const std::string& source) {
  Json hashes = Json::object();
  const auto parameters = model.named_parameters();
  for (const std::string& name : frozen_names(model, stepper)) hashes[name] = hash_of(parameters[name]);
  return {{"source", source}, {"sha256", std::move(hashes)}};
}

std::map<std::string, Tensors> model_tensors(const torch::nn::Module& model, const Stepper& stepper, const Json& frozen) {
  std::map<const void*, std::string> owner;
  if (stepper.objectives().size() > 1) {
    for (const ObjectiveStep& objective : stepper.objectives()) {
      for (const auto& group : objective.optimizer().groups()) {
        for (const auto& parameter : group.parameters)
          owner[parameter.value.unsafeGetTensorImpl()] = "model." + objective.spec().name;
      }
    }
  }
  std::map<std::string, Tensors> models;
  const auto put = [&](const std::string& name, const at::Tensor& value) {
    const auto it = owner.find(value.unsafeGetTensorImpl());
    models[it == owner.end() ? "model" : it->second][name] = value.detach();
  };
  for (const auto& item : model.named_parameters()) {
    if (!leaves_out(frozen, item.key())) put(item.key(), item.value());
  }
  for (const auto& item : model.named_buffers()) put(item.key(), item.value());
  return models;
}

void load_frozen_parts(torch::nn::Module& model, const std::function<void(const std::string&)>& notice) {
  for (const nn::NamedPart& found : nn::frozen_parts(model)) {
    for (auto& parameter : found.module->parameters())
      parameter.requires_grad_(false);  // also freezes layers that were registered after the part froze its parameters
    std::error_code missing;
    if (!std::filesystem::exists(found.part->file(), missing)) continue;
    for (const std::string& line : found.part->load_file(*found.module))
      notice("frozen part " + quoted(found.name) + " of " + found.part->file().string() + ": " + line);
  }
}

Json identities_of_frozen_parts(torch::nn::Module& model) {
  Json identities = Json::object();
  for (const nn::NamedPart& found : nn::frozen_parts(model)) {
    if (!found.part->identity().empty()) identities[found.name] = found.part->identity();
  }
  return identities;
}

void check_frozen_parts(torch::nn::Module& model, const Json& saved, bool left_out) {
  for (const nn::NamedPart& found : nn::frozen_parts(model)) {
    const auto before = saved.is_object() ? saved.find(found.name) : saved.end();
    if (!saved.is_object() || before == saved.end() || !before->is_string()) continue;
    const std::string identity = before->get<std::string>();
    if (found.part->identity().empty() && !left_out) {
      found.part->set_identity(identity);
    } else if (!found.part->identity().empty() && found.part->identity() != identity) {
      throw SnapshotError({"the frozen part " + quoted(found.name) + " is not the one this run was trained with",
                           found.part->file().string() + " holds other weights now",
                           "put back the file that the run was trained with, or start over with --fresh"});
    }
  }
}

void require_frozen_parts(torch::nn::Module& model) {
  for (const nn::NamedPart& found : nn::frozen_parts(model)) {
    if (!found.part->identity().empty()) continue;
    const std::string file = found.part->file().string();
    if (file.empty())
      throw DataError({"the frozen part " + quoted(found.name) + " of the model has no file to take its weights from",
                       "the recipe's model", "set the key that names its file, a .safetensors or .pt file"});
    throw DataError({"the file of the frozen part " + quoted(found.name) + " does not exist", file,
                     "give the path of a .safetensors or .pt file with its weights"});
  }
}

void load_model_tensors(torch::nn::Module& model, const std::map<std::string, Tensors>& models, const Json& frozen,
                        const Json& known) {
  const at::NoGradGuard no_grad;
  Tensors all;
  for (const auto& [file, tensors] : models) all.insert(tensors.begin(), tensors.end());
  std::vector<std::string> problems;
  const auto copy = [&](const std::string& name, at::Tensor target) {
    const auto it = all.find(name);
    if (it == all.end()) {
      problems.push_back(name + " is missing");
    } else if (it->second.sizes() != target.sizes()) {
      problems.push_back(name + " is " + shape_text(it->second) + ", but the model has " + shape_text(target));
    } else {
      target.copy_(it->second);
    }
    if (it != all.end()) all.erase(it);
  };
  for (const auto& item : model.named_parameters()) {
    if (leaves_out(frozen, item.key()) && !all.contains(item.key())) {
      check_frozen(frozen, known, item.key(), item.value());
    } else {
      copy(item.key(), item.value());
    }
  }
  for (const auto& item : model.named_buffers()) copy(item.key(), item.value());
  for (const auto& [name, tensor] : all) problems.push_back(name + " is not part of the model");
  if (problems.empty()) return;
  std::string list;
  for (std::size_t i = 0; i < std::min(problems.size(), kListed); ++i) list += (i == 0 ? "" : "; ") + problems[i];
  if (problems.size() > kListed) list += "; and " + std::to_string(problems.size() - kListed) + " more";
  throw SnapshotError({"the saved weights do not fit the model", list,
                       "use the config the weights were trained with, or start over with --fresh"});
}

std::string load_model_weights(torch::nn::Module& model, Weights& weights) {
  if (!weights.run.empty() || weights.models.size() != 1) {
    load_model_tensors(model, weights.models, weights.frozen);
    return "";
  }
  std::map<std::string, std::vector<std::int64_t>> wanted;
  for (const auto& item : model.named_parameters()) wanted[item.key()] = item.value().sizes().vec();
  for (const auto& item : model.named_buffers()) wanted[item.key()] = item.value().sizes().vec();
  Tensors& all = weights.models.begin()->second;
  std::string notice = pass_over_wrappers(all, wanted);
  const std::string part = part_with(all, wanted);
  const std::string file = weights.path.string();
  try {
    load_model_tensors(model, weights.models, weights.frozen);
  } catch (const SnapshotError& error) {
    throw SnapshotError(
        {error.message().what, error.message().where,
         part.empty() ? "use the config the weights were trained with: millrace inspect " + file + " lists their names and shapes"
                      : "take the part that has all of them: millrace import " + file + " --to weights.safetensors --part " +
                            part + ", and give that file"});
  }
  return notice;
}

}  // namespace millrace
