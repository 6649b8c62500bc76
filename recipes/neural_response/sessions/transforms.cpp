#include "recipes/neural_response/sessions/transforms.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "recipes/neural_response/sessions/whitening.h"

namespace millrace::recipes::neural_response {
namespace {

template <class Change>
Series each_value(Series series, const Change& change) {
  for (float& value : series.values) value = change(value);
  return series;
}

// Returns the index that stands for `i` in a series of `size` rows which is reflected at its ends. The first and the last row
// are not repeated.
std::int64_t reflected(std::int64_t i, std::int64_t size) {
  if (size == 1) return 0;
  const std::int64_t period = 2 * (size - 1);
  i = ((i % period) + period) % period;
  return i < size ? i : period - i;
}

// Adds to out[t] the sum over k of taps[k] in[t - before + k]. `place` maps an index outside the series to an index inside; a
// negative result leaves the tap out.
template <class Place>
void add_filtered(const Series& in, std::span<const double> taps, std::int64_t before, const Place& place, Series& out) {
  std::vector<double> sum(static_cast<std::size_t>(in.columns));
  for (std::int64_t t = 0; t < in.rows; ++t) {
    std::fill(sum.begin(), sum.end(), 0.0);
    for (std::size_t k = 0; k < taps.size(); ++k) {
      const std::int64_t from = place(t - before + static_cast<std::int64_t>(k));
      if (from < 0 || taps[k] == 0) continue;
      const float* row = in.row(from);
      for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += taps[k] * static_cast<double>(row[c]);
    }
    std::transform(sum.begin(), sum.end(), out.row(t), [](double value) { return static_cast<float>(value); });
  }
}

Series like(const Series& series) { return {series.rows, series.columns, std::vector<float>(series.values.size())}; }

Series differences(Series series) {
  for (std::int64_t t = series.rows - 1; t > 0; --t) {
    for (std::int64_t c = 0; c < series.columns; ++c) series.row(t)[c] -= series.row(t - 1)[c];
  }
  if (series.rows > 0) std::fill_n(series.row(0), series.columns, 0.0F);
  return series;
}

Series max_normed(Series series) {
  float largest = 0;
  for (const float value : series.values) largest = std::max(largest, std::abs(value));
  if (largest == 0) return series;
  return each_value(std::move(series), [largest](float value) { return value / largest; });
}

Series split_relu(const Series& series) {
  Series split{series.rows, 2 * series.columns, {}};
  split.values.reserve(2 * series.values.size());
  for (std::int64_t t = 0; t < series.rows; ++t) {
    for (const float sign : {1.0F, -1.0F}) {
      for (std::int64_t c = 0; c < series.columns; ++c) split.values.push_back(std::max(0.0F, sign * series.row(t)[c]));
    }
  }
  return split;
}

Series smoothed(Series series, double sigma) {
  if (sigma <= 0 || series.rows == 0) return series;
  auto size = static_cast<std::int64_t>(6 * sigma) + 1;
  size += size % 2 == 0 ? 1 : 0;
  const std::int64_t middle = size / 2;
  std::vector<double> taps;
  double sum = 0;
  for (std::int64_t k = 0; k < size; ++k) {
    const double x = static_cast<double>(k - middle) / sigma;
    taps.push_back(std::exp(-0.5 * x * x));
    sum += taps.back();
  }
  for (double& tap : taps) tap /= sum;
  Series out = like(series);
  add_filtered(
      series, taps, middle, [&series](std::int64_t t) { return reflected(t, series.rows); }, out);
  return out;
}

float rounded_to_half(float value) {
  if (!std::isfinite(value) || value == 0) return value;
  const float quantum = std::ldexp(1.0F, std::max(std::ilogb(value), -14) - 10);
  const float result = std::nearbyint(value / quantum) * quantum;
  return std::abs(result) > 65504.0F ? std::copysign(HUGE_VALF, value) : result;
}

template <class Integer>
float truncated(float value) {
  constexpr auto kLow = static_cast<float>(std::numeric_limits<Integer>::min());
  constexpr auto kHigh = static_cast<float>(std::numeric_limits<Integer>::max());
  return std::isnan(value) ? 0.0F : std::trunc(std::clamp(value, kLow, kHigh));
}

Series cast_to(Series series, const std::string& dtype) {
  if (dtype == "float16") return each_value(std::move(series), rounded_to_half);
  if (dtype == "bool") return each_value(std::move(series), [](float value) { return value != 0 ? 1.0F : 0.0F; });
  if (dtype == "uint8") return each_value(std::move(series), truncated<std::uint8_t>);
  if (dtype == "int8") return each_value(std::move(series), truncated<std::int8_t>);
  if (dtype == "int16") return each_value(std::move(series), truncated<std::int16_t>);
  if (dtype == "int32") return each_value(std::move(series), truncated<std::int32_t>);
  if (dtype == "int64") return each_value(std::move(series), truncated<std::int64_t>);
  return series;  // nothing to round, because float32 and float64 represent all values
}

Series in_basis(const Series& series, const op::TemporalBasis& options) {
  const Series basis = cosine_basis(options);
  Series out{series.rows, series.columns * basis.rows, {}};
  out.values.resize(static_cast<std::size_t>(out.rows * out.columns));
  Series one = like(series);
  for (std::int64_t j = 0; j < basis.rows; ++j) {
    std::vector<double> taps(basis.row(j), basis.row(j) + basis.columns);
    if (options.causal) std::reverse(taps.begin(), taps.end());
    const std::int64_t before = options.causal ? basis.columns - 1 : basis.columns / 2;
    add_filtered(
        series, taps, before, [&series](std::int64_t t) { return t < series.rows ? t : -1; }, one);
    for (std::int64_t t = 0; t < series.rows; ++t) {
      for (std::int64_t c = 0; c < series.columns; ++c) out.row(t)[c * basis.rows + j] = one.row(t)[c];
    }
  }
  return out;
}

// The filter t^n exp(-t / tau) divided by its integral; t is in bins.
std::vector<double> gamma_filter(std::int64_t length, double n, double tau_ms, double rate) {
  const double tau = std::max(0.1, std::max(tau_ms, 1e-2) / 1000.0 * rate);
  const double norm = std::max(1e-9, std::pow(tau, n + 1) * std::exp(std::lgamma(n + 1 + 1e-9)));
  std::vector<double> filter;
  for (std::int64_t k = 0; k < length; ++k) {
    const auto t = static_cast<double>(k);
    filter.push_back(std::pow(t, n) * std::exp(-t / tau) / norm);
  }
  return filter;
}

Series adapted(const Series& series, const op::DaCones& cones) {
  std::vector<double> quick = gamma_filter(cones.filter_length, std::max(cones.n_y, 0.5), cones.tau_y_ms, cones.sampling_rate);
  std::vector<double> slow = gamma_filter(cones.filter_length, std::max(cones.n_z, 0.1), cones.tau_z_ms, cones.sampling_rate);
  const double gamma = std::clamp(cones.gamma, 0.0, 1.0);
  for (std::size_t k = 0; k < slow.size(); ++k) slow[k] = gamma * quick[k] + (1 - gamma) * slow[k];
  for (auto* filter : {&quick, &slow}) std::reverse(filter->begin(), filter->end());
  const auto inside = [](std::int64_t t) { return t; };  // an index before the first bin stays negative, so its tap is left out
  Series y = like(series);
  Series z = like(series);
  add_filtered(series, quick, cones.filter_length - 1, inside, y);
  add_filtered(series, slow, cones.filter_length - 1, inside, z);
  const double beta = std::max(0.0, cones.beta);
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    const double below = std::max(1e-6, 1.0 + beta * static_cast<double>(z.values[i]));
    y.values[i] = static_cast<float>(cones.alpha * static_cast<double>(y.values[i]) / below);
  }
  return y;
}

struct Apply {
  Series series;
  Plane plane;
  Series operator()(const op::PixelNorm&) {
    return each_value(std::move(series), [](float value) { return (value - 127.0F) / 255.0F; });
  }
  Series operator()(const op::Unsqueeze&) { return std::move(series); }
  Series operator()(const op::Diff&) { return differences(std::move(series)); }
  Series operator()(const op::Mul& mul) {
    return each_value(std::move(series), [f = static_cast<float>(mul.factor)](float value) { return value * f; });
  }
  Series operator()(const op::MaxNorm&) { return max_normed(std::move(series)); }
  Series operator()(const op::SymLog&) {
    return each_value(std::move(series), [](float value) { return std::copysign(std::log1p(std::abs(value)), value); });
  }
  Series operator()(const op::SplitRelu&) { return split_relu(series); }
  Series operator()(const op::Smooth& smooth) { return smoothed(std::move(series), smooth.sigma); }
  Series operator()(const op::Cast& cast) { return cast_to(std::move(series), cast.dtype); }
  Series operator()(const op::TemporalBasis& basis) { return in_basis(series, basis); }
  Series operator()(const op::FftWhitening& whitening) {
    whiten(series, plane, whitening);
    return std::move(series);
  }
  Series operator()(const op::DaCones& cones) { return adapted(series, cones); }
};

// The centres of the cosines, and twice the distance of two centres. In ms; with log_spacing, in logarithms of ms.
struct Centres {
  std::vector<double> at;
  double width = 0;
};

Centres centres_of(const op::TemporalBasis& basis) {
  double low = basis.peak_range_ms[0];
  double high = basis.peak_range_ms[1];
  if (basis.log_spacing) {
    low = std::log(std::max(1e-2, low));
    high = std::log(std::max(1e-2, high));
  }
  if (basis.num_cosine_funcs == 1) return {{low + (high - low) / 2}, high > low ? high - low : high};
  Centres centres;
  const double step = (high - low) / static_cast<double>(basis.num_cosine_funcs - 1);
  for (std::int64_t j = 0; j < basis.num_cosine_funcs; ++j) centres.at.push_back(low + static_cast<double>(j) * step);
  centres.width = 2 * step;
  return centres;
}

}  // namespace

