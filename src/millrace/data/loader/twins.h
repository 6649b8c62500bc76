// Finds samples that occur twice in the training data, or in both the training and the validation data: files with equal
// content, and sources with equal fingerprints.
#pragma once

#include <string>
#include <vector>

#include "millrace/data/loader/source.h"

namespace millrace::data {

// Compares the validation data with the training data and returns these lines:
// - for each source without files in `validation`: that its size and fingerprint equal those of a source in `training`;
// - for files of `training`: that they equal other files of `training`;
// - for files of `validation`: that they equal files of `training`. Omitted if both have the same files, because the split is
// then within the files;
// - for each field: that its numbers have other names (Source::value_names) in `validation` than in `training`.
// A line about files names the first pair. Files are compared by size and digest (see file_stamps.h). The lines say so, because
// the digest of a large file covers only samples of it. No files are reported if so many files have equal sizes that equal
// digests may be chance. The kind of digest follows from the number of files; digests of different kinds are never equal.
[[nodiscard]] std::vector<std::string> notices_of_twins(const std::vector<Dataset>& training,
                                                        const std::vector<Dataset>& validation);

}  // namespace millrace::data
