// Finds samples that occur twice in the training data, or in both the training and the validation data: files with equal
// content, and sources with equal fingerprints.
#pragma once

#include <string>
#include <vector>

#include "millrace/data/loader/source.h"

namespace millrace::data {

// Returns a line for each source without files in `validation` whose size and fingerprint equal those of a source in
// `training`. Returns a line for files of `training` that equal another file of `training`, and a line for files of
// `validation` that equal a file of `training`; each line names the first pair. The second line is omitted if both have the
// same files, because the split is then within the files. Files are compared by size and digest (see file_stamps.h); the lines
// say so, because the digest of a large file covers only samples of it. No files are reported if so many files share their
// sizes that equal digests may be chance. Digests of different kinds, which follow from the numbers of files, are never equal.
// Also returns a line for each field whose numbers have other names (Source::value_names) in `validation` than in `training`.
[[nodiscard]] std::vector<std::string> notices_of_twins(const std::vector<Dataset>& training,
                                                        const std::vector<Dataset>& validation);

}  // namespace millrace::data
