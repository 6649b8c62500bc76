// A uvh5 file, the format in which pyuvdata keeps an interferometer's visibilities ("Memo: UVH5 file format", versions 0.1 to
// 1.2): each row is one baseline at one time, in any order, with channels and polarisations.
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

using Baseline = std::pair<std::int64_t, std::int64_t>;  // numbers of two antennas

// The content of /Header. The visibilities stay in the file.
struct Header {
  SkyFile file;
  std::vector<Baseline> rows;                            // for each row
  std::vector<double> times;                             // for each row, Julian dates
  std::vector<double> freq_hz;                           // for each channel
  std::vector<std::int64_t> polarisations;               // AIPS numbers: -5 is xx
  std::string unit;                                      // "Jy"; empty: not in the file
  std::map<std::int64_t, std::array<double, 3>> places;  // of antennas, metres along the earth's axes; empty: not in the file
  double latitude = 0, longitude = 0;                    // degrees
  bool wide = false;                                     // complex128
  bool has_spectral_axis = false;                        // (rows, 1, channels, polarisations), as in files before version 1
  bool has_flags = false, has_samples = false;

  [[nodiscard]] std::string name() const { return file->path().filename().string(); }
};

// Adds every fault of the file to `problems` and then returns nullopt.
[[nodiscard]] std::optional<Header> read_header(const SkyFile& file, std::vector<Problem>& problems);

// -5 gives "xx"; a number without a name gives the number itself. The inverse returns nullopt for an unknown word.
[[nodiscard]] std::string polarisation_name(std::int64_t number);
[[nodiscard]] std::optional<std::int64_t> polarisation_number(const std::string& name);
// The polarisation after the two antennas change places: xy becomes yx.
[[nodiscard]] std::int64_t exchanged(std::int64_t polarisation);

// "60 rows, 1,024 channels 100.000 to 199.902 MHz ascending, xx yy, Jy, complex64".
[[nodiscard]] std::string header_text(const Header& header);
// "uvh5: " and the text above, with baselines and times; "" for any other kind of file. DataError if the file is incomplete.
[[nodiscard]] std::string read_as(const hdf5::File& file);

// The files that a word names: the file itself, or every *.uvh5 of a folder, by name. `told` receives lines about skipped files.
[[nodiscard]] std::vector<std::filesystem::path> files_of(const std::filesystem::path& word, std::vector<std::string>& notices);

}  // namespace millrace::recipes::cosmology::uvh5
