#include "recipes/image_pairs/entry.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/config/arguments.h"
#include "millrace/config/schema_of.h"
#include "millrace/telemetry/console.h"
#include "recipes/common/entry.h"
#include "recipes/image_pairs/commands.h"
#include "recipes/image_pairs/entry_parts.h"
#include "recipes/image_pairs/make_data.h"
#include "recipes/image_pairs/pairs.h"
#include "recipes/image_pairs/recipe.h"

namespace millrace::recipes::image_pairs {
namespace {

bool needs_data(const Sections& own, const RunConfig& run) {
  return own.recipe.labels.empty() && own.recipe.train_pairs.empty() && run.data.dir.empty();
}

DataOptions data_options_of(const Sections& own, const RunConfig& /*run*/) {
  if (own.recipe.photographs.empty()) return {};
  return {{"clean", std::filesystem::absolute(own.recipe.photographs).lexically_normal().string()}};
}

void make_data(const std::string& preset, const std::filesystem::path& out, std::uint64_t seed) {
  write_sample_images(sample_size(sample_images_of(preset), preset, "images"), out, seed);
}

// The options of make-data that are also keys of a run and decide which pairs are drawn.
constexpr std::array<const char*, 5> kDrawOptions = {"folds", "per-class", "theta", "near-band", "near-ratio"};

// The config for drawing pairs. The options replace values of the preset, if one is named; the preset's values replace the
// defaults.
RecipeConfig draw_config(const std::string& preset, const DataOptions& options) {
  const config::Schema schema = config::schema_of<Sections>();
  Json recipe = Json::object();
  std::vector<Problem> problems;
  for (const char* const option : kDrawOptions) {
    const std::string key = config::with_underscores(option), path = "recipe." + key;
    for (const auto& [name, values] : presets()) {
      if (name == preset && values.contains(path)) recipe[key] = values.at(path);
    }
    const auto given = options.find(option);
    if (given == options.end()) continue;
    const std::size_t before = problems.size();
    recipe[key] = schema.find(path)->canonical(given->second, /*scalar_text=*/true, problems);
    for (std::size_t i = before; i < problems.size(); ++i) problems[i].where = "flag --" + given->first + "=" + given->second;
  }
  if (!problems.empty()) throw ConfigError(std::move(problems));
  return config::read<Sections>(Json{{"recipe", std::move(recipe)}}).recipe;
}

void make_data_with(const std::string& preset, const std::filesystem::path& out, std::uint64_t seed, const DataOptions& options) {
  const auto given = [&](const char* name) { return options.contains(name); };
  if (!given("pairs-from")) {
    for (const auto& [name, value] : options) {
      if (name == "clean") continue;
      throw UsageError({"--" + name + " has an effect only with --pairs-from", "millrace make-data", "give --pairs-from LABELS"});
    }
    SampleImages what = sample_size(sample_images_of(preset), preset, "images");
    what.clean = options.at("clean");
    return write_sample_images(what, out, seed);
  }
  if (given("clean"))
    throw UsageError(
        {"--clean makes images, but --pairs-from makes tables of existing images", "millrace make-data", "remove one of them"});
  const RecipeConfig recipe = draw_config(preset, options);
  constexpr std::int64_t kMostOfABin = 10;
  constexpr double kBin = 0.1;
  std::vector<Labelled> labels = read_labels(options.at("pairs-from"));
  std::vector<std::string> notices;
  check_groups(labels, options.at("pairs-from"), notices);
  telemetry::Console console(telemetry::Console::Mode::automatic, 2);
  for (const std::string& text : notices) console.notice(text);
  if (given("interval-sample")) labels = even_in_score(std::move(labels), kMostOfABin, kBin, seed);
  (void)write_pair_files(Fs::real(), labels, recipe, out, seed);
}

// A shape for measuring a step: a frozen tower, a projector and a decoder with adapters, on pairs in both orders.
// bench/step/shapes.py has the same shapes for Python.
BenchShape shape(std::string name, std::string help, Json config, const std::string& question, std::int64_t pairs) {
  config.update({{"recipe.question", question}, {"recipe.freeze_base", true}, {"data.batch_size", pairs}});
  return {.name = std::move(name),
          .help = std::move(help),
          .config = std::move(config),
          .batch = of_config<Sections>([](const Sections& own, const RunConfig& run, std::uint64_t seed) {
            auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
            const std::int64_t rows = run.data.samples_per_batch(), side = own.recipe.image_size;
            return Batch(Tensors{{"pixels", at::randn({rows, 2, 3, side, side}, generator)},
                                 {"label", at::randint(0, 3, {rows}, generator, at::kLong)}});
          })};
}

// The names of the switchboard rows that matter to this recipe but not to every recipe.
std::vector<std::string> switches() {
  return {"fused_dropout", "fused_attention", "fused_norm",    "fused_gelu",   "bf16_weights",
          "fp32_products", "fused_rms_rows",  "fused_swiglu",  "fused_rotary", "merged_lora",
          "last_position", "shared_features", "feature_cache", "look_ahead",   "sample_cache"};
}

Guide guide() {
  return {
      {{"mixed precision", {"autocast", "bf16_weights"}, "bf16 by default"}, loading_in_parallel("pinned, 4 readers and more")},
      "2-5 samples/s on its GPU"};
}

std::vector<BenchShape> bench_shapes() {
  return {shape("cpu-small",
                "frozen tower 192x6 on 64 px, decoder 256x4 with LoRA, 4 pairs in both orders, 128 image and 11 other tokens",
                network({64, 8, 192, 6, 3, 768, -1}, {256, 4, 4, 688, ByteTokens::kSize}), "Cleaner?", 4),
          shape("gpu-small",
                "frozen tower 384x8 on 112 px, decoder 1024x8 with LoRA, 8 pairs in both orders, 128 image and 11 other tokens",
                network({112, 14, 384, 8, 6, 1536, -1}, {1024, 8, 16, 2752, ByteTokens::kSize}), "Cleaner?", 8),
          shape("gpu-guide",
                "preset full: LLaVA-1.5-7B on 336 px with LoRA, 2 pairs in both orders, 1152 image and 56 other tokens; 28 GB "
                "of weights in fp32",
                network({336, 14, 1024, 24, 16, 4096, -2}, {4096, 32, 32, 11008, 32064}), RecipeConfig().question, 2)};
}

}  // namespace

Entry entry() {
  Entry entry = entry_of<ImagePairs, Sections>("image_pairs", "which of two images has the higher score");
  entry.defaults = defaults();
  entry.presets = presets();
  entry.aliases = aliases();
  entry.needs_data = of_config<Sections>(needs_data);
  entry.make_data = make_data;
  entry.data_options = {
      {"clean", "FOLDER", "crops of the photographs in this folder instead of textures"},
      {"pairs-from", "LABELS", "tables of pairs (train_fold<k>_<rows>.csv, eval_fold<k>_<rows>.csv) of labelled images"},
      {"interval-sample", "", "use at most 10 labelled images for each 0.1 of the score"},
      {"folds", "N", "number of folds, as recipe.folds (default 5)"},
      {"per-class", "N", "pairs of each answer, as recipe.per_class (default 15000, or that of --preset)"},
      {"theta", "X", "as recipe.theta (default 0.2)"},
      {"near-band", "X", "as recipe.near_band (default 0.15)"},
      {"near-ratio", "X", "as recipe.near_ratio (default 0.5)"}};
  entry.make_data_with = make_data_with;
  entry.data_options_of = of_config<Sections>(data_options_of);
  entry.predicts = {.inputs = {{"first", DType::u8, "[rows,height,width,3]", "RGB, height and width recipe.image_size"},
                               {"second", DType::u8, "[rows,height,width,3]", "the image to compare it with"}},
                    .outputs = {{"answers", DType::f32, "[rows,3]", "probabilities of First, Second and Similar"},
                                {"mirrored", DType::f32, "[rows,3]",
                                 "probabilities for the other order of the images, with First and Second exchanged back"}}};
  const auto row = [] { return image_pairs::entry(); };
  entry.commands = {rank_command(row), adapter_command(row)};
  entry.bench_shapes = bench_shapes();
  entry.switches = switches();
  entry.guide = guide();
  return entry;
}

}  // namespace millrace::recipes::image_pairs
