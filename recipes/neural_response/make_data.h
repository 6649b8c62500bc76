// Recording sessions of known rates: units of one linear filter and an exponential each, on Gaussian frames.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "recipes/neural_response/sessions/transforms.h"

namespace millrace::recipes::neural_response {

struct SampleSessions {
  std::int64_t sessions = 2;
  std::int64_t units = 12;
  std::int64_t bins = 7500;  // at 120 Hz; each is two bins of the files
  std::int64_t side = 21;    // height and width of a frame
  std::int64_t lags = 12;
  double strength = 1.0;  // s: standard deviation of a unit's log-rate
};

// Of the presets smoke, small and full.
[[nodiscard]] std::optional<SampleSessions> sample_sessions_of(const std::string& preset);

// s^2 / (2 ln 2): the most bits per spike that a prediction of log-normal rates can have, in the mean.
[[nodiscard]] double ceiling_of(double strength);

// What a session is made of. A pure function of its arguments, the same on any number of threads.
struct SampleSession {
  std::vector<std::uint8_t> frames;  // (bins, side, side): each is shown for two source bins
  std::vector<double> rates;         // (bins, units): counts expected per bin
  std::vector<std::uint8_t> counts;  // (2 bins, units)
  std::vector<std::uint8_t> valid;   // (2 bins)
  std::vector<float> eye;            // (2 bins, 2)
};
[[nodiscard]] SampleSession sample_session(const SampleSessions& size, std::uint64_t seed, std::int64_t session);

// Writes NAME/synthetic.h5 for each session, truth.h5 (/NAME/rate), truth.json, dataset.yaml and sessions/NAME.yaml into the
// existing folder `out`: all that a run needs.
void write_sample_sessions(const SampleSessions& size, const std::filesystem::path& out, std::uint64_t seed);

}  // namespace millrace::recipes::neural_response
