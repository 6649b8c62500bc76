// Makes recording sessions whose rates are known: each unit has a linear filter and an exponential, and sees Gaussian frames.
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
  std::int64_t bins = 7500;  // number of bins at 120 Hz; each of them is two bins in the files
  std::int64_t side = 21;    // height and width of a frame
  std::int64_t lags = 12;
  double strength = 1.0;  // s in the formulas: standard deviation of the logarithm of a unit's rate
};

// The sample data of the presets smoke, small and full. nullopt for other names.
[[nodiscard]] std::optional<SampleSessions> sample_sessions_of(const std::string& preset);

// s^2 / (2 ln 2): the most bits per spike that a prediction of such log-normal rates can be expected to reach.
[[nodiscard]] double ceiling_of(double strength);

// The contents of a session.
struct SampleSession {
  std::vector<std::uint8_t> frames;  // (bins, side, side); each frame is shown for two source bins
  std::vector<double> rates;         // (bins, units): expected counts in a bin
  std::vector<std::uint8_t> counts;  // (2 bins, units)
  std::vector<std::uint8_t> valid;   // (2 bins)
  std::vector<float> eye;            // (2 bins, 2)
};
// Makes a session. The result depends only on the arguments, not on the number of threads.
[[nodiscard]] SampleSession sample_session(const SampleSessions& size, std::uint64_t seed, std::int64_t session);

// Writes all that a run needs into the existing folder `out`: NAME/synthetic.h5 for each session, truth.h5 (/NAME/rate),
// truth.json, dataset.yaml and sessions/NAME.yaml.
void write_sample_sessions(const SampleSessions& size, const std::filesystem::path& out, std::uint64_t seed);

}  // namespace millrace::recipes::neural_response
