// Identifies the data that a loader reads, as JSON in a snapshot, and compares it with the data found on resume.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/data/loader/source.h"

namespace millrace::data::detail {

// Up to kFilesNamed files per data set are listed one by one. A longer list is cut into kFileGroups groups of about equal length,
// each with one digest: an error then names the first and the last file of a group. A snapshot holds a few hundred KiB at most.
inline constexpr std::size_t kFilesNamed = 4096;
inline constexpr std::size_t kFileGroups = 1024;

struct DatasetIdentity {
  std::string name;
  std::string fingerprint;
  std::vector<FileStamp> files;
};

// Reads the files to compute their digests.
[[nodiscard]] std::vector<DatasetIdentity> identify(const std::vector<Dataset>& datasets);
[[nodiscard]] Json to_json(const std::vector<DatasetIdentity>& datasets);

struct DataChanges {
  std::vector<std::string> differ;   // one line per difference: "file x.h5: 1,024 bytes, was 2,048"
  std::vector<std::string> renamed;  // files with another name and the same content: not a difference
};
// SnapshotError if `saved` was not written by to_json().
[[nodiscard]] DataChanges changes_since(const Json& saved, const std::vector<DatasetIdentity>& now);

// Joins the lines into one text; only the first few are written in full.
[[nodiscard]] std::string joined(const std::vector<std::string>& lines);

}  // namespace millrace::data::detail
