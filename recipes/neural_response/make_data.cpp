#include "recipes/neural_response/make_data.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "millrace/base/error.h"
#include "millrace/base/fs.h"
#include "millrace/base/json.h"
#include "millrace/base/philox.h"
#include "millrace/hdf5/file.h"
#include "millrace/system/on_all_cores.h"

namespace millrace::recipes::neural_response {
namespace {

constexpr std::uint64_t kFrameKey = 61;  // makes the random numbers of frames differ from those of other uses of the seed
constexpr std::uint64_t kUnitKey = 62;
constexpr std::uint64_t kCountKey = 63;
constexpr std::uint64_t kGapKey = 64;
constexpr std::uint64_t kEyeKey = 65;

constexpr std::int64_t kRatio = 2;   // number of source bins in a bin
constexpr double kSourceRate = 240;  // in Hz
constexpr std::int64_t kTrialBins = 240;
constexpr std::int64_t kGapBins = 24;  // number of bins in a gap, for which the eye tracker has no numbers
constexpr double kGapShare = 0.02;
constexpr double kEyeStep = 0.02;  // standard deviation of the eye's step from one source bin to the next, in degrees
constexpr double kMeanCount = 0.2;
constexpr int kBlurRadius = 4;
constexpr double kBlurSigma = 1.5;  // deviation of the blur of frames, in pixels
constexpr double kGrey = 127;
constexpr double kContrast = 40;  // standard deviation of a frame, in grey levels
constexpr std::int64_t kFramesOfTask = 256;

// Fills `out` with standard normal numbers, four from each Philox block (Box-Muller).
void fill_normal(std::uint64_t key, std::vector<double>& out) {
  constexpr double kScale = 1.0 / 4294967296.0;
  for (std::size_t i = 0; i < out.size(); i += 4) {
    const PhiloxBlock words = philox4x32({static_cast<std::uint32_t>(i / 4), 0, 0, 0}, key);
    std::array<double, 4> normals{};
    for (std::size_t pair = 0; pair < 4; pair += 2) {
      const double radius = std::sqrt(-2 * std::log((static_cast<double>(words[pair]) + 0.5) * kScale));
      const double angle = 2 * std::numbers::pi * static_cast<double>(words[pair + 1]) * kScale;
      normals[pair] = radius * std::cos(angle);
      normals[pair + 1] = radius * std::sin(angle);
    }
    std::copy_n(normals.begin(), std::min<std::size_t>(4, out.size() - i), out.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

// Blurs with a Gaussian along both axes and scales the result to deviation 1. The axes wrap around, so that every pixel has the
// same deviation.
class Blur {
 public:
  explicit Blur(std::int64_t side) : side_(side), rows_(static_cast<std::size_t>(side * side)) {
    double squares = 0;
    for (int k = -kBlurRadius; k <= kBlurRadius; ++k) {
      taps_.push_back(std::exp(-0.5 * k * k / (kBlurSigma * kBlurSigma)));
      squares += taps_.back() * taps_.back();
    }
    for (double& tap : taps_) tap /= std::sqrt(squares);
  }
  void operator()(std::vector<double>& image) {
    const auto wrapped = [this](std::int64_t i) { return ((i % side_) + side_) % side_; };
    std::fill(rows_.begin(), rows_.end(), 0.0);
    std::vector<double> line(static_cast<std::size_t>(side_ + std::int64_t{2} * kBlurRadius));
    for (std::int64_t y = 0; y < side_; ++y) {
      for (std::size_t i = 0; i < line.size(); ++i)
        line[i] = image[static_cast<std::size_t>(y * side_ + wrapped(static_cast<std::int64_t>(i) - kBlurRadius))];
      double* out = rows_.data() + y * side_;
      for (std::size_t k = 0; k < taps_.size(); ++k) {
        for (std::int64_t x = 0; x < side_; ++x) out[x] += taps_[k] * line[static_cast<std::size_t>(x) + k];
      }
    }
    std::fill(image.begin(), image.end(), 0.0);
    for (std::int64_t y = 0; y < side_; ++y) {
      double* out = image.data() + y * side_;
      for (std::size_t k = 0; k < taps_.size(); ++k) {
        const double* from = rows_.data() + wrapped(y + static_cast<std::int64_t>(k) - kBlurRadius) * side_;
        for (std::int64_t x = 0; x < side_; ++x) out[x] += taps_[k] * from[x];
      }
    }
  }

 private:
  std::int64_t side_;
  std::vector<double> taps_, rows_;
};

// The number of units whose sums fit into registers at once.
constexpr std::int64_t kUnitsAtOnce = 8;

// The filters of all units, as (units / kUnitsAtOnce rounded up, pixels, kUnitsAtOnce).
std::vector<double> gabors(const SampleSessions& size, std::uint64_t seed, std::int64_t session) {
  constexpr double kSigma = 2;
  constexpr double kPeriod = 8;
  constexpr double kReach = 4;
  Philox random(make_key(seed, kUnitKey, static_cast<std::uint64_t>(session)));
  const std::int64_t pixels = size.side * size.side;
  const std::int64_t groups = (size.units + kUnitsAtOnce - 1) / kUnitsAtOnce;
  std::vector<double> weights(static_cast<std::size_t>(groups * pixels * kUnitsAtOnce));
  const double middle = static_cast<double>(size.side - 1) / 2;
  for (std::int64_t u = 0; u < size.units; ++u) {
    const double centre_y = middle + kReach * (2 * random.uniform() - 1);
    const double centre_x = middle + kReach * (2 * random.uniform() - 1);
    const double orientation = std::numbers::pi * random.uniform();
    const double phase = 2 * std::numbers::pi * random.uniform();
    double* out = weights.data() + u / kUnitsAtOnce * pixels * kUnitsAtOnce + u % kUnitsAtOnce;
    for (std::int64_t p = 0; p < pixels; ++p) {
      const std::int64_t row = p / size.side;
      const double y = static_cast<double>(row) - centre_y;
      const double x = static_cast<double>(p % size.side) - centre_x;
      const double along = x * std::cos(orientation) + y * std::sin(orientation);
      out[p * kUnitsAtOnce] =
          std::exp(-(x * x + y * y) / (2 * kSigma * kSigma)) * std::cos(2 * std::numbers::pi * along / kPeriod + phase);
    }
  }
  return weights;
}

double kernel(std::int64_t lag) {
  const auto l = static_cast<double>(lag);
  return std::exp(-(l - 3) * (l - 3) / 2) - 0.5 * std::exp(-(l - 6) * (l - 6) / 4.5);
}

// Makes the frames. Returns the response of each unit's filter to each frame, (bins, units).
std::vector<double> make_frames(const SampleSessions& size, std::uint64_t seed, std::int64_t session, SampleSession& made) {
  const auto pixels = static_cast<std::size_t>(size.side * size.side);
  const auto units = static_cast<std::size_t>(size.units);
  const std::vector<double> weights = gabors(size, seed, session);
  std::vector<double> seen(static_cast<std::size_t>(size.bins) * units);
  made.frames.resize(static_cast<std::size_t>(size.bins) * pixels);
  on_all_cores((size.bins + kFramesOfTask - 1) / kFramesOfTask, [&](std::int64_t task) {
    Blur blur(size.side);
    std::vector<double> image(pixels);
    for (std::int64_t t = task * kFramesOfTask; t < std::min(size.bins, (task + 1) * kFramesOfTask); ++t) {
      fill_normal(make_key(seed, kFrameKey, static_cast<std::uint64_t>(session), static_cast<std::uint64_t>(t)), image);
      blur(image);
      std::uint8_t* frame = made.frames.data() + static_cast<std::size_t>(t) * pixels;
      for (std::size_t p = 0; p < pixels; ++p) {
        frame[p] = static_cast<std::uint8_t>(std::clamp(kGrey + kContrast * image[p] + 0.5, 0.0, 255.5));
        image[p] = (static_cast<double>(frame[p]) - kGrey) / kContrast;
      }
      for (std::size_t first = 0; first < units; first += kUnitsAtOnce) {
        std::array<double, kUnitsAtOnce> sum{};
        const double* weight = weights.data() + first * pixels;
        for (std::size_t p = 0; p < pixels; ++p, weight += kUnitsAtOnce) {
          for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += image[p] * weight[k];
        }
        std::copy_n(sum.begin(), std::min(sum.size(), units - first), seen.data() + static_cast<std::size_t>(t) * units + first);
      }
    }
  });
  return seen;
}

// Returns the rates exp(b + s g), where g is the standardised sum of a unit's responses over lags.
std::vector<double> rates_of(const SampleSessions& size, const std::vector<double>& seen) {
  const auto units = static_cast<std::size_t>(size.units);
  const auto bins = static_cast<std::size_t>(size.bins);
  std::vector<double> drive(seen.size());
  for (std::size_t t = 0; t < bins; ++t) {
    for (std::size_t lag = 0; lag <= std::min<std::size_t>(t, static_cast<std::size_t>(size.lags) - 1); ++lag) {
      const double k = kernel(static_cast<std::int64_t>(lag));
      for (std::size_t u = 0; u < units; ++u) drive[t * units + u] += k * seen[(t - lag) * units + u];
    }
  }
  std::vector<double> mean(units);
  std::vector<double> variance(units);
  for (std::size_t i = 0; i < drive.size(); ++i) mean[i % units] += drive[i] / static_cast<double>(bins);
  for (std::size_t i = 0; i < drive.size(); ++i) {
    const double away = drive[i] - mean[i % units];
    variance[i % units] += away * away / static_cast<double>(bins);
  }
  const double base = std::log(kMeanCount) - size.strength * size.strength / 2;
  for (std::size_t i = 0; i < drive.size(); ++i) {
    const double deviation = std::max(1e-12, std::sqrt(variance[i % units]));
    drive[i] = std::exp(base + size.strength * (drive[i] - mean[i % units]) / deviation);
  }
  return drive;
}

void make_counts(const SampleSessions& size, std::uint64_t seed, std::int64_t session, SampleSession& made) {
  made.counts.resize(made.rates.size() * kRatio);
  on_all_cores((size.bins + kFramesOfTask - 1) / kFramesOfTask, [&](std::int64_t task) {
    for (std::int64_t t = task * kFramesOfTask; t < std::min(size.bins, (task + 1) * kFramesOfTask); ++t) {
      Philox random(make_key(seed, kCountKey, static_cast<std::uint64_t>(session), static_cast<std::uint64_t>(t)));
      for (std::int64_t half = 0; half < kRatio; ++half) {
        for (std::int64_t u = 0; u < size.units; ++u) {
          const double mean = made.rates[static_cast<std::size_t>(t * size.units + u)] / kRatio;
          made.counts[static_cast<std::size_t>((t * kRatio + half) * size.units + u)] =
              static_cast<std::uint8_t>(random.poisson(mean, 255));
        }
      }
    }
  });
}

// Cuts the session into equal stretches, as many as kGapShare needs, and puts a gap into each stretch.
void make_gaps(const SampleSessions& size, std::uint64_t seed, std::int64_t session, SampleSession& made) {
  made.valid.assign(static_cast<std::size_t>(size.bins * kRatio), 1);
  const auto wanted = static_cast<std::int64_t>(std::round(kGapShare * static_cast<double>(size.bins) / kGapBins));
  const std::int64_t piece = wanted < 1 ? size.bins : size.bins / wanted;
  if (piece <= kGapBins) return;
  Philox random(make_key(seed, kGapKey, static_cast<std::uint64_t>(session)));
  for (std::int64_t i = 0; i < wanted; ++i) {
    const std::int64_t first = i * piece + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(piece - kGapBins)));
    std::fill_n(made.valid.begin() + first * kRatio, kGapBins * kRatio, std::uint8_t{0});
  }
}

void make_eye(const SampleSessions& size, std::uint64_t seed, std::int64_t session, SampleSession& made) {
  Philox random(make_key(seed, kEyeKey, static_cast<std::uint64_t>(session)));
  std::array<double, 2> place{};
  for (std::int64_t t = 0; t < size.bins * kRatio; ++t) {
    for (double& axis : place) {
      axis += kEyeStep * random.normal();
      made.eye.push_back(static_cast<float>(axis));
    }
  }
}

std::string name_of_sample(std::int64_t session) {
  const std::string digits = std::to_string(session);
  return "synthetic_" + std::string(digits.size() < 2 ? "0" : "") + digits;
}

void write_session(const SampleSessions& size, const SampleSession& made, const std::filesystem::path& folder) {
  const std::int64_t bins = size.bins * kRatio;
  const auto pixels = static_cast<std::size_t>(size.side * size.side);
  std::vector<std::uint8_t> stim(made.frames.size() * kRatio);
  for (std::size_t t = 0; t < static_cast<std::size_t>(bins); ++t)
    std::copy_n(made.frames.data() + t / kRatio * pixels, pixels, stim.data() + t * pixels);
  std::vector<std::int64_t> trials;
  std::vector<double> seconds;
  for (std::int64_t t = 0; t < bins; ++t) {
    trials.push_back(t / (kRatio * kTrialBins));
    seconds.push_back(static_cast<double>(t) / kSourceRate);
  }
  const std::vector<hdf5::Array> arrays = {
      {.name = "/stim", .dtype = DType::u8, .shape = {bins, size.side, size.side}, .bytes = std::as_bytes(std::span(stim))},
      {.name = "/robs", .dtype = DType::u8, .shape = {bins, size.units}, .bytes = std::as_bytes(std::span(made.counts))},
      {.name = "/eyepos", .dtype = DType::f32, .shape = {bins, 2}, .bytes = std::as_bytes(std::span(made.eye))},
      {.name = "/dpi_valid", .dtype = DType::u8, .shape = {bins}, .bytes = std::as_bytes(std::span(made.valid))},
      {.name = "/trial_inds", .dtype = DType::i64, .shape = {bins}, .bytes = std::as_bytes(std::span(trials))},
      {.name = "/t_bins", .dtype = DType::f64, .shape = {bins}, .bytes = std::as_bytes(std::span(seconds))}};
  const std::vector<hdf5::Attribute> attributes = {{.name = "session", .value = folder.filename().string()},
                                                   {.name = "type", .value = std::string("synthetic")},
                                                   {.name = "source_rate", .value = kSourceRate}};
  Fs::real().create_directories(folder);
  hdf5::write_file(folder / "synthetic.h5", arrays, attributes);
}

std::string dataset_yaml(const SampleSessions& size) {
  std::string text =
      "# Sessions of known rates, from millrace make-data neural_response.\n"
      "types: [synthetic]\n"
      "session_dir: ./sessions\n"
      "sessions: [";
  for (std::int64_t s = 0; s < size.sessions; ++s) text += (s == 0 ? "" : ", ") + name_of_sample(s);
  text += "]\nsampling:\n  source_rate: 240\n  target_rate: 120\nkeys_lags:\n  robs: 0\n  stim: [";
  for (std::int64_t lag = 0; lag < size.lags; ++lag) text += (lag == 0 ? "" : ", ") + std::to_string(lag);
  return text + R"(]
  behavior: 0
  dfs: 0

transforms:
  stim:
    source: stim
    ops:
      - pixelnorm: {}
      - unsqueeze: 1
    expose_as: stim
  eye_vel:
    source: eyepos
    ops:
      - diff: {axis: 0}
      - maxnorm: {}
      - symlog: {}
      - temporal_basis:
          num_delta_funcs: 0
          num_cosine_funcs: 10
          history_bins: 50
          causal: false
          log_spacing: false
          peak_range_ms: [30, 200]
          normalize: true
      - splitrelu: {split_dim: 1, trainable_gain: false}
    expose_as: behavior
    concatenate: true
  eye_pos:
    source: eyepos
    ops: []
    expose_as: behavior
    concatenate: true

datafilters:
  dfs:
    ops: [{valid_nlags: {n_lags: )" +
         std::to_string(std::max<std::int64_t>(32, size.lags)) + R"(}}, {missing_pct: {threshold: 45}}]
    expose_as: dfs

train_val_split: 0.8
seed: 1002
)";
}

std::string session_yaml(const SampleSessions& size, std::int64_t session) {
  std::string text = "session: " + name_of_sample(session) + "\ncids: [";
  for (std::int64_t u = 0; u < size.units; ++u) text += (u == 0 ? "" : ", ") + std::to_string(u);
  return text + "]\n";
}

}  // namespace

double ceiling_of(double strength) { return strength * strength / (2 * std::numbers::ln2); }

SampleSession sample_session(const SampleSessions& size, std::uint64_t seed, std::int64_t session) {
  MR_CHECK(size.units > 0 && size.bins > 0 && size.side > 0 && size.lags > 0, "a session needs units, bins, pixels and lags");
  SampleSession made;
  made.rates = rates_of(size, make_frames(size, seed, session, made));
  make_counts(size, seed, session, made);
  make_gaps(size, seed, session, made);
  make_eye(size, seed, session, made);
  return made;
}

std::optional<SampleSessions> sample_sessions_of(const std::string& preset) {
  if (preset == "smoke") return SampleSessions{};
  if (preset == "small") return SampleSessions{.sessions = 4, .units = 32, .bins = 30000, .side = 31, .lags = 25};
  if (preset == "full") return SampleSessions{.sessions = 20, .units = 110, .bins = 120000, .side = 51, .lags = 25};
  return std::nullopt;
}

void write_sample_sessions(const SampleSessions& size, const std::filesystem::path& out, std::uint64_t seed) {
  Fs& fs = Fs::real();
  fs.create_directories(out / "sessions");
  std::vector<std::vector<float>> rates;
  std::vector<hdf5::Array> truth;
  for (std::int64_t s = 0; s < size.sessions; ++s) {
    const SampleSession made = sample_session(size, seed, s);
    write_session(size, made, out / name_of_sample(s));
    write_atomically(fs, out / "sessions" / (name_of_sample(s) + ".yaml"), session_yaml(size, s));
    rates.emplace_back(made.rates.begin(), made.rates.end());
  }
  for (std::int64_t s = 0; s < size.sessions; ++s) {
    truth.push_back({.name = "/" + name_of_sample(s) + "/rate",
                     .dtype = DType::f32,
                     .shape = {size.bins, size.units},
                     .bytes = std::as_bytes(std::span(rates[static_cast<std::size_t>(s)]))});
  }
  hdf5::write_file(out / "truth.h5", truth);
  const Json summary = {{"what", "units of one linear filter and an exponential each, on Gaussian frames"},
                        {"sessions", size.sessions},
                        {"units", size.units},
                        {"bins", size.bins},
                        {"side", size.side},
                        {"lags", size.lags},
                        {"seed", seed},
                        {"strength", size.strength},
                        {"mean_count_per_bin", kMeanCount},
                        {"ceiling_bits_per_spike", ceiling_of(size.strength)}};
  write_atomically(fs, out / "truth.json", summary.dump(2) + "\n");
  write_atomically(fs, out / "dataset.yaml", dataset_yaml(size));
}

}  // namespace millrace::recipes::neural_response
