// Reads the data sets of a session's HDF5 file. Checks them first, because a file may claim anything.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "millrace/hdf5/file.h"
#include "recipes/neural_response/sessions/transforms.h"

namespace millrace::recipes::neural_response {

// A name such as "allen_0216/backimage.h5".
[[nodiscard]] std::string short_name(const hdf5::File& file);

// The data set `name`. Throws DataError if the data set is missing, does not hold real numbers, does not have `least` to `most`
// axes, or is larger than a file of this size can hold.
[[nodiscard]] const hdf5::Dataset& covariate_of(const hdf5::File& file, const std::string& name, std::size_t least,
                                                std::size_t most);
[[nodiscard]] bool has_covariate(const hdf5::File& file, const std::string& name);

// Source bins that may lack numbers because they are not used: the bins in groups of `ratio` which `dpi_valid` marks with 0. The
// readers below count in this struct how many of these bins lack a number.
struct Gaps {
  std::span<const float> dpi_valid;  // a value for each group
  std::int64_t ratio = 1;
  std::int64_t found = 0;
  [[nodiscard]] bool may_hold(std::int64_t t) const;
};

// Reads all rows of (T) or (T, columns) as float32. Throws DataError for a value that is not finite. Exception: a NaN in one of
// `gaps` is replaced by the previous number of its column, or by the next number if there is no previous one.
[[nodiscard]] Series read_series(const hdf5::File& file, const std::string& name, Gaps* gaps = nullptr);
// Reads all of (T) as whole numbers. Throws DataError if a value is not a whole number.
[[nodiscard]] std::vector<std::int64_t> read_wholes(const hdf5::File& file, const std::string& name);
// Reads all of (T) without a change.
[[nodiscard]] std::vector<double> read_seconds(const hdf5::File& file, const std::string& name);
// Reads some columns of (T, columns) and sums over `ratio` bins. Throws DataError for a missing column, and for a negative or
// non-finite value in one of these columns. Exception: a NaN in one of `gaps` counts as 0.
[[nodiscard]] Series read_counts(const hdf5::File& file, const std::string& name, std::span<const std::int64_t> columns,
                                 Gaps& gaps);
// Reads some columns of (T, columns) and averages over `ratio` bins. NaN stays NaN.
[[nodiscard]] Series read_percent(const hdf5::File& file, const std::string& name, std::span<const std::int64_t> columns,
                                  std::int64_t ratio);

}  // namespace millrace::recipes::neural_response
