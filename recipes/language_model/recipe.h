// Recipe "language_model": predicts the next character of a text.
//   data     UTF-8 files, encoded once into a token file; windows of seq_len tokens
//   model    GPT-2-style decoder (model.h)
//   loss     cross-entropy of each next token
//   metrics  bits per character
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/data/files/tokenizer.h"
#include "millrace/data/sources/token_source.h"
#include "millrace/train/recipe/entry.h"
#include "recipes/language_model/config.h"
#include "recipes/language_model/model.h"
#include "recipes/language_model/pictures.h"

namespace millrace::recipes::language_model {

class LanguageModel final : public Recipe {
 public:
  LanguageModel(const Sections& sections, const Context& context);
  // Makes the recipe with a model and a tokenizer that exist already. The keys of `sections` about the model are ignored.
  LanguageModel(const Sections& sections, const Context& context, std::shared_ptr<Transformer> model,
                std::shared_ptr<const data::Tokenizer> tokenizer);

  [[nodiscard]] static std::vector<Problem> problems(const Sections& sections, const RunConfig& run);

  void before_training() override;  // encodes the sources; in a resumed run, with the snapshot's tokenizer
  data::Pipeline data(Split split) override;
  data::Pipeline test_data() override;
  Batch prepare(Batch batch) override;  // makes "input" and "target" from "tokens": int64 views, "target" one token later; sets
                                        // "tokens" to "input"
  Transformer& model() override;
  std::vector<Objective> objectives() override;
  void begin_validation() override { lost_ = {}; }
  void measure(const Batch& batch, const StepResult& result, metrics::Board& board) override;

  State state() const override;  // returns the tokenizer
  void load_state(const State& state) override;
  Tensors predict(const Tensors& inputs) override;  // takes "tokens" (B,T), any integers; returns "logits" (B,T,V)
  Facts facts() const override;
  std::vector<std::string> samples(std::int64_t step) override;  // texts of 300 characters
  std::vector<Picture> draw() override;

  // The characters of `prompt` that the model's vocabulary lacks, each once, as text, in the order of the prompt. Bytes that are
  // not UTF-8 are ignored here, because write() refuses them.
  [[nodiscard]] std::vector<std::string> unknown_in(const std::string& prompt);
  // The model's continuation of `prompt`, without the prompt itself. An empty prompt becomes a line end.
  [[nodiscard]] std::string write(const std::string& prompt, const GenerateConfig& config, bool beam);
  [[nodiscard]] const GenerateConfig& generate_config() const noexcept { return generate_; }

 private:
  // Token offsets at which the training, validation and test parts end.
  struct Cuts {
    std::int64_t training, validation, all;  // end of each part
  };
  Cuts cuts() const;
  std::vector<std::int64_t> counts_of(std::int64_t begin, std::int64_t end) const;
  void count_tokens(std::int64_t end);
  void note_unknown_tokens(std::int64_t begin, std::int64_t end) const;

  Context context_;
  RecipeConfig recipe_;
  GenerateConfig generate_;
  nn::Fused fused_;
  std::shared_ptr<const data::Tokenizer> tokenizer_;
  std::shared_ptr<const data::TokenArray> tokens_;
  std::vector<data::FileStamp> files_;    // the files from which the tokens were made
  std::vector<std::int64_t> trained_on_;  // how often each token occurs in the training text, or in samples of it
  std::string read_as_;                   // how the text was read, in words
  std::optional<BlindAnswer> blind_;
  std::shared_ptr<Transformer> model_;
  TokenLosses lost_;  // losses of single tokens in the present validation
};

}  // namespace millrace::recipes::language_model
