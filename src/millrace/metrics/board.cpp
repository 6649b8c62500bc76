#include "millrace/metrics/board.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "millrace/base/format.h"
#include "millrace/metrics/detail/sums.h"

namespace millrace::metrics {

using detail::kPerTerm;
using detail::zero_on;

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

void check_scalar(std::string_view name, const char* what, const at::Tensor& value) {
  if (value.defined() && value.numel() == 1) return;
  detail::refuse(name, std::string(what) + " has shape " + detail::shape_text(value) + ", expected a scalar",
                 "add up its values with sum(), or pass all of them to add_mean()");
}

void accumulate(at::Tensor& total, const at::Tensor& value) {
  const at::Tensor scalar = value.detach().reshape({});
  if (!total.defined()) total = zero_on(scalar.device());
  detail::move_to(total, scalar.device());
  total.add_(scalar.to(total.options(), /*non_blocking=*/true));
}

// Converts to the device's widest float type, double if it has it, so that squares of small deviations from a large mean keep
// their digits.
at::Tensor wide(const at::Tensor& values) { return values.detach().to(zero_on(values.device()).scalar_type()); }

at::Tensor count_of(const at::Tensor& values) {
  return at::scalar_tensor(static_cast<double>(values.numel()), zero_on(values.device()).options());
}

// n^2 times the variance; 0 if only rounding errors remain.
double spread(double n, double sum, double squares) {
  constexpr double kRounding = 1e-13;
  const double whole = n * squares;
  const double rest = whole - sum * sum;
  return rest > kRounding * whole ? rest : 0.0;
}

}  // namespace

std::string_view Board::word_of(Reading reading) {
  switch (reading) {
    case Reading::mean:
      return "mean";
    case Reading::log_mean:
      return "log_mean";
    case Reading::root_mean:
      return "root_mean";
    case Reading::defined_mean:
      return "defined_mean";
    case Reading::correlation:
      return "correlation";
    case Reading::determination:
      return "determination";
    case Reading::total:
      return "total";
    case Reading::classification:
      return "classification";
    case Reading::information:
      return "information";
  }
  return "";
}

// The number of sums that a kind of metric has. Correlation: n, x, y, xx, yy, xy. Determination: n, squared error, y, yy. Means:
// sum, count; a mean of marked values also the number of values left out.
std::size_t Board::sums_of(Reading reading) {
  if (reading == Reading::correlation) return 6;
  if (reading == Reading::determination) return 4;
  return reading == Reading::defined_mean ? 3 : 2;
}

Board::Entry& Board::entry_of(std::string_view name, Reading reading) {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.name == name; });
  if (found == entries_.end()) return entries_.emplace_back(Entry{.name = std::string(name), .reading = reading, .parts = {}});
  // A snapshot of an earlier version has only the plain mean of this name.
  if (found->reading == Reading::mean && reading == Reading::defined_mean) found->reading = reading;
  if (found->reading != reading) {
    detail::refuse(name,
                   "the name is in use by a " + std::string(word_of(found->reading)) + "; a " + std::string(word_of(reading)) +
                       " was added under it",
                   "give each metric a different name; a loss must have the same terms in each batch");
  }
  return *found;
}

void Board::add(std::string_view name, Reading reading, const std::vector<at::Tensor>& values) {
  Entry& entry = entry_of(name, reading);
  entry.parts.resize(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) accumulate(entry.parts[i], values[i]);
}

void Board::add(std::string_view name, const at::Tensor& sum, const at::Tensor& count) {
  check_scalar(name, "the sum", sum);
  check_scalar(name, "the count", count);
  add(name, Reading::mean, {sum, count});
}

void Board::add(std::string_view name, double sum, double count) {
  add(name, Reading::mean, {at::scalar_tensor(sum, at::kDouble), at::scalar_tensor(count, at::kDouble)});
}

void Board::add_log(std::string_view name, const at::Tensor& sum, const at::Tensor& count) {
  check_scalar(name, "the sum", sum);
  check_scalar(name, "the count", count);
  add(name, Reading::log_mean, {sum, count});
}

