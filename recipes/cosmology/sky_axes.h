// The metadata of a sky's files on their axes and unit, and whether the files agree.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/field.h"
#include "millrace/hdf5/file.h"

namespace millrace::recipes::cosmology {

// The metadata of one file. A field is empty if its data set is missing or unreadable; an unreadable
// one also gets a line in `unread`.
struct SkyWords {
  std::vector<double> freq_mhz;  // from /index_map/freq, in any type and unit, else from /index_map/redshift
  std::string freq_from;         // "/index_map/freq"; with the unit if it is not MHz
  std::vector<double> ra;        // degrees, from /index_map/ra
  std::string unit;              // from /index_map/unit, or an attribute unit or units of the cube or the file
  std::vector<std::string> unread;
};

// `shape` is the shape of the cube named `cube`. Contradictions (a length other than the cube's axis, numbers that are not
// finite, two units) go to `problems`.
[[nodiscard]] SkyWords words_of(const hdf5::File& file, const std::string& cube, const Shape& shape,
                                std::vector<Problem>& problems);

// In one line: "channels 100 to 131 MHz ascending in steps of 1, RA 0 to 354 degrees ascending in steps of 6, K". `silent_band`
// is the text for files without frequencies.
[[nodiscard]] std::string read_as(const SkyWords& words, const std::string& silent_band);

struct SkyAxes {
  SkyWords words;  // each field from the first file that has it; without a unit: kelvin
  std::vector<std::string> notices;
};

struct NamedSky {
  const hdf5::File* file = nullptr;
  Shape shape;  // of the file's cube
};
// Compares all files. A contradiction goes to `problems` with both files and both values; a unit or an axis that is missing in
// some files, or unreadable, becomes a line in `told`. `default_band` is used if no file has frequencies.
[[nodiscard]] SkyAxes compared_axes(const std::vector<NamedSky>& files, const std::string& cube, const std::string& default_band,
                                    std::vector<Problem>& problems);

}  // namespace millrace::recipes::cosmology
