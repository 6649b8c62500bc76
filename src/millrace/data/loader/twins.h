// Finds samples that are trained on twice, or validated after being trained on: files with equal content, sources with equal
// fingerprints.
#pragma once

#include <string>
#include <vector>

#include "millrace/data/loader/source.h"

namespace millrace::data {

// Returns a line for each source without files in `validation` that is one of `training` by size and fingerprint, and for files:
// a line for files of `training` that equal another file of it, and a line for files of `validation` that equal a file of
// `training`, each naming the first of them; no line if both are made of the same files and split within them. Files are compared
// by size and digest (see file_stamps.h), so a line says what the comparison is based on: of large files a digest covers only
// samples. Nothing is returned for sizes shared by so many files that equal digests may be chance, nor if training and validation
// have digests of different kinds because of their numbers of files.
[[nodiscard]] std::vector<std::string> notices_of_twins(const std::vector<Dataset>& training,
                                                        const std::vector<Dataset>& validation);

}  // namespace millrace::data
