#include "recipes/language_model/generate.h"

#include <ATen/ops/log_softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "millrace/base/error.h"
#include "millrace/base/philox.h"

namespace millrace::recipes::language_model {
namespace {

using Tokens = std::vector<std::int64_t>;

class EvaluationMode {
 public:
  explicit EvaluationMode(torch::nn::Module& module) : module_(module), was_training_(module.is_training()) { module_.eval(); }
  ~EvaluationMode() { module_.train(was_training_); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  torch::NoGradGuard no_grad_;
  torch::nn::Module& module_;
  bool was_training_;
};

// The logits (rows, V) of the token after each of `texts`, which all have the same length. fp32, in CPU memory.
at::Tensor next_logits(Transformer& model, const std::vector<Tokens>& texts, std::int64_t max_context) {
  const auto length = static_cast<std::int64_t>(texts.front().size());
  const std::int64_t context = std::min({length, max_context, model.config().positions});
  std::vector<at::Tensor> rows;
  for (const Tokens& text : texts) {
    rows.push_back(at::tensor(at::ArrayRef<std::int64_t>(text).slice(static_cast<std::size_t>(length - context)), at::kLong));
  }
  const at::Tensor logits = model.forward(at::stack(rows).to(model.device()));
  return logits.select(1, context - 1).to(at::kCPU, at::kFloat).contiguous();
}

std::span<const float> values(const at::Tensor& row) {
  return {row.const_data_ptr<float>(), static_cast<std::size_t>(row.numel())};
}

double scored(double log_probability, std::size_t length, double penalty) {
  return log_probability / std::pow(static_cast<double>(std::max<std::size_t>(length, 1)), penalty);
}

struct Candidate {
  std::size_t parent = 0;
  std::int64_t token = 0;
  double log_probability = 0;
};

// Returns the `count` best extensions of `beams` by a token, the best first. Equally good extensions are sorted by beam, then by
// token.
std::vector<Candidate> extensions(const at::Tensor& log_probabilities, const std::vector<double>& so_far, std::size_t count) {
  std::vector<Candidate> all;
  for (std::size_t beam = 0; beam < so_far.size(); ++beam) {
    const auto row = values(log_probabilities[static_cast<std::int64_t>(beam)]);
    for (std::size_t token = 0; token < row.size(); ++token) {
      all.push_back({beam, static_cast<std::int64_t>(token), so_far[beam] + row[token]});
    }
  }
  count = std::min(count, all.size());
  std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count), all.end(),
                    [](const Candidate& a, const Candidate& b) {
                      if (a.log_probability != b.log_probability) return a.log_probability > b.log_probability;
                      return std::pair(a.parent, a.token) < std::pair(b.parent, b.token);
                    });
  all.resize(count);
  return all;
}

}  // namespace

std::int64_t choose_token(std::span<const float> logits, const GenerateConfig& config, double uniform) {
  MR_CHECK(!logits.empty(), "no logits to choose from");
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0U);
  std::size_t kept = config.temperature == 0 ? 1 : logits.size();
  if (config.top_k > 0) kept = std::min(kept, static_cast<std::size_t>(config.top_k));
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
                    [&](std::size_t a, std::size_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  if (kept == 1) return static_cast<std::int64_t>(order.front());

  std::vector<double> cumulative(kept);
  double sum = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    sum += std::exp((static_cast<double>(logits[order[i]]) - logits[order.front()]) / config.temperature);
    cumulative[i] = sum;
  }
  const auto first_reaching = [&](double share, std::size_t count) {
    const auto end = cumulative.begin() + static_cast<std::ptrdiff_t>(count);
    return std::min(static_cast<std::size_t>(std::lower_bound(cumulative.begin(), end, share) - cumulative.begin()), count - 1);
  };
  kept = first_reaching(config.top_p * sum, kept) + 1;
  return static_cast<std::int64_t>(order[first_reaching(uniform * cumulative[kept - 1], kept)]);
}

std::vector<std::int64_t> write_tokens(Transformer& model, Tokens prompt, const GenerateConfig& config, std::int64_t end) {
  MR_CHECK(!prompt.empty(), "a prompt has at least one token");
  const EvaluationMode evaluation(model);
  std::vector<Tokens> texts{std::move(prompt)};
  const std::size_t start = texts.front().size();
  for (std::int64_t i = 0; i < config.max_length; ++i) {
    const at::Tensor logits = next_logits(model, texts, config.max_context_length);
    Philox random(make_key(static_cast<std::uint64_t>(config.seed), i));
    const std::int64_t token = choose_token(values(logits), config, random.uniform());
    if (token == end) break;
    texts.front().push_back(token);
  }
  return {texts.front().begin() + static_cast<std::ptrdiff_t>(start), texts.front().end()};
}

BeamResult beam_search(Transformer& model, const Tokens& prompt, const GenerateConfig& config, std::int64_t end,
                       double length_penalty) {
  MR_CHECK(!prompt.empty(), "a prompt has at least one token");
  const EvaluationMode evaluation(model);
  std::vector<Tokens> beams{prompt};
  std::vector<double> log_probabilities{0.0};
  std::optional<BeamResult> best;
  const auto offer = [&](const Tokens& text, double log_probability, std::size_t length) {
    const double score = scored(log_probability, length, length_penalty);
    if (best && best->score >= score) return;
    best = BeamResult{{text.begin() + static_cast<std::ptrdiff_t>(prompt.size()), text.end()}, log_probability, score};
  };
  for (std::int64_t i = 0; i < config.max_length && !beams.empty(); ++i) {
    const at::Tensor step = at::log_softmax(next_logits(model, beams, config.max_context_length), -1);
    std::vector<Tokens> next_beams;
    std::vector<double> next_log_probabilities;
    for (const Candidate& candidate : extensions(step, log_probabilities, static_cast<std::size_t>(config.beam_size))) {
      Tokens text = beams[candidate.parent];
      if (candidate.token == end) {
        offer(text, candidate.log_probability, text.size() - prompt.size() + 1);
        continue;
      }
      text.push_back(candidate.token);
      next_beams.push_back(std::move(text));
      next_log_probabilities.push_back(candidate.log_probability);
    }
    beams = std::move(next_beams);
    log_probabilities = std::move(next_log_probabilities);
  }
  for (std::size_t i = 0; i < beams.size(); ++i) offer(beams[i], log_probabilities[i], beams[i].size() - prompt.size());
  return best.value_or(BeamResult{});
}

}  // namespace millrace::recipes::language_model
