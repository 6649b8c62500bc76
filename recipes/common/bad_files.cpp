#include "recipes/common/bad_files.h"

#include <algorithm>
#include <cmath>

#include "millrace/base/format.h"
#include "millrace/config/schema_of.h"
#include "millrace/data/loader/source.h"

namespace millrace::recipes {

void refuse_too_many(std::int64_t bad, std::int64_t all, const std::string& what, const Problem& last, const DataConfig& input) {
  if (static_cast<double>(bad) <= data::most_bad(input.max_bad_fraction, all)) return;
  throw DataError({.what = with_commas(bad) + " of " + with_commas(all) + " " + what + " can't be used, more than the fraction " +
                           significant(input.max_bad_fraction, 3) + " that is allowed; the last: " + last.what,
                   .where = last.where,
                   .next = "repair the data, or set data.max_bad_fraction to " + significant(data::fraction_for(bad, all), 4) +
                           ", or higher if more are bad"});
}

std::string notice_of_bad(const std::vector<Problem>& problems, std::int64_t all, const std::string& what,
                          const DataConfig& input) {
  if (problems.empty()) return "";
  const std::string policy = config::write(input.bad_samples).get<std::string>();
  return with_commas(std::ssize(problems)) + " of " + with_commas(all) + " " + what +
         " can't be used, the first: " + problems.front().what +
         "; their samples are treated as data.bad_samples says: " + policy;
}

}  // namespace millrace::recipes
