// Reads the axes and the unit of each file of a sky, and checks whether the files agree.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/field.h"
#include "millrace/hdf5/file.h"

namespace millrace::recipes::cosmology {

// The axes and the unit of a file. A member is empty if its data set is missing or can't be read. `unread` has a line for each
// data set that can't be read.
struct SkyWords {
  std::vector<double> freq_mhz;  // in MHz: read from /index_map/freq, else computed from /index_map/redshift
  std::string freq_from;         // where the frequencies come from, such as "/index_map/freq"; with the unit if that is not MHz
  std::vector<double> ra;        // in degrees, from /index_map/ra
  std::string unit;              // from /index_map/unit, or from an attribute `unit` or `units` of the cube or of the file
  std::vector<std::string> unread;
};

// Reads the axes and the unit of a file. `shape`: the shape of the data set `cube`. Contradictions are added to `problems`: a
// length that differs from the cube's axis, numbers that are not finite, two units.
[[nodiscard]] SkyWords words_of(const hdf5::File& file, const std::string& cube, const Shape& shape,
                                std::vector<Problem>& problems);

// A line such as "channels 100 to 131 MHz ascending in steps of 1, RA 0 to 354 degrees ascending in steps of 6, in K".
// `silent_band`: the text about the channels if the file has no frequencies.
[[nodiscard]] std::string read_as(const SkyWords& words, const std::string& silent_band);

struct SkyAxes {
  SkyWords words;  // channels and RA of the first file that has them; the unit of the first file, "" = kelvin
  std::vector<std::string> notices;
};

struct NamedSky {
  const hdf5::File* file = nullptr;
  Shape shape;  // shape of the file's cube
};
// Compares all files. A contradiction is added to `problems`, with both files and both values. A unit or an axis that some files
// lack, or that is unreadable, leads to a line in `notices`. `default_band`: the text for the notice if no file has frequencies.
[[nodiscard]] SkyAxes compared_axes(const std::vector<NamedSky>& files, const std::string& cube, const std::string& default_band,
                                    std::vector<Problem>& problems);

}  // namespace millrace::recipes::cosmology
