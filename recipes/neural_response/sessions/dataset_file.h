// The dataset file of a neural_response run: its sessions, and how they are sampled, transformed, filtered and split.
//
// A parent file (YAML, JSON or TOML) holds the keys that all sessions share; `session_dir` next to it has a small file per
// session, SESSION.yaml (or .yml, .json, .toml), whose keys override the parent's one by one. VisionCore's files load unchanged.
// A session may also be in the parent itself: `sessions: [{session: a, cids: [0, 1]}]`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "recipes/neural_response/sessions/transforms.h"

namespace millrace::recipes::neural_response {

// The settings of one session. Its keys and their defaults:
//   types [backimage]; sampling.source_rate 240, sampling.target_rate 120; keys_lags robs 0, stim [0..24], behavior 0, dfs 0;
//   transforms, datafilters: those of VisionCore's backimage file; train_val_split 0.8; seed 1002; data_dir: the folder of the
//   HDF5 files, relative to the dataset file, if data.dir is not set; session, cids.
struct SessionFile {
  std::string name;
  std::vector<std::int64_t> cids;  // columns of /robs, in this order
  std::vector<std::string> types;  // files of the session
  double source_rate = 240;
  double target_rate = 120;
  std::int64_t ratio = 2;  // source bins per bin
  std::int64_t lags = 25;
  std::vector<Transform> transforms;  // in the order of the file
  Filters filters;
  double train_share = 0.8;
  std::uint64_t seed = 1002;
  std::filesystem::path folder;  // contains the folder NAME/ with its HDF5 files, if data.dir is not set
  std::string place;             // its file, for messages
  std::string options;           // all of the above except the folder, as text: for the fingerprint
};

struct DatasetFile {
  std::vector<SessionFile> sessions;
  std::vector<std::string> notices;
};

// Reads the file and those of its first `max_sessions` sessions. ConfigError with all problems: an unreadable file, an unknown
// key, filter, operation or argument (with the nearest known name), missing cids, rates whose ratio is not whole, more lags than
// the filter valid_nlags looks back.
[[nodiscard]] DatasetFile read_dataset_file(const std::filesystem::path& path, std::int64_t max_sessions);

}  // namespace millrace::recipes::neural_response