void Board::add(std::string_view name, const Loss& loss) {
  const bool plain = loss.terms.size() == 1 && loss.terms.front().weight == 1.0 && !loss.terms.front().weight_now.defined();
  for (const LossTerm& term : loss.terms) {
    const at::Tensor& sum = term.report ? term.report->sum : term.sum;
    const at::Tensor& count = term.report ? term.report->count : term.count;
    const Reading reading = term.report && term.report->logarithm ? Reading::log_mean : Reading::mean;
    const std::string own = plain ? std::string(name) : std::string(name) + "/" + term.name;
    check_scalar(own, "the sum", sum);
    check_scalar(own, "the count", count);
    know(own, BestIs::lowest);
    add(own, reading, {sum, count});
    if (plain) continue;
    know(name, BestIs::lowest);
    const at::Tensor wide_count = count.detach().to(at::kDouble);
    const at::Tensor share = term.weight_now.defined() ? wide_count * term.weight_now : wide_count * term.weight;
    add_to_total(name, term.name, reading, {sum, count, share});
  }
}

void Board::add_to_total(std::string_view name, std::string_view term, Reading reading, const std::vector<at::Tensor>& values) {
  Entry& entry = entry_of(name, Reading::total);
  const auto it = std::find(entry.terms.begin(), entry.terms.end(), term);
  const auto first = static_cast<std::size_t>(it - entry.terms.begin()) * kPerTerm;
  if (it == entry.terms.end()) {
    entry.terms.emplace_back(term);
    entry.readings.push_back(reading);
    entry.parts.resize(entry.parts.size() + kPerTerm);
  }
  for (std::size_t i = 0; i < kPerTerm; ++i) accumulate(entry.parts[first + i], values[i]);
}

void Board::add(const Board& other) {
  for (const Entry& entry : other.entries_) {
    if (entry.reading == Reading::classification) {
      add_counts(entry);
    } else if (entry.reading == Reading::information) {
      add_information(entry.name, entry.overall, entry.parts[0]);
    } else if (entry.reading == Reading::total) {
      for (std::size_t i = 0; i < entry.terms.size(); ++i) {
        const auto first = entry.parts.begin() + static_cast<std::ptrdiff_t>(kPerTerm * i);
        add_to_total(entry.name, entry.terms[i], entry.readings[i], {first, first + kPerTerm});
      }
    } else {
      add(entry.name, entry.reading, entry.parts);
    }
  }
  quiet_.insert(other.quiet_.begin(), other.quiet_.end());
  best_is_.insert(other.best_is_.begin(), other.best_is_.end());
}

void Board::know(std::string_view pattern, BestIs best_is) {
  if (best_is_.find(pattern) == best_is_.end()) best_is_.emplace(pattern, best_is);
}

void Board::add_mean(std::string_view name, const at::Tensor& values) {
  add(name, Reading::mean, {wide(values).sum(), count_of(values)});
}

void Board::add_mean(std::string_view name, const at::Tensor& values, const at::Tensor& defined) {
  detail::check_shapes(name, "the values", values, "what marks them", defined);
  const at::Tensor count = defined.detach().sum();
  add(name, Reading::defined_mean, {wide(values).masked_fill(~defined, 0).sum(), count, count_of(values) - count});
}

void Board::add_rate(std::string_view name, const at::Tensor& hits) {
  if (hits.scalar_type() != at::kBool) {
    detail::refuse(name, "a rate counts true values, but " + detail::type_text(hits) + detail::shape_text(hits) + " was given",
                   "give the result of a comparison, e.g. scores > 0.5; for the mean of numbers use add_mean()");
  }
  add(name, Reading::mean, {hits.detach().sum(), count_of(hits)});
}

void Board::add_correlation(std::string_view name, const at::Tensor& x, const at::Tensor& y) {
  detail::check_shapes(name, "x", x, "y", y);
  const at::Tensor a = wide(x);
  const at::Tensor b = wide(y);
  know(name, BestIs::highest);
  add(name, Reading::correlation, {count_of(a), a.sum(), b.sum(), (a * a).sum(), (b * b).sum(), (a * b).sum()});
}

void Board::add_regression(const at::Tensor& predicted, const at::Tensor& target, std::string_view name) {
  const std::string prefix = name.empty() ? "" : std::string(name) + "/";
  detail::check_shapes(name.empty() ? "regression" : name, "the prediction", predicted, "the target", target);
  const at::Tensor y = wide(target);
  const at::Tensor error = wide(predicted) - y;
  const at::Tensor count = count_of(y);
  const at::Tensor squares = error.square().sum();
  know(prefix + "mae", BestIs::lowest);
  know(prefix + "rmse", BestIs::lowest);
  know(prefix + "r2", BestIs::highest);
  add(prefix + "mae", Reading::mean, {error.abs().sum(), count});
  add(prefix + "rmse", Reading::root_mean, {squares, count});
  add(prefix + "r2", Reading::determination, {count, squares, y.sum(), y.square().sum()});
  add_correlation(prefix + "pearson", predicted, target);
}

