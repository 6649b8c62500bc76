#include "millrace/data/loader/detail/draws.h"

#include <algorithm>
#include <cmath>

#include "millrace/base/error.h"
#include "millrace/base/format.h"

namespace millrace::data::detail {
namespace {

template <class T>
std::vector<double> running_sums(std::span<const T> weights) {
  std::vector<double> sums;
  sums.reserve(weights.size());
  double sum = 0;
  for (const T weight : weights) sums.push_back(sum += static_cast<double>(weight));
  return sums;
}

}  // namespace

DrawTable::DrawTable(std::span<const float> weights) : sums_(running_sums(weights)) {}
DrawTable::DrawTable(std::span<const double> weights) : sums_(running_sums(weights)) {}

std::int64_t DrawTable::operator()(double uniform) const noexcept {
  const double sum = sums_.back();
  // Keeps `place` below the sum, because rounding may make the product equal to the sum.
  const double place = std::min(uniform * sum, std::nextafter(sum, 0.0));
  return std::upper_bound(sums_.begin(), sums_.end(), place) - sums_.begin();
}

void refuse_bad_weights(std::span<const float> weights, std::int64_t samples, const std::string& label) {
  const auto refuse = [](const std::string& what) {
    throw ConfigError(Message{.what = what,
                              .where = "weights of the recipe's data()",
                              .next = "give one number of 0 or more for each sample, and at least one above 0"});
  };
  const auto count = static_cast<std::int64_t>(weights.size());
  if (count != samples) refuse(label + " are " + with_commas(count) + " numbers for " + with_commas(samples) + " samples");
  const auto bad = std::find_if(weights.begin(), weights.end(), [](float w) { return !(w >= 0) || std::isinf(w); });
  if (bad != weights.end()) refuse(label + ": number " + with_commas(bad - weights.begin()) + " is " + significant(*bad, 6));
  if (std::none_of(weights.begin(), weights.end(), [](float w) { return w > 0; })) refuse(label + " are all 0");
}

}  // namespace millrace::data::detail
