#include "recipes/neural_response/checks.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/field.h"
#include "millrace/base/format.h"

namespace millrace::recipes::neural_response {
namespace {

std::string text_of(const Known& session) {
  return quoted(session.shape.name) + " of " + std::to_string(session.shape.units) + " units";
}

Shape shape_of(const at::Tensor& tensor) { return {tensor.sizes().begin(), tensor.sizes().end()}; }

// Returns the name that the parameter `name` of an adapter has in the pretrained weights, in which sessions may have other
// numbers than here. "" if these weights lack the session.
std::string adapter_there(const std::string& name, const std::vector<SessionShape>& here, const Json& there) {
  if (!there.is_array() || there.empty()) return name;
  const std::size_t begin = std::string_view("adapters.").size(), end = std::min(name.find('.', begin), name.size());
  const std::string& session = here.at(std::stoul(name.substr(begin, end - begin))).name;
  for (std::size_t i = 0; i < there.size(); ++i) {
    if (there[i].is_object() && there[i].value("name", Json()) == Json(session))
      return name.substr(0, begin) + std::to_string(i) + name.substr(end);
  }
  return "";
}

void check_stages(const ConvnetConfig& convnet, std::vector<Problem>& problems) {
  for (std::size_t i = 0; i < convnet.stages.size(); ++i) {
    const StageConfig& stage = convnet.stages[i];
    if (stage.pool_stride > 0 && stage.squeeze > stage.channels) {
      problems.push_back({"stage " + std::to_string(i) + " squeezes " + std::to_string(stage.channels) + " channels by " +
                              std::to_string(stage.squeeze) + ", which leaves no channel for the gate",
                          "recipe.convnet.stages", "lower squeeze to at most the number of channels"});
    }
  }
}

}  // namespace

std::vector<Problem> problems_of(const RecipeConfig& recipe, const RunConfig& run) {
  std::vector<Problem> problems;
  if (recipe.loss_type == LossType::zip) {
    problems.push_back({"loss_type zip needs a model that predicts the share of silent bins; no model here does",
                        "recipe.loss_type", "take poisson"});
  }
  const bool any_vision = recipe.adapter.type != AdapterType::none || recipe.frontend.type != FrontendType::none ||
                          recipe.convnet.type != ConvnetType::none;
  if (!any_vision && recipe.readout.type == ReadoutType::gaussian) {
    problems.push_back({"a gaussian readout needs vision (an adapter, a frontend or a convnet), but this model has none",
                        "recipe.readout.type", "set recipe.readout.type=linear"});
  }
  if (!any_vision && recipe.modulator.type == ModulatorType::none)
    problems.push_back(
        {"a model without vision and without modulator sees nothing", "recipe.modulator.type", "choose a modulator"});
  if (recipe.modulator.kernel_size % 2 == 0) {
    problems.push_back(
        {"the recurrent net's kernel has " + std::to_string(recipe.modulator.kernel_size) + " rows, an even number",
         "recipe.modulator.kernel_size", "use an odd number, so that frames keep their size"});
  }
  check_stages(recipe.convnet, problems);
  const bool has_data = !recipe.dataset_config.empty() || !run.data.dir.empty();
  if (has_data && !recipe.units.empty()) {
    problems.push_back({"recipe.units is set, but the data define the units", "recipe.units", "remove recipe.units"});
  }
  return problems;
}

void check_sessions(const std::vector<Known>& saved, const std::vector<Known>& found) {
  const auto same = [](const Known& a, const Known& b) { return a.shape.name == b.shape.name && a.cids == b.cids; };
  if (std::ranges::equal(saved, found, same)) return;
  const auto names = [](const std::vector<Known>& sessions) {
    std::vector<std::string> texts;
    for (const Known& session : sessions) texts.push_back(text_of(session));
    return joined(texts, ", ");
  };
  throw DataError({"the data have other sessions or units than the model: " + names(found) + "; the model has " + names(saved),
                   "the dataset file", "name the dataset file of the run, or start a new run with recipe.pretrained=<this run>"});
}

void check_inputs(const Tensors& inputs, const ModelConfig& config) {
  const auto stim = inputs.find("stim");
  if (stim == inputs.end())
    throw DataError({"no tensor \"stim\" is given", "the input of predict", "give frames [rows,1,lags,height,width]"});
  if (stim->second.dim() != 5 || stim->second.size(1) != 1 || stim->second.size(2) != config.lags) {
    throw DataError({"stim has shape " + to_text(shape_of(stim->second)) + ", the model takes [rows,1," +
                         std::to_string(config.lags) + ",height,width]",
                     "the input of predict",
                     "give the " + std::to_string(config.lags) + " frames up to each bin, in the run's order of lags"});
  }
  if (config.modulator.type == ModulatorType::none) return;
  const auto behavior = inputs.find("behavior");
  if (behavior == inputs.end() || behavior->second.dim() != 2 || behavior->second.size(1) != config.behavior_dim ||
      behavior->second.size(0) != stim->second.size(0)) {
    throw DataError(
        {"behavior " + (behavior == inputs.end() ? "is missing" : "has shape " + to_text(shape_of(behavior->second))) +
             ", the model takes [" + std::to_string(stim->second.size(0)) + "," + std::to_string(config.behavior_dim) + "]",
         "the input of predict", "give the variables of each bin as the run's transforms make them"});
  }
}

std::int64_t take_pretrained(DigitalTwin& model, const Tensors& weights, const Json& saved, const std::string& from) {
  const at::NoGradGuard no_grad;
  const Json sessions = saved.is_object() ? saved.value("sessions", Json()) : Json();
  std::int64_t taken = 0;
  for (auto& item : model.named_parameters()) {
    const std::string& name = item.key();
    const bool is_adapter = name.starts_with("adapters.");
    if (!is_adapter && !name.starts_with("frontend.") && !name.starts_with("convnet.")) continue;
    const auto found = weights.find(is_adapter ? adapter_there(name, model.sessions(), sessions) : name);
    if (found == weights.end() && is_adapter) continue;
    if (found == weights.end() || found->second.sizes() != item.value().sizes()) {
      throw SnapshotError({found == weights.end() ? "pretrained weights have no " + name
                                                  : "pretrained " + name + " has shape " + to_text(shape_of(found->second)) +
                                                        ", the model's has " + to_text(shape_of(item.value())),
                           from, "set recipe.frontend and recipe.convnet to those of that model"});
    }
    item.value().copy_(found->second);
    ++taken;
  }
  return taken;
}

}  // namespace millrace::recipes::neural_response
