// Reads a uvh5 file, the format in which the Python package pyuvdata keeps an interferometer's visibilities ("Memo: UVH5 file
// format", versions 0.1 to 1.2). Each row is a baseline at a time, with all channels and polarisations. The rows may be in any
// order.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/error.h"
#include "recipes/cosmology/sky_files.h"

namespace millrace::recipes::cosmology::uvh5 {

using Baseline = std::pair<std::int64_t, std::int64_t>;  // the numbers of two antennas

// The contents of the group /Header. The visibilities stay in the file.
struct Header {
  SkyFile file;
  std::vector<Baseline> rows;                            // baseline of each row
  std::vector<double> times;                             // time of each row, as a Julian date
  std::vector<double> freq_hz;                           // frequency of each channel
  std::vector<std::int64_t> polarisations;               // as AIPS numbers: -5 is xx
  std::string unit;                                      // such as "Jy"; empty: the file does not say
  std::map<std::int64_t, std::array<double, 3>> places;  // antenna -> position in metres along the earth's axes; empty: the file
                                                         // does not have them
  double latitude = 0, longitude = 0;                    // position of the telescope, in degrees
  bool wide = false;                                     // true: complex128
  bool has_spectral_axis = false;  // true: the values are (rows, 1, channels, polarisations), as in files before version 1
  bool has_flags = false, has_samples = false;

  [[nodiscard]] std::string name() const { return file->path().filename().string(); }
};

// Reads the header. If the file has faults, adds all faults to `problems` and returns nullopt.
[[nodiscard]] std::optional<Header> read_header(const SkyFile& file, std::vector<Problem>& problems);

// polarisation_name() returns the name of a polarisation, such as "xx" for -5; a number without a name is returned as text.
// polarisation_number() is the inverse function; nullopt for an unknown name.
[[nodiscard]] std::string polarisation_name(std::int64_t number);
[[nodiscard]] std::optional<std::int64_t> polarisation_number(const std::string& name);
// The polarisation after the two antennas are exchanged: xy becomes yx.
[[nodiscard]] std::int64_t exchanged(std::int64_t polarisation);

// A text such as "60 rows, 1,024 channels 100.000 to 199.902 MHz ascending, xx yy, Jy, complex64".
[[nodiscard]] std::string header_text(const Header& header);
// "uvh5: " followed by header_text(), baselines and times. "" for another kind of file. Throws DataError if the file is
// incomplete.
[[nodiscard]] std::string read_as(const hdf5::File& file);

// The files that an argument of the command names: the file itself, or all *.uvh5 in a folder, sorted by name. `notices` gets
// lines about skipped files.
[[nodiscard]] std::vector<std::filesystem::path> files_of(const std::filesystem::path& word, std::vector<std::string>& notices);

}  // namespace millrace::recipes::cosmology::uvh5
