// Conversion of uvh5 files to the folders that a cosmology run reads.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/json.h"
#include "recipes/cosmology/originals/uvh5_flags.h"

namespace millrace::recipes::cosmology::uvh5 {

struct Wish {
  std::vector<std::filesystem::path> foreground;  // uvh5 files; observations count as foreground
  std::vector<std::filesystem::path> signal;
  std::vector<std::string> left_out;      // lines about folders of which some files are left out
  std::optional<double> made_signal_rms;  // in the files' unit: generated signals of known truth
  std::int64_t made_signals = 40;
  std::int64_t times_per_file = 0;  // 0: chosen to give ten files if there are enough times; -1: all in one file
  std::uint64_t seed = 0;
  Selection selection;
  FlagWish flags;
  std::uint64_t memory = 0;  // bytes for the conversion; 0: a quarter of the free memory
};

// The outcome of a conversion.
struct Converted {
  std::vector<std::pair<std::string, std::string>> notices;  // each a word and its line
  Json config = Json::object();                              // for train; empty: signal or foreground is missing
};

// Writes foreground/POL-tNNNN.h5 and signal/..., each with one polarisation and times_per_file successive times, and
// train.json into the existing empty folder `out`: /vis (baselines, channels, times) in the file's type, /index_map/freq in MHz,
// /index_map/baselines (east and north in metres, if the files have them), /index_map/antennas, /index_map/times (Julian dates),
// /index_map/unit. Holds as many baselines of one polarisation as fit, and reads the files again for the others. Throws one
// DataError (SkyProblems) with all faults of the files and the selection.
[[nodiscard]] Converted convert(const Wish& wish, const std::filesystem::path& out);

}  // namespace millrace::recipes::cosmology::uvh5
