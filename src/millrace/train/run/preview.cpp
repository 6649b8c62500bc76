#include "millrace/train/run/preview.h"

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <optional>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/snapshot/layout.h"
#include "millrace/snapshot/snapshot.h"
#include "millrace/system/process.h"
#include "millrace/train/assembly/assembly.h"
#include "millrace/train/assembly/weights.h"
#include "millrace/train/step/micro_batches.h"

namespace millrace {
namespace {

// The loader's state in the snapshot from which a run would resume. Null if there is no snapshot.
Json loader_state_of(const Preview& preview, telemetry::Console& console) {
  Fs& fs = Fs::real();
  const auto warn = [&](const std::filesystem::path& path, const std::string& reason) {
    console.warning(path.string() + " was skipped: " + reason);
  };
  const bool is_snapshot = preview.from != run_folder_of(fs, preview.from);
  const std::optional<snapshot::Content> content =
      is_snapshot ? snapshot::load(fs, preview.from) : snapshot::load_newest(fs, preview.from, warn);
  if (!content) return {};
  const State* loader = snapshot::part_of(*content, snapshot::kLoader);
  return loader == nullptr ? Json() : loader->json;
}

}  // namespace

Facts facts_of(const Recipe& recipe, std::span<const data::Dataset> datasets) {
  Facts facts = recipe.facts();
  for (const data::Dataset& dataset : datasets) {
    for (const Field& field : dataset.source->fields()) {
      std::vector<std::string> names = dataset.source->value_names(field.name);
      const auto said = facts.fields.find(field.name);
      if (!names.empty() && (said == facts.fields.end() || said->second.names.empty()))
        facts.fields[field.name].names = std::move(names);
    }
  }
  if (!facts.read_as.empty()) return facts;
  std::vector<std::string> texts;
  for (const data::Dataset& dataset : datasets) {
    std::string text = dataset.source->read_as();
    if (!text.empty() && std::ranges::find(texts, text) == texts.end()) texts.push_back(std::move(text));
  }
  facts.read_as = joined(texts, "; ");
  return facts;
}

void preview_batches(RunRequest request, const Preview& preview, const BatchVisitor& sees) {
  const SampleInput input(request, /*keeps=*/false);
  RunSetup setup(request);
  Json state;
  std::optional<Weights> weights;
  if (!preview.from.empty()) {
    state = loader_state_of(preview, *request.console);
    if (!state.is_null()) weights.emplace(load_weights(Fs::real(), preview.from, *request.console));
  }
  const std::unique_ptr<Recipe> recipe = setup.make_recipe(folders_to_look_in(), std::move(weights));
  const bool training = preview.split == Split::train;
  data::Pipeline pipeline = recipe->data(Split::train);
  if (!training) pipeline = recipe->data(Split::validation);  // called after data(Split::train), in the same order as in a run
  if (pipeline.datasets.empty()) {
    throw ConfigError({"recipe " + request.entry->name + " has no " + (training ? "training" : "validation") + " data",
                       training ? "data" : "flag --split",
                       training ? "name the recipe's input; see --help" : "show the training data with --split train"});
  }
  const std::vector<data::Dataset> datasets = pipeline.datasets;
  data::LoaderOptions options = setup.loader_options(pipeline, preview.split);
  options.readers = 0;
  data::Loader loader(std::move(pipeline), options);
  if (training && !state.is_null()) loader.load_state(state);
  const BatchContext context{.recipe = *recipe,
                             .timeline = &setup.timeline(),
                             .device = setup.context().device,
                             .split = preview.split,
                             .seed = setup.context().seed};
  recipe->model().train(training);
  const Facts facts = facts_of(*recipe, datasets);
  const at::NoGradGuard no_grad;
  std::int64_t seen = 0;
  while (seen < preview.batches) {
    std::optional<data::HostBatch> host = loader.next();
    if (!host && (seen > 0 || state.is_null())) break;
    if (!host) {  // no batch was left, because the snapshot was saved at the end of an epoch
      state = Json();
      continue;
    }
    for_each_micro_batch(context, std::move(*host), [&](const Batch& batch, MicroPosition) { sees(batch, datasets, facts); });
    ++seen;
  }
}

std::string name_of_row(const Group& group, const data::Dataset* dataset, std::int64_t row) {
  if (row >= static_cast<std::int64_t>(group.indices.size())) return "row " + std::to_string(row);
  const std::int64_t index = group.indices[static_cast<std::size_t>(row)];
  const std::string more = dataset == nullptr ? "" : dataset->source->describe(index);
  return "sample " + std::to_string(index) + (more.empty() ? "" : " (" + more + ")");
}

}  // namespace millrace
