// Reads covariates from a session's HDF5 file, after checking them: a file may claim anything.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "millrace/hdf5/file.h"
#include "recipes/neural_response/sessions/transforms.h"

namespace millrace::recipes::neural_response {

// "allen_0216/backimage.h5".
[[nodiscard]] std::string short_name(const hdf5::File& file);

// The dataset. DataError if it is missing, is not of real numbers, does not have `least` to `most` axes, or is larger than a file
// of this size can hold.
[[nodiscard]] const hdf5::Dataset& covariate_of(const hdf5::File& file, const std::string& name, std::size_t least,
                                                std::size_t most);
[[nodiscard]] bool has_covariate(const hdf5::File& file, const std::string& name);

// The source bins that may lack numbers because they are not used: those in groups of `ratio` that `dpi_valid` marks with 0. The
// readers count here how many of these bins lack one.
struct Gaps {
  std::span<const float> dpi_valid;  // for each group
  std::int64_t ratio = 1;
  std::int64_t found = 0;
  [[nodiscard]] bool may_hold(std::int64_t t) const;
};

// All rows of (T) or (T, columns), as float32. DataError for a value that is not finite; but a NaN in one of `gaps` is replaced
// by the column's number before it, or the first after it.
[[nodiscard]] Series read_series(const hdf5::File& file, const std::string& name, Gaps* gaps = nullptr);
// All of (T), as whole numbers; DataError if a value is not one.
[[nodiscard]] std::vector<std::int64_t> read_wholes(const hdf5::File& file, const std::string& name);
// All of (T), unchanged.
[[nodiscard]] std::vector<double> read_seconds(const hdf5::File& file, const std::string& name);
// Chosen columns of (T, columns), summed over `ratio` bins. DataError for a negative or non-finite value in any of these columns,
// and for a missing column; but a NaN in one of `gaps` is 0.
[[nodiscard]] Series read_counts(const hdf5::File& file, const std::string& name, std::span<const std::int64_t> columns,
                                 Gaps& gaps);
// Chosen columns of (T, columns), averaged over `ratio` bins; NaN stays NaN.
[[nodiscard]] Series read_percent(const hdf5::File& file, const std::string& name, std::span<const std::int64_t> columns,
                                  std::int64_t ratio);

}  // namespace millrace::recipes::neural_response
