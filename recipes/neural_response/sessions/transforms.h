// The transforms and filters that a dataset file can name, for plain arrays. Pure functions without LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "millrace/base/error.h"

namespace millrace::recipes::neural_response {

// An array whose first axis is time: row t holds the `columns` numbers of a bin.
struct Series {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<float> values;  // row-major
  [[nodiscard]] float* row(std::int64_t t) { return values.data() + t * columns; }
  [[nodiscard]] const float* row(std::int64_t t) const { return values.data() + t * columns; }
};

namespace op {
struct PixelNorm {};  // (x - 127) / 255
struct Unsqueeze {    // the stimulus gets an axis of channels
  std::int64_t axis = 1;
};
struct Diff {};  // x[t] - x[t-1]; 0 in the first row
struct Mul {
  double factor = 1;
};
struct MaxNorm {};    // x / max |x| over the whole series; a series of zeros stays unchanged
struct SymLog {};     // sign(x) log(1 + |x|)
struct SplitRelu {};  // columns relu(x), then relu(-x)
struct Smooth {       // a Gaussian over time; the series is reflected at its ends
  double sigma = 1;
};
struct Cast {  // rounds to the values of a type: float16, float32, float64, int8 ... int64, uint8, bool
  std::string dtype = "float32";
};
// Filters over time that are raised cosines (see cosine_basis). Column c is replaced by the results of all filters, in order.
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
// Multiplies each frequency of the whole movie by f exp(-(f / f_0)^n), where f = sqrt(f_t^2 + f_h^2 + f_w^2) in cycles per
// sample.
struct FftWhitening {
  double f_0 = 0.4;
  double n = 4;
};
// Adapting photoreceptors (Clark et al., "Dynamical adaptation in photoreceptors", PLoS Comput Biol 2013, eq. 15): alpha y / (1 +
// beta z), where y and z are the movie after gamma-function filters over the earlier bins.
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

// Makes the field `expose_as` from the data set `source` by `operations`. If transforms with `concatenate` have the same
// `expose_as`, their results become columns next to each other, in the order of the file.
struct Transform {
  std::string name;
  std::string source;
  std::vector<Operation> operations;
  std::string expose_as;
  bool concatenate = false;
};

struct Filters {
  std::int64_t n_lags = 0;          // value of n_lags of the filter valid_nlags; 0: there is no such filter
  bool has_missing_pct = false;     // true: there is a filter missing_pct
  double missing_threshold = 45.0;  // a percentage below this is valid
};

// The size of an image, for operations that need it (fftwhitening); 1 by 1 for a series without space.
struct Plane {
  std::int64_t height = 1;
  std::int64_t width = 1;
};

// Applies the operations to `series`, in order, and returns the result.
[[nodiscard]] Series apply_operations(std::span<const Operation> operations, Series series, Plane plane = {});

// The filters of TemporalBasis: (num_delta_funcs + num_cosine_funcs) rows of history_bins + 1 taps. Tap k > 0 of a cosine is at t
// = (k - 1) * bin_size_ms and has the value (1 + cos a) / 2 for |a| <= pi, where a = (t - c) pi / w. The centres c are evenly
// spaced over peak_range_ms, and w is twice their distance (with log_spacing both are in logarithms). Tap 0 is 0. With normalize
// each row has L2 norm 1.
[[nodiscard]] Series cosine_basis(const op::TemporalBasis& basis);

// For each bin, true if the bin and the n_lags - 1 bins before it all have dpi_valid > 0, and none of them is the first bin of a
// trial. Bins before the series count as invalid.
[[nodiscard]] std::vector<std::uint8_t> valid_nlags(std::span<const std::int64_t> trials, std::span<const float> dpi_valid,
                                                    std::int64_t n_lags);

// sum_bins() and average_bins() reduce the number of rows by `ratio`: each result combines `ratio` rows. If the last group is
// incomplete, its rows are dropped.
[[nodiscard]] Series sum_bins(const Series& in, std::int64_t ratio);
[[nodiscard]] Series average_bins(const Series& in, std::int64_t ratio);

}  // namespace millrace::recipes::neural_response
