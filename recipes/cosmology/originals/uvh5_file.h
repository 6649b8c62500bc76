// A uvh5 file, the form in which pyuvdata keeps an interferometer's visibilities ("Memo: UVH5 file format", versions 0.1 to 1.2):
// rows of one baseline at one time each, in any order, of channels and polarisations.
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

// What /Header says. The visibilities stay in the file.
struct Header {
  SkyFile file;
  std::vector<Baseline> rows;                            // of each row
  std::vector<double> times;                             // of each row, Julian dates
  std::vector<double> freq_hz;                           // of each channel
  std::vector<std::int64_t> polarisations;               // AIPS numbers: -5 is xx
  std::string unit;                                      // "Jy"; empty: the file does not say
  std::map<std::int64_t, std::array<double, 3>> places;  // of antennas, metres along the earth's axes; empty: not there
  double latitude = 0, longitude = 0;                    // degrees
  bool wide = false;                                     // complex128
  bool has_spectral_axis = false;                        // (rows, 1, channels, polarisations), as files before version 1
  bool has_flags = false, has_samples = false;

  [[nodiscard]] std::string name() const { return file->path().filename().string(); }
};

// nullopt after adding every fault of the file to `problems`.
[[nodiscard]] std::optional<Header> read_header(const SkyFile& file, std::vector<Problem>& problems);

// "xx" of -5; the number itself for one without a name. And back; nullopt for a word that names none.
[[nodiscard]] std::string polarisation_name(std::int64_t number);
[[nodiscard]] std::optional<std::int64_t> polarisation_number(const std::string& name);
// What the polarisation is called when the two antennas change places: xy becomes yx.
[[nodiscard]] std::int64_t exchanged(std::int64_t polarisation);

// "60 rows, 1,024 channels 100.000 to 199.902 MHz ascending, xx yy, Jy, complex64".
[[nodiscard]] std::string header_text(const Header& header);
// "uvh5: " and this, with baselines and times; "" for a file that is no uvh5 file, DataError for one that is not whole.
[[nodiscard]] std::string read_as(const hdf5::File& file);

// The files that a word names: itself, or every *.uvh5 of a folder, by name. `told` gets what of the folder is left out.
[[nodiscard]] std::vector<std::filesystem::path> files_of(const std::filesystem::path& word, std::vector<std::string>& told);

}  // namespace millrace::recipes::cosmology::uvh5
