#include "millrace/train/run/loss_check.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/train/step/micro_batches.h"

namespace millrace {
namespace {

// The numbers of a term of the loss. They must add up over batches.
struct TermNumbers {
  double sum = 0, count = 0;
  // true if the term has a LossTerm::report: its count equals its sum, as in log(S/N), so shown_count is compared instead of the
  // count
  bool counts_itself = false;
  double shown_sum = 0, shown_count = 0;

  void add(const TermNumbers& other) {
    sum += other.sum;
    count += other.count;
    counts_itself = counts_itself || other.counts_itself;
    shown_sum += other.shown_sum;
    shown_count += other.shown_count;
  }
};
using Numbers = std::map<std::string, TermNumbers>;  // numbers by the term's name

Numbers numbers_of(const Loss& loss) {
  Numbers numbers;
  for (const LossTerm& term : loss.terms) {
    TermNumbers& of = numbers[term.name];
    of = {.sum = term.sum.item<double>(), .count = term.count.item<double>()};
    if (!term.report) continue;
    of.counts_itself = true;
    of.shown_sum = term.report->sum.item<double>();
    of.shown_count = term.report->count.item<double>();
  }
  return numbers;
}

std::vector<Numbers> numbers_of(const StepResult& result) {
  std::vector<Numbers> all;
  for (const Loss& loss : result.losses) all.push_back(numbers_of(loss));
  return all;
}

// The name of a field whose number of rows is not that of the batch. Such fields exist because prepare() may make several rows
// of a sample. "" = there is no such field.
std::string field_of_other_rows(const Batch& batch) {
  for (const Group& group : batch.groups()) {
    for (const auto& [name, tensor] : group.fields)
      if (tensor.dim() == 0 || tensor.size(0) != static_cast<std::int64_t>(group.positions.size())) return name;
  }
  return "";
}

// Returns the batch with other positions and another epoch, so that a loss that draws random numbers draws different numbers.
Batch elsewhere(const Batch& batch) {
  constexpr std::int64_t kAway = 1 << 20;
  std::vector<Group> groups = {};
  for (const Group& from : batch.groups()) {
    groups.push_back({.name = from.name, .fields = from.fields, .positions = from.positions, .indices = from.indices});
    for (std::int64_t& position : groups.back().positions) position += kAway;
  }
  BatchOrigin origin = batch.origin();
  ++origin.epoch;
  return Batch(std::move(groups), origin);
}

Batch reversed(const Batch& batch) {
  std::vector<Group> groups;
  for (const Group& from : batch.groups()) {
    Group group{.name = from.name, .fields = {}, .positions = from.positions, .indices = from.indices};
    for (const auto& [name, tensor] : from.fields) group.fields.emplace(name, tensor.flip(0));
    std::ranges::reverse(group.positions);
    std::ranges::reverse(group.indices);
    groups.push_back(std::move(group));
  }
  return Batch(std::move(groups), batch.origin());
}

struct Tolerance {
  // sum: tolerance relative to the sum; each: absolute tolerance for each counted item, because positive and negative addends
  // may cancel in the sum
  double sum, each;
};
// kWide for fp32 and tf32, kShort for bf16 and fp16
constexpr Tolerance kWide{.sum = 2e-3, .each = 1e-5}, kShort{.sum = 3e-2, .each = 1e-3};
constexpr double kOfCounts = 1e-4;

bool same_sum(double a, double b, double count, const Tolerance& tolerance) {
  if (!std::isfinite(a)) return true;  // counts as equal, because the rehearsal reports such a value separately
  return std::abs(a - b) <= tolerance.sum * std::max(std::abs(a), std::abs(b)) + tolerance.each * std::abs(count);
}

bool same_count(double a, double b) {
  return !std::isfinite(a) || std::abs(a - b) <= kOfCounts * std::max(std::abs(a), std::abs(b));
}

bool agree(const TermNumbers& a, const TermNumbers& b, const Tolerance& tolerance) {
  const double things = a.counts_itself ? a.shown_count : a.count;
  return same_sum(a.sum, b.sum, things, tolerance) && (a.counts_itself || same_count(a.count, b.count)) &&
         same_sum(a.shown_sum, b.shown_sum, things, tolerance) && same_count(a.shown_count, b.shown_count);
}

bool agree(const Numbers& a, const Numbers& b, const Tolerance& tolerance) {
  return std::ranges::all_of(a, [&](const auto& term) {
    const auto other = b.find(term.first);
    return other != b.end() && agree(term.second, other->second, tolerance);
  });
}

constexpr const char* kWayOut =
    "; if the loss compares rows with each other on purpose, give the reason in Objective::whole_batch";

// Returns what to change in a loss that gives the numbers `first` and `second` for the two halves of a batch.
std::string remedy(const TermNumbers& whole, const TermNumbers& first, const TermNumbers& second) {
  const TermNumbers& part = second;
  const double together = first.count + second.count;
  if (whole.count != 0 && whole.count == part.count)
    return "count the values that the sum adds up: values.sum() and values.numel(), not values.mean() and 1";
  const char* broadcast = "[rows,1] against [rows] gives [rows,rows]: unsqueeze(1) or squeeze(1) one of them";
  if (!same_count(whole.count, together) && whole.count > 1.5 * together)
    return std::string("look for shapes that broadcast, ") + broadcast;
  if (!same_count(whole.count, together)) return "count the values that the sum adds up, for any number of rows";
  return std::string("give values.sum() over all rows; look for shapes that broadcast (") + broadcast +
         "), a mean over dimension 0, statistics of the batch";
}

struct Place {
  const Stepper& stepper;
  const Batch& batch;
  std::size_t objective;

