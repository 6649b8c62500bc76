// Recording sessions of known rates: each unit has one linear filter and an exponential, on Gaussian frames.
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
  std::int64_t bins = 7500;  // at 120 Hz; each is two bins in the files
  std::int64_t side = 21;    // height and width of a frame
  std::int64_t lags = 12;
  double strength = 1.0;  // s: standard deviation of a unit's log-rate
};

// For the presets smoke, small and full.
[[nodiscard]] std::optional<SampleSessions> sample_sessions_of(const std::string& preset);

// s^2 / (2 ln 2): the expected maximum of bits per spike for a prediction of log-normal rates.
[[nodiscard]] double ceiling_of(double strength);

// The content of a session.
struct SampleSession {
  std::vector<std::uint8_t> frames;  // (bins, side, side): each is shown for two source bins
  std::vector<double> rates;         // (bins, units): expected counts per bin
  std::vector<std::uint8_t> counts;  // (2 bins, units)
  std::vector<std::uint8_t> valid;   // (2 bins)
  std::vector<float> eye;            // (2 bins, 2)
};
// A pure function of its arguments; the result is the same on any number of threads.
[[nodiscard]] SampleSession sample_session(const SampleSessions& size, std::uint64_t seed, std::int64_t session);

// Writes everything that a run needs into the existing folder `out`: NAME/synthetic.h5 for each session, truth.h5 (/NAME/rate),
// truth.json, dataset.yaml and sessions/NAME.yaml.
void write_sample_sessions(const SampleSessions& size, const std::filesystem::path& out, std::uint64_t seed);

}  // namespace millrace::recipes::neural_response
