// The results of a run's validations, read from the lines of its log.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/metrics/means.h"
#include "millrace/runs/run_story.h"

namespace millrace::runs {

struct MetricStory {
  struct Moment {
    double step = 0, value = 0;
  };

  std::string name;
  bool quiet = false;  // not shown on the console
  metrics::Means::BestIs best_is = metrics::Means::BestIs::unknown;
  std::optional<Moment> best;     // the best value; of equal values, the first; nullopt: no finite value, or best_is is unknown
  std::optional<double> at_best;  // value at the step at which the judged metric was best; nullopt: not measured there, or not
                                  // finite
  std::optional<double> last;     // nullopt: the last value was not finite
};

struct Validations {
  std::string judged;                       // the metric that selects the best snapshot; "" = no validation
  std::optional<MetricStory::Moment> best;  // best value of the judged metric
  std::vector<MetricStory> metrics;         // in the recipe's order, but the judged metric first
  [[nodiscard]] const MetricStory* find(std::string_view name) const;  // nullptr if it was not measured
};

// Returns the results of the run's validations. Steps that a resumed run repeated count once, with their last values. Values of
// an earlier version of a metric do not count. In a run of an older version of Millrace, only the judged metric and the losses
// have a best value, because the run's files do not say which values of other metrics are better.
[[nodiscard]] Validations validations_of(const RunStory& run);

}  // namespace millrace::runs
