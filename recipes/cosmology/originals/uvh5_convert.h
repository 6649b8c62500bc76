// From uvh5 files to the folders that a cosmology run reads.
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
  std::vector<std::filesystem::path> foreground;  // uvh5 files; what was observed counts as foreground
  std::vector<std::filesystem::path> signal;
  std::vector<std::string> left_out;      // lines on folders of which something is not among them
  std::optional<double> made_signal_rms;  // in the files' unit: signals of known truth, made up
  std::int64_t made_signals = 40;
  std::int64_t times_per_file = 0;  // 0: chosen, so that ten files come of it where the times allow; -1: all in one file
  std::uint64_t seed = 0;
  Selection selection;
  FlagWish flags;
  std::uint64_t memory = 0;  // bytes to convert with; 0: a quarter of what is free
};

// What was made of it.
struct Converted {
  std::vector<std::pair<std::string, std::string>> told;  // a word and its line
  Json config = Json::object();                           // for train; empty: signal or foreground is missing
};

// Writes foreground/POL-tNNNN.h5 and signal/..., a file for each polarisation and stretch of times, and train.json into the
// existing empty folder `out`: /vis (baselines, channels, times) in the type of the file, /index_map/freq in MHz,
// /index_map/baselines (east and north in metres, where the files say), /index_map/antennas, /index_map/times (Julian dates),
// /index_map/unit. Holds as
// many baselines of one polarisation as fit, and reads the files again for the others. Throws one DataError (SkyProblems) with
// all that is wrong with the files and the choice.
[[nodiscard]] Converted convert(const Wish& wish, const std::filesystem::path& out);

}  // namespace millrace::recipes::cosmology::uvh5
