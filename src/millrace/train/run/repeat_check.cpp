#include "millrace/train/run/repeat_check.h"

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>

#include "millrace/base/format.h"

namespace millrace {
namespace {

constexpr double kOfDevice = 1e-3;

// The recipe without its prepare(), so that batches stay as the source gives them.
class AsRead final : public Recipe {
 public:
  explicit AsRead(Recipe& of) : of_(of) {}
  data::Pipeline data(Split split) override { return of_.data(split); }
  torch::nn::Module& model() override { return of_.model(); }
  std::vector<Objective> objectives() override { return of_.objectives(); }

 private:
  Recipe& of_;
};

// The first row in which the two tensors differ; -1 = no row.
std::int64_t differing_row(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type() || a.dim() == 0) return 0;
  if (a.is_cpu() ? a.equal(b) : a.allclose(b, kOfDevice, kOfDevice, /*equal_nan=*/true)) return -1;
  for (std::int64_t row = 0; row < a.size(0); ++row) {
    const at::Tensor x = a[row], y = b[row];
    // NaN is equal to NaN here.
    if (!((x == y) | ((x != x) & (y != y))).all().item<bool>()) return row;
  }
  return -1;
}

// Compares two batches. Returns the first difference, such as "field "x" of sample 5"; "" = both are the same.
std::string difference(const Batch& a, const Batch& b) {
  if (a.groups().size() != b.groups().size()) return "its number of groups";
  for (std::size_t g = 0; g < a.groups().size(); ++g) {
    const Group &one = a.groups()[g], &other = b.groups()[g];
    for (const auto& [name, tensor] : one.fields) {
      const auto found = other.fields.find(name);
      const std::int64_t row = found == other.fields.end() ? 0 : differing_row(tensor, found->second);
      if (row < 0) continue;
      const bool known = row < std::ssize(one.indices) && tensor.dim() > 0 && tensor.size(0) == one.rows();
      return "field " + quoted(name) + " of " +
             (known ? "sample " + std::to_string(one.indices[static_cast<std::size_t>(row)]) : "row " + std::to_string(row)) +
             (one.name.empty() ? "" : " of data set " + quoted(one.name));
    }
  }
  return "";
}

// True if both states of a board have the same sums. Sums that a GPU computed may differ in their last bits.
bool same(const Json& a, const Json& b) {
  constexpr double kLastBits = 1e-6;
  if (a.is_number_float() && b.is_number_float()) {
    const auto x = a.get<double>(), y = b.get<double>();
    return x == y || std::abs(x - y) <= kLastBits * std::max(std::abs(x), std::abs(y));
  }
  if (a.type() != b.type() || a.size() != b.size()) return false;
  if (!a.is_structured()) return a == b;
  return std::equal(a.begin(), a.end(), b.begin(), [](const Json& x, const Json& y) { return same(x, y); });
}

}  // namespace

std::string check_batch_repeats(const Assembly& assembly, Split split, const Batch& first) {
  const std::optional<Batch> again = assembly.trial_batch(split);
  const std::string what = again ? difference(first, *again) : "";
  if (what.empty()) return "";
  AsRead unprepared(assembly.recipe());
  const std::optional<Batch> read = assembly.trial_batch(split, &unprepared),
                             read_again = assembly.trial_batch(split, &unprepared);
  const bool by_source = read && read_again && !difference(*read, *read_again).empty();
  return what + " differs when " + to_text(first.origin()) + " is " + (by_source ? "read" : "prepared") +
         " again: a resumed run would not continue as this one does, and no run can be repeated. " +
         (by_source
              ? "Take random numbers in read() from its argument `random` (SampleRandom of generate() and map())"
              : "Derive random numbers in prepare() from batch.epoch() and the positions of the rows (nn::normal_rows, Philox of "
                "make_key())") +
         ", not from a generator with a state";
}

std::string check_metrics_repeat(Recipe& recipe, const Batch& batch, const StepResult& result, const metrics::Board& first) {
  metrics::Board again;
  recipe.begin_validation();
  recipe.measure(batch, result, again);
  recipe.end_validation(again);
  recipe.begin_validation();
  const Json before = first.state(), after = again.state();
  const Json& entries = before.at("entries");
  for (const Json& entry : after.at("entries")) {
    const auto same_name = [&](const Json& other) { return other.at("name") == entry.at("name"); };
    const auto found = std::ranges::find_if(entries, same_name);
    if (found != entries.end() && same(*found, entry)) continue;
    return "metric " + quoted(entry.at("name").get<std::string>()) + " has another value when " + to_text(batch.origin()) +
           " is measured again, as in the next validation: reset in begin_validation() what measure() has stored, and derive the "
           "random numbers of measure() from the batch's epoch and positions";
  }
  return "";
}

std::string probabilities_in(const StepResult& result) {
  constexpr double kSmall = 1e-3;
  for (const Loss& loss : result.losses) {
    const auto found = loss.outputs.find("logits");
    if (found == loss.outputs.end()) continue;
    const at::Tensor& logits = found->second;
    if (!logits.is_floating_point() || logits.dim() < 2 || logits.size(-1) < 2 || logits.numel() == 0) continue;
    const at::Tensor values = logits.to(at::kFloat);
    const bool within = ((values >= 0) & (values <= 1)).all().item<bool>();
    if (!within || !((values.sum(-1) - 1).abs() <= kSmall).all().item<bool>()) continue;
    return "the output \"logits\" holds probabilities: each row sums to 1. A cross-entropy takes the values before a softmax, "
           "and learns slowly from those after it";
  }
  return "";
}

}  // namespace millrace