double Board::read(Reading reading, const double* value) {
  if (reading == Reading::correlation) {
    const double n = value[0];
    const double both = std::sqrt(spread(n, value[1], value[3]) * spread(n, value[2], value[4]));
    return both > 0 ? (n * value[5] - value[1] * value[2]) / both : kNone;
  }
  if (reading == Reading::determination) {
    const double whole = spread(value[0], value[2], value[3]);
    return whole > 0 ? 1.0 - value[0] * value[1] / whole : kNone;
  }
  if (value[1] == 0.0) return kNone;
  const double mean = value[0] / value[1];
  if (reading == Reading::root_mean) return std::sqrt(mean);
  return reading == Reading::log_mean ? std::log(mean) : mean;
}

double Board::read(const Entry& entry, const double* value) {
  if (entry.reading != Reading::total) return read(entry.reading, value);
  double total = kNone;
  for (std::size_t i = 0; i < entry.terms.size(); ++i, value += kPerTerm) {
    if (value[1] == 0.0) continue;
    const double part = value[2] / value[1] * read(entry.readings[i], value);
    total = std::isnan(total) ? part : total + part;
  }
  return total;
}

Board::Host Board::read_back() const {
  Host host;
  // All sums are read back from this device; sums on the CPU are sent there first, which does not wait.
  at::Device device = at::kCPU;
  for (const Entry& entry : entries_) {
    for (const at::Tensor& part : entry.parts) {
      if (!part.is_cpu()) device = part.device();
    }
  }
  const at::TensorOptions options = zero_on(device).options();
  std::vector<at::Tensor> parts;
  std::size_t values = 0;
  for (const Entry& entry : entries_) {
    host.first.push_back(values);
    for (const at::Tensor& part : entry.parts) {
      parts.push_back(part.to(options, /*non_blocking=*/true).reshape({-1}));
      values += static_cast<std::size_t>(part.numel());
    }
  }
  if (parts.empty()) return host;
  const at::Tensor all = at::cat(parts).to(at::TensorOptions().dtype(at::kDouble).device(at::kCPU));
  host.values.assign(all.const_data_ptr<double>(), all.const_data_ptr<double>() + values);
  return host;
}

void Board::put(Means& means, const Entry& entry, const double* value) {
  const auto set = [&](const std::string& name, double mean) {
    if (means.contains(name)) detail::refuse(name, "two metrics have this name", "give one of them another name");
    means[name] = mean;
  };
  if (entry.reading == Reading::information) return set(entry.name, kNone);  // put_information() sets the value later
  if (entry.reading == Reading::defined_mean) {
    set(entry.name, read(entry, value));
    set(entry.name + "/left_out", value[2]);
    if (value[2] == 0) means.add_quiet(entry.name + "/left_out");
    return means.set_version(entry.name, {.number = detail::kMendedVersion, .moved = value[2] > 0});
  }
  if (entry.reading != Reading::classification) return set(entry.name, read(entry, value));
  const std::string prefix = entry.how.prefix();
  const Confusion table = table_of(entry, value);
  const bool has_nan = value[table.counts.size() + 2] > 0;
  const auto sound = [has_nan](double share) { return has_nan ? kNone : share; };
  set(prefix + "accuracy", sound(table.accuracy()));
  set(prefix + "balanced_accuracy", sound(table.balanced_accuracy()));
  set(prefix + "macro_f1", sound(table.macro_f1()));
  if (entry.how.top_k > 0) {
    const auto total = static_cast<double>(table.total());
    const double hits = value[entry.parts[0].numel()];
    set(prefix + "top" + std::to_string(entry.how.top_k) + "_accuracy", sound(total > 0 ? hits / total : kNone));
  }
  if (!entry.how.per_class) return;
  for (std::size_t i = 0; i < table.classes.size(); ++i) set(prefix + "recall/" + table.classes[i], sound(table.recall(i)));
  for (std::size_t i = 0; i < table.classes.size(); ++i) set(prefix + "precision/" + table.classes[i], sound(table.precision(i)));
  for (std::size_t i = 0; i < table.classes.size(); ++i) set(prefix + "f1/" + table.classes[i], sound(table.f1(i)));
}

Means Board::means() const {
  Means means;
  means.set_quiet(quiet_);
  means.set_best_is(best_is_);
  const Host host = read_back();
  for (std::size_t i = 0; i < entries_.size(); ++i) put(means, entries_[i], host.of(i));
  put_information(means, host);
  return means;
}

void Board::reset() {
  entries_.clear();
  quiet_.clear();
  best_is_.clear();
}

}  // namespace millrace::metrics
