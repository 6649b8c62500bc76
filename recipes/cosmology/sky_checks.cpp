#include "recipes/cosmology/sky_checks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/core/host_values.h"
#include "recipes/cosmology/preprocess.h"
#include "recipes/cosmology/sky_pca.h"

namespace millrace::recipes::cosmology {
namespace {

constexpr std::int64_t kSamplesLookedAt = 4;
constexpr std::size_t kNamed = 5;  // a line lists at most this many channels
// if at most this share of the channels holds half of the residual's power, the cause is interference
constexpr double kFewChannels = 0.1;
constexpr std::int64_t kSparedChannels = 6;  // the advice raises n_fg at most to the number of channels divided by this
constexpr double kPinnedWithin = 0.03;
constexpr int kPinnedValidations = 3;

// Mean squares of the values in some training samples, in fp64.
struct Powers {
  std::vector<double> channels, baselines;  // mean squares of the input, for each channel and for each baseline
  std::vector<double> left, signal;         // mean squares for each channel: of the input without foreground, and of the target
  std::int64_t samples = 0;
};

Powers powers_of(const RecipeConfig& recipe, const Sky& sky, const nn::ForegroundPca* pca, std::uint64_t seed) {
  const SkySource source = training_source(recipe, sky);
  const std::int64_t count = std::min(kSamplesLookedAt, source.size());
  at::Tensor channels = at::zeros({sky.shape[1]}, at::kDouble);
  at::Tensor baselines = at::zeros({sky.shape[0]}, at::kDouble);
  at::Tensor left = at::zeros_like(channels);
  at::Tensor signal = at::zeros_like(channels);
  Powers powers;
  for (std::int64_t i = 0; i < count; ++i) {
    try {
      const TrainingPair pair = training_pair(source, i * source.size() / count, seed);
      const at::Tensor x = nn::as_pixels(pair.x.unsqueeze(0));  // (1, bl, f, pixels)
      const at::Tensor clean = pca != nullptr ? pca->clean(x, nn::Fused::plain()) : clean_by_batch(x, recipe.n_fg);
      const auto by_channel = [](const at::Tensor& values) {
        return values.to(at::kDouble).square().mean(at::IntArrayRef{0, 1, 3});
      };
      channels += by_channel(x);
      baselines += x.to(at::kDouble).square().mean(at::IntArrayRef{0, 2, 3});
      left += by_channel(clean);
      signal += by_channel(nn::as_pixels(pair.y.unsqueeze(0)));
      ++powers.samples;
    } catch (const DataError&) {  // ignored, because the fit or the loader reports the error
    }
  }
  if (powers.samples == 0) return powers;
  const auto mean = [&](const at::Tensor& sum) { return host_values<double>(sum / static_cast<double>(powers.samples)); };
  powers.channels = mean(channels);
  powers.baselines = mean(baselines);
  powers.left = mean(left);
  powers.signal = mean(signal);
  return powers;
}

double total(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string channels_text(const std::vector<std::size_t>& channels, const Sky& sky) {
  std::string text;
  for (std::size_t i = 0; i < std::min(kNamed, channels.size()); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(channels[i]) + " (" + fixed(sky.freq_mhz[channels[i]], 3) + " MHz)";
  return text + (channels.size() > kNamed ? ", …" : "");
}

std::string counted(std::size_t count, const std::string& one, const std::string& many) {
  return std::to_string(count) + " " + (count == 1 ? one : many);
}

template <class Wrong>
std::vector<std::size_t> where(const std::vector<double>& values, Wrong wrong) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (wrong(values[i])) found.push_back(i);
  }
  return found;
}

// The smallest set of channels that holds half of the power.
std::vector<std::size_t> half_of(const std::vector<double>& power) {
  std::vector<std::size_t> order(power.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return power[a] > power[b]; });
  double sum = 0;
  std::size_t count = 0;
  while (count < order.size() && sum < total(power) / 2) sum += power[order[count++]];
  order.resize(count);
  std::sort(order.begin(), order.end());
  return order;
}

// Counts the components after the first n_fg that each hold more power than the whole signal.
std::int64_t towering(const nn::ForegroundPca& pca, double signal) {
  const std::vector<double> values = host_values<double>(pca.eigenvalues());
  auto count = pca.n_fg();
  while (count < pca.frequencies() && values[static_cast<std::size_t>(count)] > signal) ++count;
  return count - pca.n_fg();
}

std::string check_left(const RecipeConfig& recipe, const Sky& sky, const nn::ForegroundPca* pca, const Powers& powers) {
  const double signal = total(powers.signal);
  const double left = total(powers.left);
  if (signal == 0) return "the signal is zero in all training samples that were examined: there is nothing to learn";
  const std::int64_t more = pca != nullptr ? towering(*pca, signal) : 0;
  const std::string n_fg = "recipe.n_fg = " + std::to_string(recipe.n_fg);
  const std::string components = more == 0 ? ""
                                           : std::to_string(more) +
                                                 (more == 1 ? " further component holds" : " further components each hold") +
                                                 " more power than the whole signal";
  if (!(left > kHopelessPower * signal)) {
    return components.empty() ? "" : components + ": raise " + n_fg + " to " + std::to_string(recipe.n_fg + more);
  }
  std::string text = "with " + n_fg + " PCA leaves " + significant(left / signal, 3) +
                     " times the power of the signal: the network will hardly find the signal";
  std::string next;
  if (const auto half = half_of(powers.left);
      static_cast<double>(half.size()) <= kFewChannels * static_cast<double>(sky.freq_mhz.size())) {
    text +=
        "; half of the remaining power is in " + counted(half.size(), "channel", "channels") + ", " + channels_text(half, sky);
    next = "flag or leave out channels with interference";
  }
  if (more > 0) {
    text += "; " + components;
    if (recipe.n_fg + more <= static_cast<std::int64_t>(sky.freq_mhz.size()) / kSparedChannels)
      next += (next.empty() ? "" : ", or ") + std::string("raise recipe.n_fg to ") + std::to_string(recipe.n_fg + more);
  }
  return text + ". Next: " +
         (next.empty() ? "compare the units of signal and foreground, or flag values that are not from the sky" : next);
}

}  // namespace

