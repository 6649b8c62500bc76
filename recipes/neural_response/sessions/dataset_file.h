// The dataset file of a neural_response run: its sessions, and how they are sampled, transformed, filtered and split.
//
// A parent file (YAML, JSON or TOML) holds the keys that all sessions share. Its `session_dir` names a folder next to it that
// has a small file for each session, SESSION.yaml (or .yml, .json, .toml); a key in a session's file replaces the parent's key.
// Files of VisionCore, the program that this recipe follows, load unchanged. A session may also stand in the parent itself:
// `sessions: [{session: a, cids: [0, 1]}]`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "recipes/neural_response/sessions/transforms.h"

namespace millrace::recipes::neural_response {

// The settings of a session. Its keys and their defaults are:
//   types [backimage]; sampling.source_rate 240, sampling.target_rate 120; keys_lags robs 0, stim [0..24], behavior 0, dfs 0;
//   transforms, datafilters: those of VisionCore's backimage file; train_val_split 0.8; seed 1002; data_dir: the folder of the
//   HDF5 files, relative to the dataset file, if data.dir is not set; session, cids.
struct SessionFile {
  std::string name;
  std::vector<std::int64_t> cids;  // columns of /robs, in this order
  std::vector<std::string> types;  // the types of the session's files: a file is named TYPE.h5
  double source_rate = 240;
  double target_rate = 120;
  std::int64_t ratio = 2;  // number of source bins in a bin
  std::int64_t lags = 25;
  std::vector<Transform> transforms;  // in the order of the dataset file
  Filters filters;
  double train_share = 0.8;
  std::uint64_t seed = 1002;
  std::filesystem::path folder;  // the folder that contains NAME/ with the HDF5 files, if data.dir is not set
  std::string place;             // the file that describes the session, for messages
  std::string options;           // all members above except the folder, as a text for the fingerprint
};

struct DatasetFile {
  std::vector<SessionFile> sessions;
  std::vector<std::string> notices;
};

// Reads the file and the files of its first `max_sessions` sessions. Throws ConfigError with all problems: a file that can't be
// read; an unknown key, filter, operation or argument (with the nearest known name); missing cids; rates whose ratio is not a
// whole number; more lags than the filter valid_nlags looks back.
[[nodiscard]] DatasetFile read_dataset_file(const std::filesystem::path& path, std::int64_t max_sessions);

}  // namespace millrace::recipes::neural_response
