// What the data sets of a file say of axes: lists of numbers that rise or fall, and units beside them.
#pragma once

#include <string>
#include <vector>

#include "millrace/hdf5/file.h"

namespace millrace::hdf5 {

// The attribute unit or units of a data set, or of the root group "/", where it is a text; "" where there is none, and of a data
// set that the file does not have.
[[nodiscard]] std::string unit_attribute(const File& file, const std::string& of);

// All numbers of a data set of real numbers, of any type. DataError as File::read.
[[nodiscard]] std::vector<double> numbers_of(const File& file, const Dataset& set);

struct StoredAxis {
  std::string name;  // of the data set
  std::string unit;  // as its attribute has it; may be empty
  std::vector<double> values;
};
// The data sets with one axis of 2 to 2^20 real numbers each of which is above the one before, or each below, in the order in
// which the file has them.
[[nodiscard]] std::vector<StoredAxis> axes_of(const File& file);

}  // namespace millrace::hdf5
