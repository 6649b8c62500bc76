#include "millrace/recipes/image_pairs/entry.h"

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
#include "millrace/recipes/image_pairs/aliases.h"
#include "millrace/recipes/image_pairs/commands.h"
#include "millrace/recipes/image_pairs/make_data.h"
#include "millrace/recipes/image_pairs/pairs.h"
#include "millrace/recipes/image_pairs/presets.h"
#include "millrace/recipes/image_pairs/recipe.h"

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
  const auto size = sample_images_of(preset);
  if (!size) throw ConfigError(Message{"preset " + preset + " makes no images", "preset " + preset, "take smoke, small or full"});
  write_sample_images(*size, out, seed);
}

// Keys of a run that say which pairs are drawn, as options of make-data.
constexpr std::array<const char*, 5> kDrawOptions = {"folds", "per-class", "theta", "near-band", "near-ratio"};

// The options over the preset's values, where a preset is named, over the keys' defaults.
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
      throw UsageError({"--" + name + " is about the tables of --pairs-from", "millrace make-data", "give --pairs-from LABELS"});
    }
    auto what = sample_images_of(preset);
    if (!what)
      throw ConfigError(Message{"preset " + preset + " makes no images", "preset " + preset, "take smoke, small or full"});
    what->clean = options.at("clean");
    return write_sample_images(*what, out, seed);
  }
  if (given("clean"))
    throw UsageError(
        {"--clean makes images, --pairs-from tables of images that are there", "millrace make-data", "leave one away"});
  const RecipeConfig recipe = draw_config(preset, options);
  constexpr std::int64_t kMostOfABin = 10;
  constexpr double kBin = 0.1;
  std::vector<Labelled> labels = read_labels(options.at("pairs-from"));
  if (given("interval-sample")) labels = even_in_score(std::move(labels), kMostOfABin, kBin, seed);
  (void)write_pair_files(Fs::real(), labels, recipe, out, seed);
}

// A frozen tower, a projector and a decoder with adapters, on four pairs in both orders.
BenchShape cpu_small() {
  constexpr std::int64_t kSize = 64;
  return {.name = "cpu-small",
          .help = "frozen tower 192x6 on 64 px, decoder 256x4 with LoRA, 4 pairs in both orders, 128 image and 11 other tokens",
          .config = {{"recipe.image_size", kSize},
                     {"recipe.patch_size", 8},
                     {"recipe.vision_width", 192},
                     {"recipe.vision_layers", 6},
                     {"recipe.vision_heads", 3},
                     {"recipe.vision_hidden", 768},
                     {"recipe.vision_feature_layer", -1},
                     {"recipe.decoder_width", 256},
                     {"recipe.decoder_layers", 4},
                     {"recipe.decoder_heads", 4},
                     {"recipe.decoder_hidden", 688},
                     {"recipe.vocab_size", ByteTokens::kSize},
                     {"recipe.question", "Cleaner?"},
                     {"recipe.freeze_base", true},
                     {"data.batch_size", 4}},
          .batch = [](const Json& config, std::uint64_t seed) {
            auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
            const auto rows = config.at("data").at("batch_size").get<std::int64_t>();
            return Batch(Tensors{{"pixels", at::randn({rows, 2, 3, kSize, kSize}, generator)},
                                 {"label", at::randint(0, 3, {rows}, generator, at::kLong)}});
          }};
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
      {"interval-sample", "", "of them at most 10 images per 0.1 of the score"},
      {"folds", "N", "of the tables, as recipe.folds (default 5)"},
      {"per-class", "N", "pairs of each answer, as recipe.per_class (default 15000, or that of --preset)"},
      {"theta", "X", "as recipe.theta (default 0.2)"},
      {"near-band", "X", "as recipe.near_band (default 0.15)"},
      {"near-ratio", "X", "as recipe.near_ratio (default 0.5)"}};
  entry.make_data_with = make_data_with;
  entry.data_options_of = of_config<Sections>(data_options_of);
  entry.predicts = {
      .inputs = {{"first", DType::u8, "[rows,height,width,3]", "RGB, height and width recipe.image_size"},
                 {"second", DType::u8, "[rows,height,width,3]", "the image to compare it with"}},
      .outputs = {{"answers", DType::f32, "[rows,3]", "probabilities of First, Second and Similar"},
                  {"mirrored", DType::f32, "[rows,3]", "the same with the images in the other order, exchanged back"}}};
  const auto row = [] { return image_pairs::entry(); };
  entry.commands = {rank_command(row), adapter_command(row)};
  entry.bench_shapes = {cpu_small()};
  return entry;
}

}  // namespace millrace::recipes::image_pairs