std::vector<std::string> check_training_sky(const RecipeConfig& recipe, const Sky& sky, const nn::ForegroundPca* pca,
                                            std::uint64_t seed) {
  const Powers powers = powers_of(recipe, sky, pca, seed);
  if (powers.samples == 0) return {};
  std::vector<std::string> lines;
  const double usual = median_of(powers.channels);
  if (const auto dead = where(powers.channels, [&](double power) { return power <= kDeadPower * usual; }); !dead.empty())
    lines.push_back(counted(dead.size(), "channel has", "channels have") + " no power: " + channels_text(dead, sky) +
                    ". Next: leave them out (millrace uvh5 --channels, --band)");
  if (const auto hot = where(powers.channels, [&](double power) { return usual > 0 && power > kSaturatedPower * usual; });
      !hot.empty())
    lines.push_back(counted(hot.size(), "channel has", "channels have") +
                    " more than 10,000 times the power of the median channel: " + channels_text(hot, sky) +
                    ". Next: flag them as interference, or leave them out");
  if (const auto dead = where(powers.baselines, [](double power) { return power == 0; }); !dead.empty()) {
    std::string names;
    for (std::size_t i = 0; i < std::min(kNamed, dead.size()); ++i) names += (i == 0 ? "" : ", ") + std::to_string(dead[i]);
    lines.push_back(counted(dead.size(), "baseline is", "baselines are") + " zero throughout: " + names +
                    (dead.size() > kNamed ? ", …" : "") + " (counted from 0). Next: leave them out (millrace uvh5 --baselines)");
  }
  if (std::string line = check_left(recipe, sky, pca, powers); !line.empty()) lines.push_back(std::move(line));
  return lines;
}

std::vector<std::string> check_validation_sky(const Sky& sky) {
  if (sky.validation.signal.size() != 1) return {};
  return {
      "validation has 1 sample, " + sky.validation.signal.front()->path().filename().string() +
      ": its metrics say little. Next: give more signal files, or cut them into shorter ones (millrace uvh5 --times-per-file)"};
}

bool PinnedLoss::add(std::int64_t step, double left, double power) {
  if (step == 0) return false;
  const bool pinned = power > 0 && std::abs(left / power - 1) < kPinnedWithin;
  in_a_row_ = pinned ? in_a_row_ + 1 : 0;
  if (noted_ || in_a_row_ < kPinnedValidations) return false;
  noted_ = true;
  return true;
}

}  // namespace millrace::recipes::cosmology
