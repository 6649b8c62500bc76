// The part of Board that measures the information of rates about counts.
#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <limits>
#include <map>
#include <numbers>

#include "millrace/metrics/board.h"
#include "millrace/metrics/detail/sums.h"
#include "millrace/metrics/information.h"

namespace millrace::metrics {

namespace {

constexpr double kFloor = 1e-8;  // keeps the logarithm of every rate finite
constexpr std::int64_t kSums = 4;
// Version 1 also counted units without an event, each with up to 1 / ln 2, and units without a bin, each as 0.
constexpr int kVersion = detail::kMendedVersion;

// True if a unit enters the mean over the units. A unit whose sums are NaN does, so that the mean becomes NaN.
bool counts(double bins, double events) { return bins != 0 && events != 0; }

}  // namespace

at::Tensor information_sums(const at::Tensor& counts, const at::Tensor& rates, const at::Tensor& mask) {
  const auto type = detail::zero_on(counts.device()).scalar_type();
  const at::Tensor w = mask.detach().to(type);
  // Where nothing was recorded, numbers are often NaN; a mask of 0 does not remove them, because 0 * NaN is NaN.
  const at::Tensor out = w.eq(0);
  const at::Tensor wy = w * counts.detach().to(type).masked_fill(out, 0);
  const at::Tensor r = rates.detach().to(type).masked_fill(out, 0);
  return at::stack({w.sum(0), wy.sum(0), (wy * (r + kFloor).log()).sum(0), (w * r).sum(0)});
}

std::vector<double> bits_per_event(const double* sums, std::size_t units) {
  std::vector<double> bits(units);
  for (std::size_t u = 0; u < units; ++u) {
    const double bins = sums[u];
    const double events = sums[units + u];
    if (!counts(bins, events)) {
      bits[u] = std::numeric_limits<double>::quiet_NaN();
      continue;
    }
    const double mean = events / bins;
    const double gain = sums[2 * units + u] - sums[3 * units + u] - (events * std::log(mean + kFloor) - mean * bins);
    bits[u] = gain / (events * std::numbers::ln2);
  }
  return bits;
}

void Board::add_information(std::string_view name, std::string_view overall, const at::Tensor& sums) {
  Entry& entry = entry_of(name, Reading::information);
  if (entry.parts.empty()) {
    entry.overall = overall;
    entry.parts = {sums};
    quiet(name);
    return;
  }
  if (entry.parts[0].sizes() != sums.sizes()) {
    detail::refuse(name,
                   "the units differ from those of an earlier batch: " + detail::shape_text(sums) + " and " +
                       detail::shape_text(entry.parts[0]),
                   "give each set of units a different name");
  }
  detail::move_to(entry.parts[0], sums.device());
  entry.parts[0] = entry.parts[0] + sums.to(entry.parts[0].options());
}

void Board::add_bits_per_event(std::string_view name, const at::Tensor& counts, const at::Tensor& rates, const at::Tensor& mask,
                               std::string_view overall) {
  detail::check_shapes(name, "the counts", counts, "the rates", rates);
  detail::check_shapes(name, "the counts", counts, "the mask", mask);
  if (counts.dim() != 2) detail::refuse(name, "counts have shape " + detail::shape_text(counts), "give them as [rows, units]");
  know(name, BestIs::highest);
  know(overall, BestIs::highest);
  add_information(name, overall, information_sums(counts, rates, mask));
}

Board::UnitCounts Board::information_of(const Entry& entry, const double* sums) {
  const auto units = static_cast<std::size_t>(entry.parts[0].size(1));
  const std::vector<double> bits = bits_per_event(sums, units);
  UnitCounts found;
  double total = 0;
  for (std::size_t u = 0; u < units; ++u) {
    const double bins = sums[u], events = sums[units + u];
    found.moved = found.moved || bins < 1 || events < 1;
    if (!counts(bins, events)) {
      ++found.left_out;
      continue;
    }
    ++found.units;
    if (bits[u] < 0) ++found.below_0;
    total += bits[u] > 0 || std::isnan(bits[u]) ? bits[u] : 0.0;
  }
  if (found.units > 0) found.mean = total / static_cast<double>(found.units);
  return found;
}

// If no unit of a name counts, the name has no value and is left out of the mean over names.
void Board::put_information(Means& means, const Host& host) const {
  struct Overall {
    double sum = 0;
    std::int64_t names = 0;
    UnitCounts all;
  };
  std::map<std::string, Overall> overalls;
  const auto set = [&](const std::string& name, double value) {
    if (means.contains(name)) detail::refuse(name, "two metrics have this name", "give one of them another name");
    means[name] = value;
  };
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (entry.reading != Reading::information) continue;
    const UnitCounts found = information_of(entry, host.of(i));
    means[entry.name] = found.mean;  // put() has already added the name
    means.set_version(entry.name, {.number = kVersion, .moved = found.moved});
    Overall& overall = overalls[entry.overall];
    overall.all.units += found.units;
    overall.all.left_out += found.left_out;
    overall.all.below_0 += found.below_0;
    overall.all.moved = overall.all.moved || found.moved;
    if (found.units == 0) continue;
    overall.sum += found.mean;
    ++overall.names;
  }
  for (const auto& [name, overall] : overalls) {
    set(name, overall.names > 0 ? overall.sum / static_cast<double>(overall.names) : std::numeric_limits<double>::quiet_NaN());
    means.set_version(name, {.number = kVersion, .moved = overall.all.moved});
    set(name + "/units", static_cast<double>(overall.all.units));
    set(name + "/units_left_out", static_cast<double>(overall.all.left_out));
    set(name + "/units_below_0", static_cast<double>(overall.all.below_0));
    means.add_quiet(name + "/units_below_0");
    if (overall.all.left_out == 0) means.add_quiet(name + "/units*");
  }
}

void Board::add_saved_information(std::string_view name, const SavedJson& saved) {
  std::vector<double> sums;
  for (const SavedJson& value : saved["sums"].list()) sums.push_back(value.number_or_nan());
  if (sums.size() % kSums != 0) saved["sums"].refuse("4 sums for each unit");
  for (const Entry& known : entries_) {
    if (known.name == name && known.parts[0].numel() != static_cast<std::int64_t>(sums.size()))
      saved["sums"].refuse("as many numbers as an earlier entry of the same name has");
  }
  add_information(name, saved["overall"].text(), at::tensor(sums, at::kDouble).reshape({kSums, -1}));
}

}  // namespace millrace::metrics