  [[noreturn]] void refuse(const std::string& term, const std::string& what, const std::string& next) const {
    throw RecipeError({"the loss of objective " + quoted(stepper.objective_name(objective)) + " " + what,
                       (term.empty() ? "" : "term " + quoted(term) + ", ") + to_text(batch.origin()) +
                           ", in evaluation mode\nfields: " + to_text(batch),
                       next + kWayOut});
  }
};

std::string numbers_text(const TermNumbers& numbers) {
  return "sum " + significant(numbers.sum, 6) + ", count " + significant(numbers.count, 9);
}

void compare(const Place& place, const Numbers& whole, std::vector<Numbers> halves, const Numbers& turned,
             const Tolerance& tolerance) {
  for (const auto& [name, numbers] : whole) {
    TermNumbers both = halves[0][name];
    both.add(halves[1][name]);
    if (!agree(numbers, both, tolerance)) {
      place.refuse(name,
                   "does not add up: a batch of " + std::to_string(place.batch.rows()) + " rows gives " + numbers_text(numbers) +
                       ", but its two halves together give " + numbers_text(both),
                   remedy(numbers, halves[0][name], halves[1][name]));
    }
    const auto other = turned.find(name);
    if (other != turned.end() && agree(numbers, other->second, tolerance)) continue;
    place.refuse(name,
                 "depends on the order of the rows: a batch of " + std::to_string(place.batch.rows()) + " rows gives " +
                     numbers_text(numbers) + ", but the same rows in reverse order give " +
                     (other == turned.end() ? "no such term" : numbers_text(other->second)),
                 "look for a row that is combined with its neighbour, a weight that depends on a row's place, or a state kept "
                 "between calls");
  }
}

// Warns of each output whose rows differ between the whole batch and its two halves.
void compare_outputs(const std::string& objective, const Loss& whole, const Loss& first, const Loss& second, std::int64_t rows,
                     double tolerance, std::vector<std::string>& warnings) {
  for (const auto& [name, output] : whole.outputs) {
    const auto a = first.outputs.find(name), b = second.outputs.find(name);
    if (!output.is_floating_point() || output.dim() == 0 || output.size(0) != rows) continue;
    if (a == first.outputs.end() || b == second.outputs.end() || a->second.dim() != output.dim()) continue;
    const at::Tensor halves = at::cat({a->second, b->second}).to(at::kFloat), values = output.to(at::kFloat);
    if (halves.sizes() != values.sizes() || values.numel() == 0) continue;
    const auto largest = values.abs().max().item<double>(), difference = (values - halves).abs().max().item<double>();
    if (!std::isfinite(largest) || !(difference > tolerance * largest)) continue;
    warnings.push_back(
        "output " + quoted(name) + " of objective " + quoted(objective) +
        ": a row depends on the other rows of its batch in evaluation mode, by " + percent(difference / largest) +
        " of the largest value, so predict and eval give different numbers for a row in different batches. Look for a "
        "norm that takes the statistics of the batch, or a mean over dimension 0");
  }
}

}  // namespace

LossCheck check_adds_up(Stepper& stepper, const Batch& batch, const StepResult& whole) {
  constexpr double kOfOutputs = 2e-3, kOfShortOutputs = 1e-1;
  LossCheck check;
  std::vector<std::string>& left_out = check.unchecked;
  std::vector<std::size_t> checked;
  for (std::size_t i = 0; i < whole.losses.size(); ++i) {
    const std::string& reason = stepper.objectives()[i].spec().whole_batch;
    if (!reason.empty()) {
      left_out.push_back("the loss of objective " + quoted(stepper.objective_name(i)) + ": " + reason);
    } else if (!whole.losses[i].terms.empty()) {
      checked.push_back(i);
    }
  }
  if (checked.empty()) return check;
  if (micro_batches_of(batch, 2) < 2) {
    left_out.push_back("the loss of a batch of one row");
    return check;
  }
  if (const std::string field = field_of_other_rows(batch); !field.empty()) {
    left_out.push_back("the loss of a batch of " + std::to_string(batch.rows()) + " samples whose field " + quoted(field) +
                       " has another number of rows");
    return check;
  }
  const StepResult first_half = stepper.evaluate(micro_batch(batch, 0, 2)),
                   second_half = stepper.evaluate(micro_batch(batch, 1, 2));
  const std::vector<Numbers> all = numbers_of(whole), first = numbers_of(first_half), second = numbers_of(second_half),
                             turned = numbers_of(stepper.evaluate(reversed(batch)));
  const Tolerance& tolerance = stepper.autocast() ? kShort : kWide;
  for (const std::size_t i : checked) {
    std::vector<std::string> odd;
    compare_outputs(stepper.objective_name(i), whole.losses[i], first_half.losses[i], second_half.losses[i], batch.rows(),
                    stepper.autocast() ? kOfShortOutputs : kOfOutputs, odd);
    const auto draws = [&] { return !agree(all[i], numbers_of(stepper.evaluate(elsewhere(batch)))[i], tolerance); };
    try {
      compare({stepper, batch, i}, all[i], {first[i], second[i]}, turned[i], tolerance);
      if (odd.empty() || draws()) continue;
      std::ranges::move(odd, std::back_inserter(check.warnings));
    } catch (const RecipeError&) {
      if (!draws()) throw;
      const std::string loss = "the loss of objective " + quoted(stepper.objective_name(i));
      left_out.push_back(loss + ", which draws random numbers");
      check.warnings.push_back(
          loss +
          " draws random numbers in evaluation mode: apply dropout only if is_training(), and draw the random "
          "numbers of a validation in prepare(), for each row (nn::normal_rows)");
    }
  }
  return check;
}

}  // namespace millrace
