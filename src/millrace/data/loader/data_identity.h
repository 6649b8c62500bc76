// Which data a loader reads, as JSON in a snapshot, and how the data of now differs from it.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/data/loader/source.h"

namespace millrace::data::detail {

// Up to so many files a data set are kept one by one. Of more, kFileGroups digests of as many neighbours are kept: a refusal
// then names the first and the last file of a group. So a snapshot holds a few hundred KiB at most.
inline constexpr std::size_t kFilesNamed = 4096;
inline constexpr std::size_t kFileGroups = 1024;

struct DatasetIdentity {
  std::string name;
  std::string fingerprint;
  std::vector<FileStamp> files;
};

// Reads the files' digests.
[[nodiscard]] std::vector<DatasetIdentity> identify(const std::vector<Dataset>& datasets);
[[nodiscard]] Json to_json(const std::vector<DatasetIdentity>& datasets);

struct DataChanges {
  std::vector<std::string> differ;   // one line for each difference: "file x.h5: 1,024 bytes, was 2,048"
  std::vector<std::string> renamed;  // what has another name and the same content: no difference
};
// SnapshotError when `saved` is not what to_json() made.
[[nodiscard]] DataChanges changes_since(const Json& saved, const std::vector<DatasetIdentity>& now);

// The lines as one text, the first few of them whole.
[[nodiscard]] std::string joined(const std::vector<std::string>& lines);

}  // namespace millrace::data::detail
