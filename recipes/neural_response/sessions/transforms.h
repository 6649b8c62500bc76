// The declarative transforms and filters of a dataset file, on plain arrays. Pure functions without LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "millrace/base/error.h"

namespace millrace::recipes::neural_response {

// An array with time as its first axis: row t holds what one bin has, `columns` numbers.
struct Series {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<float> values;  // row-major
  [[nodiscard]] float* row(std::int64_t t) { return values.data() + t * columns; }
  [[nodiscard]] const float* row(std::int64_t t) const { return values.data() + t * columns; }
};

namespace op {
struct PixelNorm {};  // (x - 127) / 255
struct Unsqueeze {    // the stimulus gets its channel axis
  std::int64_t axis = 1;
};
struct Diff {};  // x[t] - x[t-1], 0 in the first row
struct Mul {
  double factor = 1;
};
struct MaxNorm {};    // x / max |x| over the whole series; a series of zeros stays
struct SymLog {};     // sign(x) log(1 + |x|)
struct SplitRelu {};  // columns relu(x), then relu(-x)
struct Smooth {       // Gaussian over time, reflected at the ends
  double sigma = 1;
};
struct Cast {  // the values that a type holds: float16, float32, float64, int8 ... int64, uint8, bool
  std::string dtype = "float32";
};
// Raised cosines over time (see cosine_basis); column c becomes its bases, in order.
struct TemporalBasis {
  std::int64_t num_delta_funcs = 0;
  std::int64_t num_cosine_funcs = 10;
  std::int64_t history_bins = 32;
  bool log_spacing = true;
  std::vector<double> peak_range_ms = {5, 100};
  double bin_size_ms = 5;
  bool normalize = true;
  bool causal = true;
};
// f exp(-(f / f_0)^n) in the frequencies f (cycles per sample, radial over time, height and width) of the whole movie.
struct FftWhitening {
  double f_0 = 0.4;
  double n = 4;
};
// Photoreceptors that adapt: Clark et al., "Dynamical adaptation in photoreceptors", PLoS Comput Biol 2013, eq. 15:
// alpha y / (1 + beta z), y and z the movie through gamma-function filters of the bins before.
struct DaCones {
  double sampling_rate = 240;
  double alpha = 1;
  double beta = 0.00008;
  double gamma = 0.5;
  double tau_y_ms = 5;
  double tau_z_ms = 60;
  double n_y = 5;
  double n_z = 2;
  std::int64_t filter_length = 200;
};
}  // namespace op

using Operation = std::variant<op::PixelNorm, op::Unsqueeze, op::Diff, op::Mul, op::MaxNorm, op::SymLog, op::SplitRelu,
                               op::Smooth, op::Cast, op::TemporalBasis, op::FftWhitening, op::DaCones>;

// source -> operations -> expose_as. Several with `concatenate` and one name stand side by side, in the order of the file.
struct Transform {
  std::string name;
  std::string source;
  std::vector<Operation> operations;
  std::string expose_as;
  bool concatenate = false;
};

struct Filters {
  std::int64_t n_lags = 0;          // of valid_nlags; 0: none
  bool has_missing_pct = false;     // missing_pct
  double missing_threshold = 45.0;  // percent below it is valid
};

// What an image of `height` by `width` is to the operations that need to know (fftwhitening); a series without space has 1 by 1.
struct Plane {
  std::int64_t height = 1;
  std::int64_t width = 1;
};

// The operations in turn. `series` is used up.
[[nodiscard]] Series apply_operations(std::span<const Operation> operations, Series series, Plane plane = {});

// (num_delta_funcs + num_cosine_funcs) rows of history_bins + 1 taps. Tap k > 0 of a cosine stands for t = (k - 1) * bin_size_ms:
// (1 + cos a) / 2 where |a| <= pi, a = (t - c) pi / w, centres c evenly over peak_range_ms, w twice their distance (log_spacing:
// of the logarithms). Tap 0 is 0. With normalize each row has the L2 norm 1.
[[nodiscard]] Series cosine_basis(const op::TemporalBasis& basis);

// True for a bin when it and the n_lags - 1 bins before are no first bins of a trial and have dpi_valid > 0; looks back inside
// the series only.
[[nodiscard]] std::vector<std::uint8_t> valid_nlags(std::span<const std::int64_t> trials, std::span<const float> dpi_valid,
                                                    std::int64_t n_lags);

// Downsampling by `ratio`; rows of a last group that is not full are dropped. Each row of `in` has `columns` numbers.
[[nodiscard]] Series sum_bins(const Series& in, std::int64_t ratio);
[[nodiscard]] Series average_bins(const Series& in, std::int64_t ratio);

}  // namespace millrace::recipes::neural_response
