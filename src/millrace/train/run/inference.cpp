// Loads a trained model for predict, eval and the recipes' own commands.
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/nn/module.h>

#include <array>
#include <optional>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/config/schema_of.h"
#include "millrace/device/convolution_guard.h"
#include "millrace/device/device.h"
#include "millrace/device/shared_cores.h"
#include "millrace/precision/gpu_settings.h"
#include "millrace/precision/precision.h"
#include "millrace/precision/tf32.h"
#include "millrace/system/process.h"
#include "millrace/train/assembly/convolution_choice.h"
#include "millrace/train/assembly/model_state.h"
#include "millrace/train/assembly/weights.h"
#include "millrace/train/loop/validation.h"
#include "millrace/train/recipe/recipe_guard.h"
#include "millrace/train/report/pictures.h"
#include "millrace/train/run/run.h"
#include "millrace/train/run_folder/run_folder.h"

namespace millrace {
namespace {

void override_values(config::Resolved& config, const Json& overrides) {
  for (const auto& [key, value] : overrides.items()) {
    config.values[config::pointer_to(key)] = value;
    config.origins[key] = "flag --" + key;
  }
}

// Throws if the run belongs to another recipe. Called before the run's config is read, because this recipe's schema would
// misread that config.
void require_recipe(Fs& fs, const Entry& entry, const std::filesystem::path& run) {
  const std::string recipe = recipe_of_run(fs, run);
  if (recipe.empty() || recipe == entry.name) return;
  throw UsageError({"the run in " + run.string() + " is of recipe " + recipe + ", not of " + entry.name, "--from",
                    "give a run of " + entry.name + ", or use this one with its own recipe: millrace eval " + recipe +
                        " --from " + run.string() + ", or millrace predict " + recipe + " ..."});
}

// The run's config, read through the recipe's schema. A key that was added to the schema after the run gets its default.
config::Resolved config_of_run(Fs& fs, const Entry& entry, const std::filesystem::path& run) {
  config::Resolved saved = read_config(fs, run);
  const auto refuse = [&](const std::string& what, const std::string& where) {
    throw SnapshotError({"the config of the run in " + run.string() + " does not belong to recipe " + entry.name + ": " + what,
                         where, "name a run of this recipe; to list the runs below ./runs with their recipes: millrace runs"});
  };
  const std::string file = (run / "config.json").string();
  const config::Schema schema = schema_of(entry);
  for (const auto& [section, help] : entry.sections.groups) {
    const auto place = config::pointer_to(section);
    if (!saved.values.contains(place) || !saved.values.at(place).is_object()) refuse("it has no section " + section, file);
  }
  config::Layers layers(schema);
  layers.add_values(known_values(schema, saved.values), file, folders_of_run(fs, run));
  try {
    saved.values = layers.resolve().values;
  } catch (const ConfigError& error) {
    refuse(error.problems().front().what, error.problems().front().where);
  }
  return saved;
}

// Prepares weights from a file that no run wrote; another program may have written the file. Calls the recipe's adopt_weights().
void adopt_file(const Entry& entry, Weights& weights, config::Resolved& config, telemetry::Console& console) {
  if (const std::string part = take_state_dict(weights); !part.empty()) weights.which += ", its " + part;
  if (const std::string words = take_common_wrappers(weights.models["model"]); !words.empty())
    console.notice("this prefix of all weight names in the file is ignored (wrappers such as torch.compile add it): " +
                   quoted(words));
  if (!entry.adopt_weights) return;
  for (const std::string& line : entry.adopt_weights(weights, config)) console.notice(line);
}

const Json* chosen(const Weights& weights, const char* option) {
  const auto choice = weights.choices.find(option);
  return choice != weights.choices.end() && choice->is_string() ? &*choice : nullptr;
}

// The number format from the command line; otherwise the format in which the run computed when it saved the snapshot.
std::optional<at::ScalarType> format_of_run(const RunConfig& config, const Switches& switches, const Weights& weights,
                                            const Json& overrides) {
  if (!switches.on("autocast")) return std::nullopt;
  if (!overrides.contains("precision.dtype") && chosen(weights, "precision.fallback") != nullptr) return std::nullopt;
  if (!config.precision.dtype.is_auto()) {
    constexpr std::array<const char*, 3> words = {"fp32", "bf16", "fp16"};
    return precision::format_of(words[static_cast<std::size_t>(config.precision.dtype.value())]);
  }
  const Json* format = chosen(weights, "precision.dtype");
  return format == nullptr ? std::nullopt : precision::format_of(format->get<std::string>());
}

bool is_channels_last(const RunConfig& config, const Switches& switches, const Weights& weights) {
  if (!switches.on("channels_last")) return false;
  if (!config.device.layout.is_auto()) return config.device.layout.value() == Layout::channels_last;
  const Json* layout = chosen(weights, "device.layout");
  return layout != nullptr && *layout == "channels_last";
}

}  // namespace

Loaded load_for_inference(const Entry& entry, const std::filesystem::path& from, const config::Resolved* config,
                          const Json& overrides, telemetry::Console& console) {
  Fs& fs = Fs::real();
  Loaded loaded;
  if (const std::filesystem::path run = run_folder_of(fs, from); !run.empty()) require_recipe(fs, entry, run);
  Weights weights = load_weights(fs, from, console);
  if (!weights.run.empty()) {
    loaded.config = config_of_run(fs, entry, weights.run);
  } else if (config != nullptr) {
    loaded.config = *config;
  } else {
    throw UsageError({"a file of weights does not say which shape its model has", from.string(),
                      "give the config with which the model was trained, by --config or --preset"});
  }
  override_values(loaded.config, overrides);
  if (weights.run.empty()) adopt_file(entry, weights, loaded.config, console);

  loaded.shared = std::make_unique<RunConfig>(config::read<RunConfig>(loaded.config.values));
  const RunConfig& shared = *loaded.shared;
  loaded.switches = std::make_shared<Switches>(shared.train.off);
  Context context;
  context.device = device::choose(shared.device.name).device;
  // Makes this GPU the default for calls that do not name a GPU, such as calls that lock memory. Otherwise such calls would use
  // the first GPU.
  if (!context.device.is_cpu()) c10::impl::VirtualGuardImpl(context.device.type()).setDevice(context.device);
  precision::use_gpu_settings(gpu_settings_of(shared, context.device), context.device);
  device::set_threads(static_cast<int>(shared.device.threads.value_or(device::cpu_info().physical_cores)));
  loaded.shared_cores = std::make_shared<device::SharedCores>();
  context.config = loaded.shared.get();
  context.switches = loaded.switches.get();
  context.places.cache_folder = cache_folder();
  context.seed = static_cast<std::uint64_t>(shared.train.seed);
  // The recipe gets no function for notices: the recipe may outlive the caller's console, and the run has shown the notices
  // already.
  loaded.recipe = make_guarded(entry.name, entry.make, loaded.config.values, context);
  // Not called for a plain file of weights, because such a file holds no state of a recipe.
  if (!weights.run.empty() || !weights.recipe.tensors.empty() || !weights.recipe.json.empty())
    loaded.recipe->load_state(weights.recipe);
  if (!weights.frozen.is_null())
    // the frozen parts are loaded from their own files, because the snapshot does not hold their weights
    load_frozen_parts(loaded.recipe->model(), [](const std::string&) {});
  if (const std::string notice = load_model_weights(loaded.recipe->model(), weights); !notice.empty()) console.notice(notice);
  loaded.recipe->model().to(context.device);
  if (is_channels_last(shared, *loaded.switches, weights)) loaded.recipe->set_layout(Layout::channels_last);
  loaded.recipe->model().eval();
  loaded.device = context.device;
  loaded.autocast = format_of_run(shared, *loaded.switches, weights, overrides);
  precision::use_tf32(precision::choose_tf32(shared.device.tf32_wish(), loaded.device, loaded.autocast), loaded.device);
  if (loaded.autocast == at::kBFloat16 && loaded.device.is_cpu()) {
    if (const auto choice = convolution_choice_in(weights.convolutions)) device::guard_also(choice->faults);
  }
  loaded.snapshot = weights.path;
  loaded.which = weights.which;
  return loaded;
}

namespace {

data::Pipeline pipeline_of(Recipe& recipe, EvaluatedSplit split) {
  const bool test = split == EvaluatedSplit::test;
  data::Pipeline pipeline = test ? recipe.test_data() : recipe.data(Split::validation);
  if (!pipeline.datasets.empty()) return pipeline;
  if (test) {
    throw UsageError({"the recipe has no test data", "flag --split",
                      "set the recipe's key for test data, if it has one, or remove --split=test"});
  }
  throw UsageError(
      {"the recipe has no validation data", "its validation split is empty", "point --data at data with a validation part"});
}

}  // namespace

Evaluation evaluate(Loaded& loaded, telemetry::Console& console, EvaluatedSplit split, bool draws) {
  const RunConfig& config = *loaded.shared;
  loaded.recipe->before_training();
  data::Pipeline pipeline = pipeline_of(*loaded.recipe, split);
  auto options = loader_options(config, *loaded.switches, pipeline, Split::validation, console);
  options.arena = slot_memory(config.data, loaded.device, /*ranks_here=*/1, options.warn).arena;
  data::Loader loader(std::move(pipeline), options);
  telemetry::Timeline timeline;
  Stepper stepper(*loaded.recipe, *loaded.switches, timeline,
                  {.device = loaded.device,
                   .seed = static_cast<std::uint64_t>(config.train.seed),
                   .autocast = loaded.autocast,
                   .trains = false});
  loaded.recipe->model().eval();
  const BatchContext context{.recipe = *loaded.recipe,
                             .timeline = nullptr,
                             .device = loaded.device,
                             .micro_batches = config.memory.micro_batches,
                             .ahead = loaded.switches->on("batch_ahead"),
                             .seed = stepper.seed()};
  const std::optional<Validated> validated = run_validation(context, stepper, loader, config.train.validate_batches);
  if (!validated) return {};
  Evaluation evaluation;
  const bool test = split == EvaluatedSplit::test;
  evaluation.metrics.set_quiet(validated->means.quiet_with(""));
  for (const auto& [name, value] : validated->means)
    evaluation.metrics[test && name.starts_with("val_") ? "test_" + name.substr(4) : name] = value;
  if (draws)
    evaluation.pictures = pictures_of(*loaded.recipe, validated->tables, test ? "of the test data" : "of the validation");
  return evaluation;
}

}  // namespace millrace
