// The config sections "recipe" and "generate" of a language_model run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "millrace/config/field.h"
#include "millrace/data/files/text_tokens.h"

namespace millrace::recipes::language_model {

enum class Separator : std::uint8_t { none, eos };
enum class Positions : std::uint8_t { sinusoidal, learned };
enum class Activation : std::uint8_t { gelu, relu };
enum class Attention : std::uint8_t { causal, explicit_, math };

struct RecipeConfig {
  std::vector<std::string> sources;
  data::TokenizerKind tokenizer = data::TokenizerKind::basic;
  data::VocabularyFrom vocab_from = data::VocabularyFrom::all;
  Separator separator = Separator::none;
  std::int64_t seq_len = 512;
  std::int64_t overlap = 0;
  double val_fraction = 0.1;
  double test_fraction = 0;
  std::int64_t vocab_size = 0;
  std::int64_t model_positions = 1024;
  std::int64_t model_embd = 768;
  std::int64_t model_layer = 12;
  std::int64_t model_head = 12;
  Activation model_activation = Activation::gelu;
  double model_dropout = 0.1;
  std::optional<double> embd_pdrop;
  std::optional<double> attn_pdrop;
  std::optional<double> resid_pdrop;
  bool tied = true;
  bool embedding_scale = true;
  Positions positions = Positions::sinusoidal;
  double position_scale = 1.0;
  config::Auto<Attention> attention;

  static consteval auto fields() {
    using C = RecipeConfig;
    using config::field;
    return std::tuple{
        field<&C::sources>(
            "UTF-8 text files to learn from, in order; a folder stands for its .txt files. Empty: the .txt files of data.dir.")
            .path()
            .free_on_resume(),
        field<&C::tokenizer>("basic = lower-cased characters; bytes = the 256 byte values, which keep every text as it is."),
        field<&C::vocab_from>(
            "Part of the text from which the basic tokenizer takes its characters; all others become the unknown token."),
        field<&C::separator>("What separates two sources: nothing (none) or the end-of-text token (eos)."),
        field<&C::seq_len>("Tokens of a sequence; a step predicts seq_len - 1 of them.").min(2),
        field<&C::overlap>("Number of tokens that a sequence shares with the previous one.").min(0),
        field<&C::val_fraction>("Share of the text, at its end, that is kept for validation; 0 = no validation.").min(0).below(1),
        field<&C::test_fraction>(
            "Share of the text, after the validation part, that is kept for millrace eval --split=test; 0 = no test part.")
            .min(0)
            .below(1),
        field<&C::vocab_size>("Number of rows of the embedding; 0 = the number of the tokenizer's tokens.").min(0),
        field<&C::model_positions>("Longest context in tokens.").min(1),
        field<&C::model_embd>("Width of the model; even, and a multiple of model_head.").min(2),
        field<&C::model_layer>("Transformer blocks.").min(1),
        field<&C::model_head>("Attention heads of a block.").min(1),
        field<&C::model_activation>("Activation of the feed-forward layers; gelu is the exact one."),
        field<&C::model_dropout>("Dropout in all places for which the next three keys are not set.").min(0).below(1),
        field<&C::embd_pdrop>("Dropout of embeddings and positions.").min(0).below(1),
        field<&C::attn_pdrop>("Dropout of attention weights.").min(0).below(1),
        field<&C::resid_pdrop>(
            "Dropout of each branch that a block adds to the residual stream, and inside its feed-forward layer.")
            .min(0)
            .below(1),
        field<&C::tied>("The output layer shares the embedding's matrix."),
        field<&C::embedding_scale>("Multiply embeddings by sqrt(model_embd), so that they are larger than the positions."),
        field<&C::positions>("Fixed sines and cosines, or a learned table."),
        field<&C::position_scale>("Factor of the sines and cosines; 0.03 makes them as large as unscaled embeddings.").above(0),
        field<&C::attention>("causal = without a mask tensor; explicit = with a mask that is built once; math = the textbook "
                             "formula, in separate operations.")};
  }
};

struct GenerateConfig {
  std::string prompt;
  std::int64_t max_length = 100;
  double temperature = 0.8;
  std::int64_t top_k = 50;
  double top_p = 0.9;
  std::int64_t beam_size = 5;
  std::int64_t max_context_length = 1024;
  std::int64_t seed = 0;

  static consteval auto fields() {
    using C = GenerateConfig;
    using config::field;
    return std::tuple{field<&C::prompt>("Text to continue."),
                      field<&C::max_length>("Tokens to write after the prompt.").min(0),
                      field<&C::temperature>("Divides the logits; 0 = always the most likely token.").min(0),
                      field<&C::top_k>("Draw from this number of most likely tokens; 0 = from all tokens.").min(0),
                      field<&C::top_p>("Draw from the smallest set of tokens with this total probability.").above(0).max(1),
                      field<&C::beam_size>("Candidates that --beam keeps.").min(1),
                      field<&C::max_context_length>("Largest number of tokens that the model gets as context.").min(1),
                      field<&C::seed>("Seed of the draws; the same seed writes the same text.")};
  }
};

// The config sections that this recipe adds to a run.
struct Sections {
  RecipeConfig recipe;
  GenerateConfig generate;

  static consteval auto fields() {
    using C = Sections;
    using config::field;
    return std::tuple{field<&C::recipe>("The language model and its text."),
                      field<&C::generate>("Writing text.").free_on_resume()};
  }
};

}  // namespace millrace::recipes::language_model
