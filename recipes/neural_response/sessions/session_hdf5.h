// Covariates out of a session's HDF5 file, checked before they are read: a file may claim anything.
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

// The dataset, which must be there, of real numbers, with `least` to `most` axes, and not larger than a file of this size can
// hold. Throws DataError.
[[nodiscard]] const hdf5::Dataset& covariate_of(const hdf5::File& file, const std::string& name, std::size_t least,
                                                std::size_t most);
[[nodiscard]] bool has_covariate(const hdf5::File& file, const std::string& name);

// Which source bins may hold no number, since nothing is made of them: those of groups of `ratio` that `dpi_valid` marks with 0.
// The bins that hold none are counted.
struct Gaps {
  std::span<const float> dpi_valid;  // of each group
  std::int64_t ratio = 1;
  std::int64_t found = 0;
  [[nodiscard]] bool may_hold(std::int64_t t) const;
};

// All rows of (T) or (T, columns), as float32. Throws DataError for a value that is not finite; but a NaN in one of `gaps`
// becomes the column's number before it, or the first after it.
[[nodiscard]] Series read_series(const hdf5::File& file, const std::string& name, Gaps* gaps = nullptr);
// All of (T), as whole numbers; DataError where one is not.
[[nodiscard]] std::vector<std::int64_t> read_wholes(const hdf5::File& file, const std::string& name);
// All of (T), as they are.
[[nodiscard]] std::vector<double> read_seconds(const hdf5::File& file, const std::string& name);
// Chosen columns of (T, columns), summed over `ratio` bins. Throws DataError for a value that is negative or not finite, in any
// of these columns, and for a column that is not there; but a NaN in one of `gaps` is 0.
[[nodiscard]] Series read_counts(const hdf5::File& file, const std::string& name, std::span<const std::int64_t> columns,
                                 Gaps& gaps);
// Chosen columns of (T, columns), averaged over `ratio` bins; a value that is not a number stays so.
[[nodiscard]] Series read_percent(const hdf5::File& file, const std::string& name, std::span<const std::int64_t> columns,
                                  std::int64_t ratio);

}  // namespace millrace::recipes::neural_response