Series apply_operations(std::span<const Operation> operations, Series series, Plane plane) {
  for (const Operation& operation : operations) series = std::visit(Apply{std::move(series), plane}, operation);
  return series;
}

Series cosine_basis(const op::TemporalBasis& options) {
  const std::int64_t taps = std::max<std::int64_t>(1, options.history_bins);
  Series basis{options.num_delta_funcs + options.num_cosine_funcs, taps + 1, {}};
  basis.values.resize(static_cast<std::size_t>(basis.rows * basis.columns));
  for (std::int64_t i = 0; i < std::min(options.num_delta_funcs, taps); ++i) basis.row(i)[i + 1] = 1.0F;
  if (options.num_cosine_funcs > 0) {
    const Centres centres = centres_of(options);
    for (std::int64_t j = 0; j < options.num_cosine_funcs; ++j) {
      for (std::int64_t k = 0; k < taps; ++k) {
        double t = static_cast<double>(k) * options.bin_size_ms;
        if (options.log_spacing) t = std::log(t + 1e-6);
        const double a = (t - centres.at[static_cast<std::size_t>(j)]) * std::numbers::pi / centres.width;
        if (std::abs(a) <= std::numbers::pi)
          basis.row(options.num_delta_funcs + j)[k + 1] = static_cast<float>((1 + std::cos(a)) / 2);
      }
    }
  }
  if (!options.normalize) return basis;
  for (std::int64_t i = 0; i < basis.rows; ++i) {
    double squares = 0;
    for (std::int64_t k = 0; k < basis.columns; ++k) squares += static_cast<double>(basis.row(i)[k]) * basis.row(i)[k];
    const double norm = std::max(1e-12, std::sqrt(squares));
    for (std::int64_t k = 0; k < basis.columns; ++k) basis.row(i)[k] = static_cast<float>(basis.row(i)[k] / norm);
  }
  return basis;
}

std::vector<std::uint8_t> valid_nlags(std::span<const std::int64_t> trials, std::span<const float> dpi_valid,
                                      std::int64_t n_lags) {
  std::vector<std::uint8_t> valid(trials.size());
  std::int64_t run = 0;  // number of consecutive valid bins up to and including this one
  for (std::size_t t = 0; t < trials.size(); ++t) {
    const bool good = t > 0 && trials[t] == trials[t - 1] && dpi_valid[t] > 0;
    run = good ? run + 1 : 0;
    valid[t] = good && run >= n_lags ? 1 : 0;
  }
  return valid;
}

Series sum_bins(const Series& in, std::int64_t ratio) {
  Series out{in.rows / ratio, in.columns, {}};
  out.values.resize(static_cast<std::size_t>(out.rows * out.columns));
  for (std::int64_t t = 0; t < out.rows * ratio; ++t) {
    for (std::int64_t c = 0; c < in.columns; ++c) out.row(t / ratio)[c] += in.row(t)[c];
  }
  return out;
}

Series average_bins(const Series& in, std::int64_t ratio) {
  Series out = sum_bins(in, ratio);
  for (float& value : out.values) value /= static_cast<float>(ratio);
  return out;
}

}  // namespace millrace::recipes::neural_response
