// Rules that compare the requests of the config with the results of the run.
#include <cmath>

#include "millrace/base/format.h"
#include "millrace/doctor/detail/rule_list.h"

namespace millrace::doctor::detail {
namespace {

constexpr double kFewJudges = 32;    // a mean over this many values has an error of a sixth of the spread of the values
constexpr double kEnoughJudges = 4;  // with this multiple of kFewJudges values, the error is below a tenth of the spread

std::string amount(const Evidence::Target& target, double value) {
  if (target.unit.empty()) return percent(value);
  constexpr double kSlow = 0.01;  // human_rate() would show a smaller rate as 0
  return (value < kSlow ? significant(value, 3) : human_rate(value)) + " " + target.unit;
}

std::string miss(const Evidence::Target& target) {
  return target.what + " " + amount(target, target.measured) + (target.at_most ? " of at most " : " of ") +
         amount(target, target.asked) + " (" + target.key + ")";
}

}  // namespace

// Fires if a metric is the mean of few values although the config leaves out at least half of the data.
Found few_judges(const Evidence& e) {
  const auto& judged = e.numbers.judged;
  if (!judged || judged->most_batches == 0 || judged->by <= 0 || judged->by >= kFewJudges) return std::nullopt;
  if (judged->there_are < 2 * judged->by) return std::nullopt;
  const double enough = std::ceil(kEnoughJudges * kFewJudges / judged->by * static_cast<double>(judged->batches));
  const bool all = enough / static_cast<double>(judged->batches) * judged->by >= judged->there_are;
  return set("a validation looks at " + significant(judged->by, 3) + " of " +
                 with_commas(static_cast<std::int64_t>(judged->there_are)) + " " + judged->unit + ": a mean over " +
                 significant(judged->by, 3) + " " + judged->unit + " is uncertain by " + percent(1 / std::sqrt(judged->by)) +
                 " of the spread of single " + judged->unit,
             "train.validate_batches", all ? "0" : std::to_string(static_cast<std::int64_t>(enough)), std::nullopt);
}

// Fires if a target is missed. Predicts no gain, because other findings predict the gain for each cause.
Found target_missed(const Evidence& e) {
  std::string misses;
  for (const Evidence::Target& target : e.targets) {
    if (!target.met()) misses += (misses.empty() ? "" : ", ") + miss(target);
  }
  if (misses.empty()) return std::nullopt;
  return Finding{
      .id = {},
      .what = "the run misses its targets: " + misses,
      .remedy = "fix the causes named by the other findings and the accounts, or set a target that this machine can reach",
      .key = {},
      .value = {},
      .gain = std::nullopt};
}

}  // namespace millrace::doctor::detail
