// Information that rates give about counts, on a board.
#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "millrace/metrics/board.h"
#include "millrace/metrics/detail/sums.h"

namespace millrace::metrics {

namespace {

constexpr double kFloor = 1e-8;  // no rate is so small that its logarithm is none
constexpr std::int64_t kSums = 4;

}  // namespace

void Board::add_information(std::string_view name, std::string_view overall, const at::Tensor& sums) {
  Entry& entry = entry_of(name, Reading::information);
  if (entry.parts.empty()) {
    entry.overall = overall;
    entry.parts = {sums};
    quiet(name);
    return;
  }
  if (entry.parts[0].sizes() != sums.sizes()) {
    detail::refuse(
        name, "other units than in an earlier batch: " + detail::shape_text(sums) + " and " + detail::shape_text(entry.parts[0]),
        "give each set of units a name of its own");
  }
  detail::move_to(entry.parts[0], sums.device());
  entry.parts[0] = entry.parts[0] + sums.to(entry.parts[0].options());
}

void Board::add_bits_per_event(std::string_view name, const at::Tensor& counts, const at::Tensor& rates, const at::Tensor& mask,
                               std::string_view overall) {
  detail::check_shapes(name, "the counts", counts, "the rates", rates);
  detail::check_shapes(name, "the counts", counts, "the mask", mask);
  if (counts.dim() != 2) detail::refuse(name, "counts have shape " + detail::shape_text(counts), "give them as [rows, units]");
  const auto type = detail::zero_on(counts.device()).scalar_type();
  const at::Tensor w = mask.detach().to(type);
  const at::Tensor wy = w * counts.detach().to(type);
  const at::Tensor r = rates.detach().to(type);
  add_information(name, overall, at::stack({w.sum(0), wy.sum(0), (wy * (r + kFloor).log()).sum(0), (w * r).sum(0)}));
}

// value: 4 rows of the sums of all units.
double Board::information_of(const Entry& entry, const double* value) {
  const std::int64_t units = entry.parts[0].size(1);
  if (units == 0) return std::nan("");
  double total = 0;
  for (std::int64_t u = 0; u < units; ++u) {
    const double bins = std::max(value[u], 1.0);
    const double events = std::max(value[units + u], 1.0);
    const double mean = events / bins;
    const double gain =
        value[2 * units + u] - value[3 * units + u] - (value[units + u] * std::log(mean + kFloor) - mean * value[u]);
    const double bits = gain / (events * std::numbers::ln2);
    total += bits > 0 || std::isnan(bits) ? bits : 0.0;
  }
  return total / static_cast<double>(units);
}

void Board::put_overall(Means& means) const {
  std::map<std::string, std::pair<double, double>> all;  // sum and count
  for (const Entry& entry : entries_) {
    if (entry.reading != Reading::information) continue;
    auto& [sum, count] = all[entry.overall];
    sum += means.at(entry.name);
    count += 1;
  }
  for (const auto& [name, sums] : all) {
    if (means.contains(name)) detail::refuse(name, "two metrics have this name", "give one of them another name");
    means[name] = sums.first / sums.second;
  }
}

void Board::add_saved_information(std::string_view name, const SavedJson& saved) {
  std::vector<double> sums;
  for (const SavedJson& value : saved["sums"].list()) sums.push_back(value.number_or_nan());
  if (sums.size() % kSums != 0) saved["sums"].refuse("4 sums for each unit");
  for (const Entry& known : entries_) {
    if (known.name == name && known.parts[0].numel() != static_cast<std::int64_t>(sums.size()))
      saved["sums"].refuse("as many as an entry before it of the same name has");
  }
  add_information(name, saved["overall"].text(), at::tensor(sums, at::kDouble).reshape({kSums, -1}));
}

}  // namespace millrace::metrics
