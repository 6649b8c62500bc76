// What the files of a sky say of their axes and their unit, and whether they say the same.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/field.h"
#include "millrace/hdf5/file.h"

namespace millrace::recipes::cosmology {

// Of one file. Empty where it says nothing, or nothing that can be read; the latter has a line in `unread`.
struct SkyWords {
  std::vector<double> freq_mhz;  // of /index_map/freq, in any type and unit, else of /index_map/redshift
  std::string freq_from;         // "/index_map/freq"; with the unit where it is not MHz
  std::vector<double> ra;        // degrees, of /index_map/ra
  std::string unit;              // of /index_map/unit, or an attribute unit or units of the cube or the file
  std::vector<std::string> unread;
};

// `shape` is that of the cube named `cube`. What contradicts itself (another length than the cube's axis, numbers that are not
// finite, two units) goes to `problems`.
[[nodiscard]] SkyWords words_of(const hdf5::File& file, const std::string& cube, const Shape& shape,
                                std::vector<Problem>& problems);

// In one line: "channels 100 to 131 MHz ascending in steps of 1, RA 0 to 354 degrees ascending in steps of 6, K". `silent_band`:
// what is said where there are no frequencies.
[[nodiscard]] std::string read_as(const SkyWords& words, const std::string& silent_band);

struct SkyAxes {
  SkyWords words;  // of each thing what the first file says of it; without a unit: kelvin
  std::vector<std::string> told;
};

// Compares all files: a contradiction goes to `problems` with both files and both values, and a unit, an axis that is not in all
// files, or that can't be read, becomes a line in `told`. `default_band`: what is taken where no file has frequencies.
struct NamedSky {
  const hdf5::File* file = nullptr;
  Shape shape;
};
[[nodiscard]] SkyAxes compared_axes(const std::vector<NamedSky>& files, const std::string& cube, const std::string& default_band,
                                    std::vector<Problem>& problems);

}  // namespace millrace::recipes::cosmology
