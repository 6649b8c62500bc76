#include "recipes/neural_response/sessions/session_words.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "recipes/neural_response/sessions/session_hdf5.h"

namespace millrace::recipes::neural_response {
namespace {

constexpr int kDigits = 5;

std::string gaps_text(std::int64_t count) {
  return count == 0 ? "no gap" : with_commas(count) + (count == 1 ? " gap or step back" : " gaps or steps back");
}

std::string range_text(double least, double most) {
  const std::string low = significant(least, kDigits), high = significant(most, kDigits);
  return low == high ? low : low + " to " + high;
}

std::string frames_text(std::int64_t height, std::int64_t width) {
  return "frames of " + std::to_string(height) + " x " + std::to_string(width);
}

// Combines the clocks of all files. A file without a rate counts as a file without a clock.
struct Clocks {
  double slowest = 0, fastest = 0, first = 0, last = 0;
  std::int64_t count = 0, gaps = 0, silent = 0;
  void add(const std::optional<ClockSeen>& clock) {
    if (!clock || clock->step_seconds <= 0) {
      ++silent;
      return;
    }
    const double rate = 1 / clock->step_seconds;
    const bool is_first = count++ == 0;
    slowest = is_first ? rate : std::min(slowest, rate);
    fastest = is_first ? rate : std::max(fastest, rate);
    first = is_first ? clock->first : std::min(first, clock->first);
    last = is_first ? clock->last : std::max(last, clock->last);
    gaps += std::ssize(clock->seams);
  }
};

}  // namespace

std::string clock_text(const ClockSeen& clock) {
  if (clock.step_seconds == 0) return "no rate";
  return significant(1 / clock.step_seconds, kDigits) + " Hz, " + significant(clock.first, kDigits) + " to " +
         significant(clock.last, kDigits) + " s, " + gaps_text(std::ssize(clock.seams));
}

std::string read_as(const Sessions& sessions) {
  Clocks clocks;
  for (const auto& session : sessions.all) {
    for (const SessionPart& part : session->parts()) clocks.add(part.clock);
  }
  const Session& first = *sessions.all.front();
  const std::int64_t files = clocks.count + clocks.silent;
  std::string text = "clock ";
  if (clocks.count == 0) {
    text += significant(first.source_rate(), kDigits) + " Hz from sampling.source_rate: no file contains a rate";
  } else {
    text += range_text(clocks.slowest, clocks.fastest) + " Hz of /t_bins, " + significant(clocks.first, kDigits) + " to " +
            significant(clocks.last, kDigits) + " s, " + gaps_text(clocks.gaps);
    if (clocks.silent > 0) text += ", " + with_commas(clocks.silent) + " of " + with_commas(files) + " files have no clock";
  }
  return text + "; read at " + significant(first.target_rate(), kDigits) + " Hz, " + frames_text(first.height(), first.width()) +
         ", " + std::to_string(first.lags()) + " lags";
}

std::map<std::string, FieldWords> fields_of(const Sessions& sessions, const RecipeConfig& recipe) {
  const Session& first = *sessions.all.front();
  const double bin_ms = 1e3 / first.target_rate();
  FieldAxis lag{.label = "lag", .unit = "ms", .first = 0, .step = -bin_ms};
  if (recipe.lag_order == LagOrder::oldest_first) {
    lag.first = -bin_ms * static_cast<double>(first.lags() - 1);
    lag.step = bin_ms;
  }
  const bool is_pixels = first.stimulus_kind() == StimulusKind::pixels;
  return {{"stim",
           {.axes = {{.label = "channel"}, lag, {.label = "row"}, {.label = "column"}},
            .value = is_pixels ? "(grey level − 127) / 255" : "stimulus"}},
          {"robs", {.axes = {{.label = "unit"}}, .value = "spikes", .unit = significant(bin_ms, 4) + " ms bins"}},
          {"dfs", {.axes = {{.label = "unit"}}, .value = "whether the unit counts"}},
          {"behavior", {.axes = {{.label = "variable"}}, .value = "behaviour"}}};
}

std::string session_read_as(const hdf5::File& file) {
  if (!has_covariate(file, "/stim") || !has_covariate(file, "/robs")) return "";
  const hdf5::Dataset& stim = covariate_of(file, "/stim", 3, 3);
  const hdf5::Dataset& robs = covariate_of(file, "/robs", 1, 2);
  std::string text = "session: " + with_commas(stim.shape[0]) + " bins, " +
                     std::to_string(robs.shape.size() == 2 ? robs.shape[1] : 1) + " units, " +
                     frames_text(stim.shape[1], stim.shape[2]) + " " + std::string(name_of(stim.dtype));
  if (!has_covariate(file, "/trial_inds")) return text + ", no /trial_inds";
  const std::vector<std::int64_t> trials = read_wholes(file, "/trial_inds");
  text += ", " + with_commas(std::ssize(std::set<std::int64_t>(trials.begin(), trials.end()))) + " trials, ";
  if (!has_covariate(file, "/t_bins")) return text + "no clock (/t_bins)";
  const std::vector<double> seconds = read_seconds(file, "/t_bins");
  if (seconds.size() != trials.size()) {
    throw DataError({short_name(file) + ": /t_bins has " + std::to_string(seconds.size()) + " bins, /trial_inds has " +
                         std::to_string(trials.size()),
                     file.path().string(), "write all datasets of a session with the same number of bins"});
  }
  const ClockSeen clock = look_at_clock(seconds, trials);
  return text + "clock " + clock_text(clock) + (clock.worst.empty() ? "" : ": /t_bins " + clock.worst);
}

}  // namespace millrace::recipes::neural_response
