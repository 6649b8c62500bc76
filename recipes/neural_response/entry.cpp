#include "recipes/neural_response/entry.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/poisson.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>

#include "millrace/base/error.h"
#include "recipes/common/entry.h"
#include "recipes/neural_response/entry_parts.h"
#include "recipes/neural_response/make_data.h"
#include "recipes/neural_response/recipe.h"
#include "recipes/neural_response/sessions/session_words.h"

namespace millrace::recipes::neural_response {
namespace {

bool needs_data(const Sections& own, const RunConfig& run) {
  return own.recipe.dataset_config.empty() && run.data.dir.empty() && own.recipe.units.empty();
}

void make_data(const std::string& preset, const std::filesystem::path& out, std::uint64_t seed) {
  // "small" for the preset "small_pc", because presets of the same size share their data
  const std::string size = preset.substr(0, preset.find('_'));
  write_sample_sessions(sample_size(sample_sessions_of(size), preset, "sessions"), out, seed);
}

// A training step for `millrace bench step`: random sessions whose fields have the shapes that the network takes, and the
// modulator pc (predictive coding). bench/step/shapes.py has the same shapes for Python.
BenchShape shape(std::string name, std::string help, const std::vector<std::int64_t>& sessions, std::int64_t batch) {
  return {.name = std::move(name),
          .help = std::move(help),
          .config = {{"recipe.units", sessions},
                     {"recipe.modulator.type", "pc"},
                     {"recipe.convnet.final_activation", "softplus"},
                     {"recipe.lambda_pred", 0.25},
                     {"optim.learning_rate", 1e-3},
                     {"optim.weight_decay", 1e-4},
                     {"data.batch_size", batch}},
          .batch = [](const Json& config, std::uint64_t seed) {
            const auto& all = config.at("recipe").at("units");
            const auto count = static_cast<std::int64_t>(all.size());
            const auto rows_of_all = config.at("data").at("batch_size").get<std::int64_t>();
            auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
            std::vector<Group> groups;
            std::int64_t position = 0;
            for (const auto& units : all) {
              const auto n = units.get<std::int64_t>(), session = static_cast<std::int64_t>(groups.size());
              const std::int64_t rows = rows_of_all / count + (session < rows_of_all % count ? 1 : 0);
              Group group{.name = "session" + std::to_string(session)};
              group.fields = {{"stim", at::rand({rows, 1, 25, 51, 51}, generator) - 0.5},
                              {"behavior", at::randn({rows, 42}, generator)},
                              {"robs", at::poisson(at::full({rows, n}, 0.2), generator)},
                              {"dfs", at::ones({rows, n})}};
              for (std::int64_t row = 0; row < rows; ++row) group.positions.push_back(position++);
              groups.push_back(std::move(group));
            }
            return Batch(std::move(groups));
          }};
}

// The names of the optimisations (rows of the switchboard) that matter to this recipe but not to every recipe.
std::vector<std::string> switches() {
  return {"channels_last",      "fused_dropout", "fused_gelu",     "bf16_weights", "fp32_products",
          "tried_convolutions", "file_index",    "hdf5_direct",    "joined_core",  "needed_only",
          "stencils",           "fused_pooling", "fused_rms_norm", "look_ahead",   "sample_cache"};
}

Guide guide() {
  return {{{"sessions grouped, one forward pass of the core",
            {"joined_core"},
            "100x compared with one forward pass for each sample; with everything off there is one for each session"},
           loading_in_parallel("0.03 to 2.0 it/s"),
           {"mixed precision", {"autocast", "bf16_weights"}, ""}},
          "0.03 to 2.0 it/s"};
}

std::vector<BenchShape> bench_shapes() {
  return {shape("cpu-small", "sessions of 60 and 40 units, 4 rows each, stimuli (4,1,25,51,51), modulator pc", {60, 40}, 8),
          shape("gpu-small", "4 sessions of 50 units, 8 rows each, modulator pc", std::vector<std::int64_t>(4, 50), 32),
          shape("gpu-guide", "preset full_pc: 20 sessions of 110 units, a batch of 256, modulator pc",
                std::vector<std::int64_t>(20, 110), 256)};
}

}  // namespace

Entry entry() {
  Entry entry = entry_of<NeuralResponse, Sections>("neural_response",
                                                   "spike counts of many recording sessions from stimulus and behaviour");
  entry.defaults = defaults();
  entry.presets = presets();
  entry.aliases = aliases();
  entry.named_configs = {{"recipe.model_config", [](const Json& tree, config::Layers::Foreign& file) {
                            return keys_of_model_file(tree, file.problems);
                          }}};
  entry.read_as = session_read_as;
  entry.needs_data = of_config<Sections>(needs_data);
  entry.make_data = make_data;
  entry.predicts = {
      .inputs = {{"stim", DType::u8, "[rows,1,lags,height,width]", "grey levels of the frames up to a bin"},
                 {"behavior", DType::f32, "[rows,variables]", "the eye's behaviour as the run's transforms make it"}},
      .outputs = {{"rates", DType::f32, "[rows,units]", "spikes per bin, the units of all sessions one after the other"}}};
  entry.bench_shapes = bench_shapes();
  entry.switches = switches();
  entry.guide = guide();
  return entry;
}

}  // namespace millrace::recipes::neural_response
