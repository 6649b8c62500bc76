// The identity of the data that a loader reads. A snapshot stores the identity as JSON; on resume the stored identity is
// compared with the identity of the present data.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/data/loader/source.h"

namespace millrace::data::detail {

// If a data set has up to kFilesNamed files, each file is listed. A longer list is cut into kFileGroups groups of about equal
// length, and each group has one digest; an error then names the first and the last file of a group. So a snapshot takes a few
// hundred KiB at most.
inline constexpr std::size_t kFilesNamed = 4096;
inline constexpr std::size_t kFileGroups = 1024;

struct DatasetIdentity {
  std::string name;
  std::string fingerprint;
  std::vector<FileStamp> files;
};

// Reads the files and returns their digests.
[[nodiscard]] std::vector<DatasetIdentity> identify(const std::vector<Dataset>& datasets);
[[nodiscard]] Json to_json(const std::vector<DatasetIdentity>& datasets);

struct DataChanges {
  std::vector<std::string> differ;   // a line for each difference, such as "file x.h5: 1,024 bytes, was 2,048"
  std::vector<std::string> renamed;  // a line for each file that has another name but the same content, which is not a difference
};
// Compares the data with the identity in a snapshot. Throws SnapshotError if `saved` was not written by to_json().
[[nodiscard]] DataChanges changes_since(const Json& saved, const std::vector<DatasetIdentity>& now);

// Returns the lines as one text, in which only the first few are written out.
[[nodiscard]] std::string joined(const std::vector<std::string>& lines);

}  // namespace millrace::data::detail
