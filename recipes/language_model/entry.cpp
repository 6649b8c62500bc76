#include "recipes/language_model/entry.h"

#include <ATen/ops/randint.h>

#include <ATen/CPUGeneratorImpl.h>

#include "millrace/base/error.h"
#include "recipes/common/entry.h"
#include "recipes/language_model/entry_parts.h"
#include "recipes/language_model/make_data.h"
#include "recipes/language_model/originals/weights.h"
#include "recipes/language_model/recipe.h"

namespace millrace::recipes::language_model {
namespace {

bool needs_data(const Sections& own, const RunConfig& run) { return own.recipe.sources.empty() && run.data.dir.empty(); }

void make_data(const std::string& preset, const std::filesystem::path& out, std::uint64_t seed) {
  const auto text = sample_text_of(preset);
  if (!text) {
    throw ConfigError(Message{"preset " + preset + " is meant for your own text and has no sample text", "preset " + preset,
                              "give --sources FILE, or take preset smoke, small or full"});
  }
  write_sample_text(*text, out, seed);
}

struct StepSize {
  std::int64_t width, layers, heads, context, batch, vocabulary;
};
// A training step for `millrace bench step`: random tokens, with dropout. bench/step/shapes.py has the same shapes for Python.
BenchShape shape(std::string name, std::string help, const StepSize& size) {
  return {.name = std::move(name),
          .help = std::move(help),
          .config = {{"recipe.model_embd", size.width},
                     {"recipe.model_layer", size.layers},
                     {"recipe.model_head", size.heads},
                     {"recipe.model_positions", size.context},
                     {"recipe.seq_len", size.context + 1},
                     {"recipe.vocab_size", size.vocabulary},
                     {"data.batch_size", size.batch}},
          .batch = of_config<Sections>([](const Sections& own, const RunConfig& run, std::uint64_t seed) {
            auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
            const std::int64_t length = own.recipe.seq_len;
            const at::Tensor tokens =
                at::randint(4, own.recipe.vocab_size, {run.data.samples_per_batch(), length}, generator, at::kLong);
            return Batch(Tensors{{"input", tokens.narrow(1, 0, length - 1)}, {"target", tokens.narrow(1, 1, length - 1)}});
          })};
}

// The names of the optimisations (rows of the switchboard) that matter to this recipe but not to every recipe.
std::vector<std::string> switches() {
  return {"fused_dropout", "fused_attention", "fused_norm",    "fused_gelu",
          "fused_loss",    "bf16_weights",    "fp32_products", "token_cache"};
}

Guide guide() {
  return {{{"no new mask in each forward pass", {"fused_attention"}, "5-15 % of the forward"},
           {"mixed precision", {"autocast", "bf16_weights"}, "1.5-2x, memory -25-30 %"},
           loading_in_parallel("10-20 % of loading"),
           {"no reads from the device", {"device_skip"}, "less overhead"}},
          "2-3x"};
}

std::vector<BenchShape> bench_shapes() {
  return {shape("cpu-small", "384 wide, 6 layers, 6 heads, context 256, batch 8, dropout .1", {384, 6, 6, 256, 8, 70}),
          shape("gpu-small", "cpu-small with a batch of 64", {384, 6, 6, 256, 64, 70}),
          shape("gpu-guide",
                "preset full: 768 wide, 12 layers, 12 heads, context 1024; batch 16, 50,304 tokens (GPT-2's 50,257, padded)",
                {768, 12, 12, 1024, 16, 50304})};
}

}  // namespace

Entry entry() {
  Entry entry = entry_of<LanguageModel, Sections>("language_model", "GPT-2-style decoder that learns to write from text files");
  entry.defaults = defaults();
  entry.presets = presets();
  entry.aliases = aliases();
  entry.convert_file = keys_of_original_file;
  entry.needs_data = of_config<Sections>(needs_data);
  entry.make_data = make_data;
  entry.adopt_weights = adopt_weights;
  entry.complete_weights = complete_weights;
  entry.predicts = {
      .inputs = {{"tokens", DType::i64, "[rows,length]", "ids of the model's tokenizer, at most recipe.model_positions long"}},
      .outputs = {{"logits", DType::f32, "[rows,length,vocabulary]", "of the token that follows each"}}};
  entry.commands = {{"generate", "write text with a trained model", generate_command}};
  entry.bench_shapes = bench_shapes();
  entry.switches = switches();
  entry.guide = guide();
  return entry;
}

}  // namespace millrace::recipes::language_model
