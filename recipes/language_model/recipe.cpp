#include "recipes/language_model/recipe.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <numeric>
#include <span>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/utf8.h"
#include "millrace/core/saved_json.h"
#include "millrace/train/recipe/config.h"
#include "millrace/train/step/model_size.h"
#include "recipes/language_model/checks.h"
#include "recipes/language_model/corpus.h"
#include "recipes/language_model/generate.h"

namespace millrace::recipes::language_model {
namespace {

std::uint32_t token_in(const std::vector<std::byte>& bytes, std::int64_t place, std::size_t token_bytes) {
  std::uint32_t token = 0;  // a token as the file has it: little-endian, like the CPUs on which this runs
  std::memcpy(&token, bytes.data() + static_cast<std::size_t>(place) * token_bytes, token_bytes);
  return token;
}

}  // namespace

// ---- 1 config: the keys and their defaults are in config.h, the named sizes in presets.cpp

std::vector<Problem> LanguageModel::problems(const Sections& sections, const RunConfig&) { return problems_of(sections.recipe); }

LanguageModel::LanguageModel(const Sections& sections, const Context& context)
    : context_(context), recipe_(sections.recipe), generate_(sections.generate), fused_(context.fused()) {}

LanguageModel::LanguageModel(const Sections& sections, const Context& context, std::shared_ptr<Transformer> model,
                             std::shared_ptr<const data::Tokenizer> tokenizer)
    : LanguageModel(sections, context) {
  model_ = std::move(model);
  tokenizer_ = std::move(tokenizer);
}

// ---- 2 data

void LanguageModel::before_training() {
  data::TextTokens text = read_corpus(recipe_, context_.config->data.dir, tokenizer_, context_);
  tokenizer_ = std::move(text.tokenizer);
  tokens_ = std::move(text.tokens);
  files_ = std::move(text.files);
  read_as_ = std::move(text.read_as);
}

LanguageModel::Cuts LanguageModel::cuts() const {
  const auto all = static_cast<double>(tokens_->size());
  const std::int64_t before_test = tokens_->size() - std::llround(recipe_.test_fraction * all);
  return {before_test - std::llround(recipe_.val_fraction * all), before_test, tokens_->size()};
}

// Counts each token in the text from `begin` to `end`. A long text is sampled at kPlaces places.
std::vector<std::int64_t> LanguageModel::counts_of(std::int64_t begin, std::int64_t end) const {
  constexpr std::int64_t kPlaces = 16, kLongest = 1 << 20;
  std::vector<std::int64_t> counts(tokens_->vocab_size());
  for (std::int64_t i = 0; i < kPlaces; ++i) {
    const std::int64_t first = begin + (end - begin) * i / kPlaces;
    const std::int64_t size = std::min(begin + (end - begin) * (i + 1) / kPlaces - first, kLongest);
    std::vector<std::byte> bytes(static_cast<std::size_t>(size) * tokens_->token_bytes());
    tokens_->read(first, size, bytes.data());
    for (std::int64_t k = 0; k < size; ++k) {
      const std::uint32_t token = token_in(bytes, k, tokens_->token_bytes());
      if (token < counts.size()) ++counts[token];
    }
  }
  return counts;
}

// Computes the loss of a model that knows only how often each token occurs.
void LanguageModel::count_tokens(std::int64_t end) {
  trained_on_ = counts_of(0, end);
  const auto all = std::max<std::int64_t>(std::accumulate(trained_on_.begin(), trained_on_.end(), std::int64_t{0}), 1);
  double entropy = 0;
  for (const std::int64_t count : trained_on_) {
    const double share = static_cast<double>(count) / static_cast<double>(all);
    if (count > 0) entropy -= share * std::log(share);
  }
  blind_ = BlindAnswer{.loss = entropy, .what = "the entropy of the training text's single tokens"};
}

// Reports characters of the validation text that the training text lacks, if their share is more than kFew.
void LanguageModel::note_unknown_tokens(std::int64_t begin, std::int64_t end) const {
  constexpr double kFew = 0.01;
  constexpr std::size_t kNamed = 5;
  if (trained_on_.empty() || begin >= end) return;
  const std::vector<std::int64_t> counts = counts_of(begin, end);
  std::int64_t all = 0, strange = 0;
  std::vector<std::string> named;
  for (std::size_t token = 0; token < counts.size(); ++token) {
    all += counts[token];
    if (counts[token] == 0 || trained_on_[token] > 0) continue;
    strange += counts[token];
    const auto id = static_cast<std::int64_t>(token);
    if (named.size() < kNamed) named.push_back(quoted(tokenizer_->decode(std::span(&id, 1))));
  }
  if (static_cast<double>(strange) <= kFew * static_cast<double>(all)) return;
  const auto documents = tokens_->documents();
  const auto last = static_cast<std::size_t>(std::ranges::lower_bound(documents, end) - documents.begin());
  context_.note(percent(static_cast<double>(strange) / static_cast<double>(all), 1) +
                " of the validation's characters do not occur in the training text: " + joined(named, " ") +
                ", …; the training text ends in " +
                quoted(last > 0 && last <= files_.size() ? files_[last - 1].name : "the last source") +
                ". Next: mix the sources, or validate on text of the same kind");
}

data::Pipeline LanguageModel::data(Split split) {
  const bool training = split == Split::train;
  if (!training && recipe_.val_fraction == 0) return {};
  const auto [end, validation_end, all] = cuts();
  if (training && !blind_) count_tokens(end);
  const data::TokenWindows windows = training ? data::TokenWindows{recipe_.seq_len, recipe_.overlap, 0, end}
                                              // windows without overlap, so that each token is judged once
                                              : data::TokenWindows{recipe_.seq_len, 0, end, validation_end};
  const auto source = std::make_shared<data::TokenSource>(tokens_, windows, files_);
  if (!training) note_unknown_tokens(end, validation_end);
  context_.note(with_commas(source->size()) + (training ? " training" : " validation") + " sequences, " +
                with_commas(source->tokens_left_out()) + " tokens left over at the end");
  return data::single(source);
}

data::Pipeline LanguageModel::test_data() {
  if (recipe_.test_fraction == 0) return {};
  const auto [end, validation_end, all] = cuts();
  return data::single(
      std::make_shared<data::TokenSource>(tokens_, data::TokenWindows{recipe_.seq_len, 0, validation_end, all}, files_));
}

Batch LanguageModel::prepare(Batch batch) {
  const at::Tensor tokens = batch["tokens"].to(at::kLong);
  const at::Tensor input = tokens.narrow(1, 0, tokens.size(1) - 1);
  batch.set("tokens", input);  // "tokens" is for predict(), which a rehearsal calls with rows of this batch
  batch.set("input", input);
  batch.set("target", tokens.narrow(1, 1, tokens.size(1) - 1));
  return batch;
}

// ---- 3 model

Transformer& LanguageModel::model() {
  if (!model_) {
    if (!tokenizer_ && recipe_.vocab_size == 0)
      before_training();  // without a snapshot, the vocabulary consists of the characters of the text
    const std::int64_t known = tokenizer_ ? tokenizer_->vocab_size() : 0;
    check_vocabulary(recipe_, known);
    const ModelConfig config = model_config(recipe_, std::max(known, recipe_.vocab_size));
    const ModelSize size = size_of_model(config);
    check_model_size(size.parameters, size.bytes,
                     "recipe.model_embd, recipe.model_layer, recipe.model_positions, recipe.vocab_size");
    model_ = std::make_shared<Transformer>(config, context_.seed, fused_);
  }
  return *model_;
}

// ---- 4 loss

std::vector<Objective> LanguageModel::objectives() {
  const auto batch_size = static_cast<double>(context_.config->data.samples_per_batch());
  const auto loss = [this, nominal = batch_size * static_cast<double>(recipe_.seq_len - 1)](const Batch& batch,
                                                                                            const StepContext& context) {
    const at::Tensor logits = model().forward(batch["input"]);
    auto [sum, count] = nn::cross_entropy_sum(logits, batch["target"], data::Tokenizer::kPad, fused_);
    Loss result{.terms = {{.sum = std::move(sum), .count = std::move(count), .nominal_count = nominal}}};
    if (!context.training)
      // Kept for the pictures; not in training, where the logits would take memory for too long.
      result.outputs["logits"] = logits;
    return result;
  };
  return {{.optim = context_.config->optim, .loss = loss}};
}

// ---- 5 metrics

void LanguageModel::measure(const Batch& batch, const StepResult& result, metrics::Board& board) {
  const LossTerm& loss = result.losses[0].term();
  board.add("bits_per_char", loss.sum / std::numbers::ln2, loss.count);
  board.lowest_is_best("bits_per_char");
  if (model().mask_cache_size() > 0) board.add("mask_cache_bytes", static_cast<double>(model().mask_cache_bytes()), 1.0);
  if (const auto logits = result.outputs().find("logits"); logits != result.outputs().end())
    lost_.add(logits->second, batch["target"], data::Tokenizer::kPad);
}

// ---- what a trained model is used for

State LanguageModel::state() const {
  State state;
  if (tokenizer_) state.json["tokenizer"] = tokenizer_->to_json();
  return state;
}

void LanguageModel::load_state(const State& state) {
  if (state.tensors.empty() && state.json.empty()) return;  // true if only weights were loaded
  const SavedJson saved = SavedJson(state.json, "recipe")["tokenizer"];
  auto tokenizer = data::Tokenizer::from_json(saved.json());
  if (tokens_ && tokenizer->fingerprint() != tokenizer_->fingerprint()) saved.refuse("the tokenizer of this run's text");
  tokenizer_ = std::move(tokenizer);
}

Tensors LanguageModel::predict(const Tensors& inputs) {
  return {{"logits", model().forward(checked_tokens(inputs, model().config())).to(at::kFloat)}};
}

std::vector<std::string> LanguageModel::unknown_in(const std::string& prompt) {
  if (!tokenizer_) before_training();  // without a snapshot, the vocabulary comes from the text, as in model()
  std::vector<std::string> unknown;
  if (tokenizer_->kind() != data::TokenizerKind::basic || first_invalid_utf8(prompt)) return unknown;
  for (std::size_t at = 0; at < prompt.size();) {
    const Utf8Step step = decode_utf8(prompt, at);
    std::string character = prompt.substr(at, step.size);
    at += step.size;
    const std::vector<std::int64_t> ids = tokenizer_->encode(character);
    const bool is_unknown = std::ranges::find(ids, std::int64_t{data::Tokenizer::kUnknown}) != ids.end();
    if (is_unknown && std::ranges::find(unknown, character) == unknown.end()) unknown.push_back(std::move(character));
  }
  return unknown;
}

std::string LanguageModel::write(const std::string& prompt, const GenerateConfig& config, bool beam) {
  if (!tokenizer_) before_training();  // without a snapshot, the vocabulary comes from the text, as in model()
  std::vector<std::int64_t> tokens = tokens_of_prompt(*tokenizer_, prompt);
  const auto written = beam ? beam_search(model(), tokens, config, data::Tokenizer::kEnd).tokens
                            : write_tokens(model(), std::move(tokens), config, data::Tokenizer::kEnd);
  return tokenizer_->decode(written);
}

std::vector<std::string> LanguageModel::samples(std::int64_t) {
  constexpr std::int64_t kCharacters = 300;
  constexpr std::int64_t kParametersMax = 20'000'000;  // no samples for larger models, which would keep a CPU busy for minutes
  if (!tokenizer_ || (context_.device.is_cpu() && parameter_count(model().config()) > kParametersMax)) return {};
  GenerateConfig config = generate_;
  config.max_length = kCharacters;
  constexpr std::int64_t kNoEnd = -1;  // no token ends the text, because an untrained model would soon draw an end by chance
  return {tokenizer_->decode(write_tokens(model(), tokens_of_prompt(*tokenizer_, config.prompt), config, kNoEnd))};
}

std::vector<Picture> LanguageModel::draw() {
  if (lost_.empty()) return {};
  return {draw_context(lost_), draw_losses(lost_)};
}

Facts LanguageModel::facts() const {
  Facts facts{.rate_unit = "tokens", .units_per_sample = static_cast<double>(recipe_.seq_len - 1)};
  const std::int64_t half = (recipe_.seq_len - 1) / 2 + 1;  // rounded up, because the last token is only a target
  if (half >= 32)
    facts.shrinks.push_back({.setting = "recipe.seq_len=" + std::to_string(half),
                             .part = static_cast<double>(half - 1) / static_cast<double>(recipe_.seq_len - 1)});
  if (model_) facts.lines["vocabulary"] = model_->config().vocab_size;
  if (tokens_) facts.lines["tokens"] = tokens_->size();
  facts.read_as = read_as_;
  for (const char* field : {"tokens", "input", "target"})
    facts.fields[field] = {.axes = {{.label = "position in the sequence", .unit = "tokens"}}, .value = "token"};
  facts.blind = blind_;
  return facts;
}

}  // namespace millrace::recipes::language_model
