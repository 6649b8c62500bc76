#include "recipes/neural_response/pictures.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "millrace/base/format.h"
#include "millrace/core/host_values.h"
#include "millrace/metrics/information.h"
#include "millrace/picture/draw.h"

namespace millrace::recipes::neural_response {
namespace {

// The range of the predicted rates, in expected counts per bin. It is cut into levels that are equally wide on a logarithmic
// scale.
constexpr double kLowest = 1e-3;
constexpr double kHighest = 10;

void add_to(at::Tensor& total, const at::Tensor& value) { total = total.defined() ? total + value : value.clone(); }

// (3, kLevels): for each level of the predicted rate, the number of bins and the sums of rates and counts.
at::Tensor by_level(const at::Tensor& counts, const at::Tensor& rates, const at::Tensor& mask) {
  const double step = std::log(kHighest / kLowest) / static_cast<double>(Seen::kLevels);
  const at::Tensor level = ((rates.clamp(kLowest, kHighest * 0.999) / kLowest).log() / step).floor().to(at::kLong).reshape({-1});
  const auto sums = [&](const at::Tensor& values) {
    return at::zeros({Seen::kLevels}, rates.options()).index_add_(0, level, values.reshape({-1}));
  };
  return at::stack({sums(mask), sums(rates * mask), sums(counts * mask)});
}

std::string unit_name(const Shown& shown, std::int64_t unit) {
  const auto i = static_cast<std::size_t>(unit);
  return "unit " + std::to_string(i < shown.cids.size() ? shown.cids[i] : unit);
}

}  // namespace

void Seen::add(const at::Tensor& y, const at::Tensor& r, const at::Tensor& mask, const at::Tensor& stim,
               const at::Tensor& behavior) {
  if (empty()) {
    some_stim = stim.narrow(0, 0, std::min(kAsked, stim.size(0))).clone();
    if (behavior.defined()) some_behavior = behavior.narrow(0, 0, some_stim.size(0)).clone();
  }
  add_to(sums, metrics::information_sums(y, r, mask));
  add_to(levels, by_level(y, r, mask));
  const std::int64_t units = std::min(kUnits, y.size(1));
  const at::Tensor w = mask.narrow(1, 0, units);
  const at::Tensor shown_counts = y.narrow(1, 0, units);
  const at::Tensor shown_rates = r.narrow(1, 0, units);
  const at::Tensor flat = stim.reshape({stim.size(0), -1}).to(at::kFloat);
  const auto frames = stim.sizes().slice(2).vec();
  std::vector<std::int64_t> shape = frames;
  shape.insert(shape.begin(), units);
  add_to(by_counts, at::matmul((shown_counts * w).t(), flat).reshape(shape));
  add_to(stimuli, flat.sum(0).reshape(frames));
  add_to(totals, at::stack({w.sum(0), (shown_counts * w).sum(0)}));
  const std::int64_t have = counts.defined() ? counts.size(0) : 0;
  const std::int64_t more = std::min(kTrace - have, y.size(0));
  if (more <= 0) return;
  const auto longer = [&](at::Tensor& trace, const at::Tensor& rows) {
    const at::Tensor next = rows.narrow(0, 0, more).clone();
    trace = trace.defined() ? at::cat({trace, next}) : next;
  };
  longer(counts, shown_counts);
  longer(rates, shown_rates);
}

Picture draw_masks(const at::Tensor& masks, const Shown& shown) {
  const std::int64_t units = std::min(Seen::kUnits, masks.size(0));
  picture::Maps maps{.name = "readout_maps",
                     .title = "Where units look: " + shown.session,
                     .caption =
                         "A unit's Gaussian on the core's last frame; the whole frame is the part of the stimulus that the "
                         "adapter zooms to.",
                     .x = {.label = "column"},
                     .y = {.label = "row"},
                     .value = {.label = "weight"},
                     .shared_scale = false,
                     .maps = {}};
  for (std::int64_t u = 0; u < units; ++u) {
    maps.maps.push_back(
        {.title = unit_name(shown, u), .height = masks.size(1), .width = masks.size(2), .values = host_values<float>(masks[u])});
  }
  return picture::maps(maps);
}

Picture draw_traces(const Seen& seen, const Shown& shown) {
  // Shows the unit with most spikes, because a trace with few spikes shows little.
  const auto unit = seen.counts.sum(0).argmax().item<std::int64_t>();
  const std::vector<double> counts = host_values<double>(seen.counts.select(1, unit));
  const std::vector<double> rates = host_values<double>(seen.rates.select(1, unit));
  std::vector<double> seconds, steps_at, steps;
  for (std::size_t i = 0; i < rates.size(); ++i) {
    const double at = static_cast<double>(i) / shown.bins_per_s;
    seconds.push_back(at);
    for (const double edge : {at - 0.5 / shown.bins_per_s, at + 0.5 / shown.bins_per_s}) {
      steps_at.push_back(edge);
      steps.push_back(counts[i]);
    }
  }
  return picture::curves(
      {.name = "rates",
       .title = "Spikes and predicted rate: " + shown.session + ", " + unit_name(shown, unit),
       .caption = "The first bins of the validation. Spikes are drawn from the rate, so they scatter around it.",
       .x = {.label = "time", .unit = "s"},
       .y = {.label = "spikes per bin"},
       .series = {{.name = "spikes", .x = steps_at, .y = steps}, {.name = "predicted", .x = seconds, .y = rates}}});
}

Picture draw_fields(const Seen& seen, const at::Tensor& gradients, const Shown& shown) {
  const at::Tensor mean = seen.stimuli / seen.totals[0].max().clamp_min(1);
  const at::Tensor spikes = seen.totals[1].view({-1, 1, 1, 1});
  // the response of a unit without spikes is set to zeros
  const at::Tensor averages = at::where(spikes.gt(0), seen.by_counts / spikes - mean, 0.0);
  constexpr std::int64_t kColumns = 3;
  const at::Tensor units = seen.totals[1].argsort(0, true).narrow(0, 0, std::min(kColumns, averages.size(0)));
  picture::Maps maps{.name = "receptive_fields",
                     .title = "Receptive fields: " + shown.session,
                     .caption =
                         "Top: the mean stimulus before a spike minus the mean of all stimuli; few spikes make it noisy. Bottom: "
                         "the gradient of the model's output for each pixel. Each is shown at the lag where it is strongest.",
                     .x = {.label = "column"},
                     .y = {.label = "row"},
                     .value = {.label = "weight"},
                     .colours = picture::ColourMap::diverging,
                     .shared_scale = false,
                     .maps = {}};
  for (const auto& [what, fields] : {std::pair{"spikes", averages}, std::pair{"model", gradients}}) {
    for (const std::int64_t u : host_values<std::int64_t>(units)) {
      const at::Tensor field = fields[u];
      const auto lag = field.square().sum(at::IntArrayRef{1, 2}).argmax().item<std::int64_t>();
      const double before = 1e3 * static_cast<double>(field.size(0) - 1 - lag) / shown.bins_per_s;
      maps.maps.push_back({.title = unit_name(shown, u) + ", " + what + ", " + fixed(before, 0) + " ms",
                           .height = field.size(1),
                           .width = field.size(2),
                           .values = host_values<float>(field[lag])});
    }
  }
  return picture::maps(maps);
}

Picture draw_calibration(const std::vector<Seen>& sessions, double bins_per_s) {
  at::Tensor levels;
  for (const Seen& seen : sessions) {
    if (!seen.empty()) add_to(levels, seen.levels.to(at::kCPU, at::kDouble));
  }
  const std::vector<double> all = host_values<double>(levels);
  const auto count = static_cast<std::size_t>(Seen::kLevels);
  constexpr double kFewest = 20;  // least number of bins in a level; the mean over fewer bins is not reliable
  std::vector<double> predicted, counted;
  for (std::size_t i = 0; i < count; ++i) {
    if (all[i] < kFewest) continue;
    predicted.push_back(all[count + i] / all[i] * bins_per_s);
    counted.push_back(all[2 * count + i] / all[i] * bins_per_s);
  }
  return picture::curves({.name = "calibration",
                          .title = "Spikes counted against spikes predicted, all units",
                          .caption = "Bins are grouped by predicted rate. On the line, predicted and counted spikes agree.",
                          .x = {.label = "predicted", .unit = "spikes/s", .logarithmic = true},
                          .y = {.label = "counted", .unit = "spikes/s", .logarithmic = true},
                          .series = {{.name = "counted = predicted", .x = predicted, .y = predicted},
                                     {.name = "model", .x = predicted, .y = counted}}});
}

Picture draw_bits(const std::vector<std::vector<double>>& bits, const std::vector<std::string>& sessions) {
  picture::Histograms histograms{
      .name = "bits_per_spike",
      .title = "Bits per spike of the units",
      .caption = "0 = no better than the unit's mean rate. Units without a spike have no value and are left out.",
      .x = {.label = "bits per spike"},
      .series = {}};
  constexpr std::size_t kMost = 6;
  for (std::size_t i = 0; i < std::min(kMost, bits.size()); ++i)
    histograms.series.push_back({.name = sessions[i], .values = {bits[i].begin(), bits[i].end()}});
  return picture::histograms(histograms);
}

}  // namespace millrace::recipes::neural_response
