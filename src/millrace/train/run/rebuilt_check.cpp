#include "millrace/train/run/rebuilt_check.h"

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>

#include "millrace/base/doing.h"
#include "millrace/base/finally.h"
#include "millrace/base/format.h"
#include "millrace/device/errors.h"
#include "millrace/device/free_memory.h"
#include "millrace/device/operation_census.h"
#include "millrace/snapshot/layout.h"
#include "millrace/system/process.h"
#include "millrace/train/assembly/model_state.h"
#include "millrace/train/recipe/recipe_guard.h"

namespace millrace {
namespace {

constexpr double kOnGpu = 1e-3;  // tolerance on a GPU, whose atomic additions give sums that differ from call to call

bool has_room(const torch::nn::Module& model, at::Device device) {
  constexpr std::uint64_t kShare = 4;  // the second recipe is made only if its model fits this many times into the free memory
  std::uint64_t bytes = 0;
  for (const at::Tensor& tensor : model.parameters()) bytes += tensor.nbytes();
  for (const at::Tensor& tensor : model.buffers()) bytes += tensor.nbytes();
  return kShare * bytes <= device::free_tensor_memory(device);
}

// Makes the second recipe with the same calls, in the same order, as load_for_inference() and evaluate().
std::unique_ptr<Recipe> rebuilt(const Assembly& assembly, const snapshot::Content& content) {
  RunSetup& setup = assembly.setup();
  Context context = setup.context();
  context.notice = nullptr;  // without notices, because the run's own recipe has shown them already
  context.places = {.run_folder = {}, .new_files = {}, .cache_folder = cache_folder()};
  const Entry& entry = *setup.request().entry;
  // The seed differs from the run's. So values that a recipe draws at random and does not save differ too, as they would in
  // another process.
  torch::manual_seed(~context.seed);
  std::unique_ptr<Recipe> recipe = make_guarded(entry.name, entry.make, setup.request().config.values, context);
  if (const State* saved = snapshot::part_of(content, snapshot::kRecipe)) {
    State state{.tensors = {}, .json = saved->json};
    for (const auto& [name, tensor] : saved->tensors)
      state.tensors[name] = tensor.clone();  // a copy, because the tensor may belong to the running recipe
    recipe->load_state(state);
  }
  const State* frozen = snapshot::part_of(content, snapshot::kFrozen);
  load_model_tensors(recipe->model(), content.models, frozen == nullptr ? Json() : frozen->json);
  recipe->model().to(context.device);
  const Choice* layout = setup.plan().find("device.layout");
  if (layout != nullptr && layout->value == "channels_last") recipe->set_layout(Layout::channels_last);
  recipe->model().eval();
  recipe->before_training();
  static_cast<void>(recipe->data(Split::validation));
  return recipe;
}

// Returns the name of a value of `saved` that is missing or different in the state of `recipe`, although the recipe has loaded
// `saved`; "" = there is none.
std::string not_taken(const State& saved, const Recipe& recipe) {
  State now;
  try {
    now = recipe.state();
  } catch (const RecipeError&) {  // not compared, because such a recipe has its complete state only within a run
    return "";
  }
  for (const auto& [name, tensor] : saved.tensors) {
    const auto found = now.tensors.find(name);
    if (found == now.tensors.end() || !found->second.cpu().equal(tensor.cpu())) return "tensor " + quoted(name);
  }
  return saved.json == now.json ? "" : "its JSON";
}

bool same(double a, double b, bool on_cpu) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b || (!on_cpu && std::abs(a - b) <= kOnGpu * std::max(std::abs(a), std::abs(b)));
}

bool same_fields(const Batch& a, const Batch& b) {
  const auto of_groups = [](const Group& x, const Group& y) {
    return std::ranges::all_of(x.fields, [&](const auto& field) {
      const auto found = y.fields.find(field.first);
      return found != y.fields.end() && found->second.sizes() == field.second.sizes() && found->second.equal(field.second);
    });
  };
  return a.groups().size() == b.groups().size() &&
         std::equal(a.groups().begin(), a.groups().end(), b.groups().begin(), of_groups);
}

// Compares the losses of both recipes. Returns "the loss of objective … is 3.1 in the run and 5.2 in a model loaded from the
// snapshot" for the first term that differs; "" = all terms are the same.
std::string difference(const Stepper& stepper, const StepResult& run, const StepResult& again) {
  const bool on_cpu = stepper.device().is_cpu();
  for (std::size_t i = 0; i < run.losses.size(); ++i) {
    const auto &terms = run.losses[i].terms, &others = again.losses.at(i).terms;
    const std::string name = "the loss of objective " + quoted(stepper.objective_name(i));
    if (terms.size() != others.size())
      return name + " has " + std::to_string(terms.size()) + " terms in the run and " + std::to_string(others.size()) +
             " in a model loaded from the snapshot";
    for (std::size_t k = 0; k < terms.size(); ++k) {
      const auto value = [](const LossTerm& term) { return std::pair(term.sum.item<double>(), term.count.item<double>()); };
      const auto [sum, count] = value(terms[k]);
      const auto [other_sum, other_count] = value(others[k]);
      if (same(sum, other_sum, on_cpu) && same(count, other_count, on_cpu)) continue;
      return name + (terms[k].name.empty() ? "" : ", term " + quoted(terms[k].name) + ",") + " is " +
             significant(sum / count, 9) + " in the run and " + significant(other_sum / other_count, 9) +
             " in a model loaded from the snapshot";
    }
  }
  return "";
}

RebuiltCheck compared(Assembly& assembly, const snapshot::Content& content) {
  const Stepper& stepper = assembly.stepper();
  const Split split = assembly.loaders().validation() != nullptr ? Split::validation : Split::train;
  const std::unique_ptr<Recipe> recipe = rebuilt(assembly, content);
  if (const State* saved = snapshot::part_of(content, snapshot::kRecipe)) {
    if (const std::string what = not_taken(*saved, *recipe); !what.empty())
      return {.warning = "load_state() does not restore what state() gave to the snapshot of step " +
                         std::to_string(content.step) + ": " + what +
                         " differs\n  where    Recipe::load_state()\n  next     take each tensor and the JSON from the argument "
                         "of load_state(): "
                         "a resumed run, eval and predict begin with them",
              .unchecked = ""};
  }
  Stepper other(*recipe, assembly.switches(), assembly.setup().timeline(),
                {.device = stepper.device(),
                 .seed = stepper.seed(),
                 .autocast = stepper.autocast(),
                 .total_steps = assembly.loaders().total_steps(),
                 .steps_per_epoch = assembly.loaders().steps_per_epoch(),
                 .global_batch = assembly.loaders().global_batch(),
                 .trains = false});
  other.begin_step(std::max<std::int64_t>(content.step - 1, 0));
  const std::optional<Batch> batch = assembly.trial_batch(split), again = assembly.trial_batch(split, recipe.get());
  if (!batch || !again) return {.warning = "", .unchecked = "no batch has a row"};
  if (!same_fields(*batch, *again)) {
    const std::optional<Batch> third = assembly.trial_batch(split);
    if (third && !same_fields(*batch, *third))
      return {.warning = "", .unchecked = "a batch that is prepared again has other values"};
  }
  const std::string found = difference(stepper, assembly.stepper().evaluate(*batch), other.evaluate(*again));
  if (found.empty()) return {};
  const std::string text =
      "the snapshot of step " + std::to_string(content.step) + " does not reproduce the run's numbers: for one " +
      (split == Split::validation ? "validation" : "training") + " batch " + found +
      "\n  where    the loss depends on something that neither model() nor state() holds; eval, predict and a resumed run lack it"
      "\n  next     register layers, parameters and buffers in model() (register_module, register_buffer), and return other "
      "learned values from state()";
  return {.warning = text, .unchecked = ""};
}

}  // namespace

