#include "millrace/recipes/language_model/entry.h"

#include <ATen/ops/randint.h>

#include <ATen/CPUGeneratorImpl.h>

#include "millrace/base/error.h"
#include "millrace/config/schema_of.h"
#include "millrace/recipes/language_model/presets.h"
#include "millrace/recipes/language_model/recipe.h"
#include "millrace/train/config.h"

namespace millrace::recipes::language_model {
namespace {

bool needs_data(const Json& config) {
  return config.at("recipe").at("sources").empty() && config.at("data").at("dir").get<std::string>().empty();
}

void make_data(const std::string& preset, const std::filesystem::path& out, std::uint64_t seed) {
  const auto text = sample_text_of(preset);
  if (!text) {
    throw ConfigError(Message{"preset " + preset + " is meant for a text of yours and makes none", "preset " + preset,
                              "give --sources FILE, or take preset smoke, small or full"});
  }
  write_sample_text(*text, out, seed);
}

// The shape the step is timed at: random tokens, dropout everywhere.
BenchShape cpu_small() {
  return {.name = "cpu-small",
          .help = "384 wide, 6 layers, 6 heads, context 256, batch 8, dropout .1",
          .config = {{"recipe.model_embd", 384},
                     {"recipe.model_layer", 6},
                     {"recipe.model_head", 6},
                     {"recipe.model_positions", 256},
                     {"recipe.seq_len", 257},
                     {"recipe.vocab_size", 70},
                     {"data.batch_size", 8}},
          .batch = [](const Json& config, std::uint64_t seed) {
            const auto recipe = config::read<RecipeConfig>(config.at("recipe"));
            const auto rows = config::read<DataConfig>(config.at("data")).batch_size;
            auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
            const at::Tensor tokens = at::randint(4, recipe.vocab_size, {rows, recipe.seq_len}, generator, at::kLong);
            return Batch(
                Tensors{{"input", tokens.narrow(1, 0, recipe.seq_len - 1)}, {"target", tokens.narrow(1, 1, recipe.seq_len - 1)}});
          }};
}

}  // namespace

Entry entry() {
  return {.name = "language_model",
          .summary = "GPT-2-style decoder that learns to write from text files",
          .sections = config::schema_of<Sections>(),
          .defaults = defaults(),
          .presets = presets(),
          .aliases = aliases(),
          .make = [](const Json& config, const Context& context) { return std::make_unique<LanguageModel>(config, context); },
          .needs_data = needs_data,
          .make_data = make_data,
          .commands = {{"generate", "write text with a trained model", generate_command}},
          .bench_shapes = {cpu_small()}};
}

}  // namespace millrace::recipes::language_model
