// Converts uvh5 files to the folders that a cosmology run reads.
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
  std::vector<std::filesystem::path> foreground;  // uvh5 files of the foreground; real observations count as foreground
  std::vector<std::filesystem::path> signal;
  std::vector<std::string> left_out;      // lines for the user about folders in which files are skipped
  std::optional<double> made_signal_rms;  // rms of generated signals whose truth is known, in the files' unit; nullopt: signals
                                          // come from files
  std::int64_t made_signals = 40;
  std::int64_t times_per_file = 0;  // number of times in an output file; 0: chosen so that there are ten files if there are
                                    // enough times; -1: all times in one file
  std::uint64_t seed = 0;
  Selection selection;
  FlagWish flags;
  std::uint64_t memory = 0;  // bytes that the conversion may take; 0: a quarter of the free memory
};

// What a conversion did.
struct Converted {
  std::vector<std::pair<std::string, std::string>> notices;  // lines for the user: a label and a text
  Json config = Json::object();  // the config for `millrace train`; empty if signal or foreground is missing
};

// Writes foreground/POL-tNNNN.h5, signal/... and train.json into the existing empty folder `out`. Each file has one polarisation
// and times_per_file successive times: /vis (baselines, channels, times) in the type of the input, /index_map/freq in MHz,
// /index_map/baselines (east and north in metres, if the input has them), /index_map/antennas, /index_map/times (Julian dates),
// /index_map/unit. Holds as many baselines of a polarisation in memory as fit, and reads the input again for the other
// baselines. Throws one DataError (SkyProblems) with all faults of the files and of the selection.
[[nodiscard]] Converted convert(const Wish& wish, const std::filesystem::path& out);

}  // namespace millrace::recipes::cosmology::uvh5
