// Finds the axes that data sets of a file describe: lists of numbers that rise or fall, and their units.
#pragma once

#include <string>
#include <vector>

#include "millrace/hdf5/file.h"

namespace millrace::hdf5 {

// The text of the attribute "unit" or "units" of a data set, or of the root group "/"; "" if there is no such text or data set.
[[nodiscard]] std::string unit_attribute(const File& file, const std::string& of);

// Returns all numbers of a data set of real numbers of any type. Throws DataError as File::read() does.
[[nodiscard]] std::vector<double> numbers_of(const File& file, const Dataset& set);

struct StoredAxis {
  std::string name;  // name of the data set
  std::string unit;  // unit from its attribute; may be empty
  std::vector<double> values;
};
// The data sets with one axis of 2 to 2^20 real numbers that strictly rise or strictly fall, in the order of the file.
[[nodiscard]] std::vector<StoredAxis> axes_of(const File& file);

}  // namespace millrace::hdf5