RebuiltCheck check_rebuilt(Assembly& assembly, const snapshot::Content& content, double opening_seconds) {
  constexpr double kSeconds = 1, kShare = 0.01;
  const auto not_checked = [](std::string reason) { return RebuiltCheck{.warning = "", .unchecked = std::move(reason)}; };
  torch::nn::Module& model = assembly.recipe().model();
  if (opening_seconds > std::max(kSeconds, kShare * assembly.setup().timeline().total().wall))
    return not_checked("opening the data again takes " + human_duration(opening_seconds));
  if (!has_room(model, assembly.stepper().device())) return not_checked("there is no memory for a second model");
  const Doing task(Doing::Level::task, "the check of the first snapshot");
  const device::ExpectedReads of_the_check;
  const at::NoGradGuard no_grad;
  const bool training = model.is_training();
  return finally(
      [&]() -> RebuiltCheck {
        model.eval();
        try {
          return compared(assembly, content);
        } catch (const std::exception& error) {
          if (device::kind_of(error) != device::ErrorKind::other) {
            if (device::is_out_of_memory(error)) return not_checked("memory ran out");
            throw;
          }
          return {.warning = "the recipe can't be made again from the snapshot of step " + std::to_string(content.step) +
                             ", as eval would: " + error.what(),
                  .unchecked = ""};
        }
      },
      [&] { model.train(training); });
}

}  // namespace millrace
