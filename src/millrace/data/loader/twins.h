// Files of a run that hold the same: what is learned twice, and what is judged by what was learned.
#pragma once

#include <string>
#include <vector>

#include "millrace/data/loader/source.h"

namespace millrace::data {

// A line for the files of `training` that hold what another of them holds, and one for those of `validation` that hold what a
// file of `training` holds, each with the first of them; none where the two are made of the same files, and split within them.
// Files are told apart by size and digest (see file_stamps.h). Where there are so many of one size that two may have one digest
// by chance, nothing is said; nor of a training and a validation whose numbers of files have digests of two kinds. A digest has
// seen large files in samples alone, so a line says what it is told by.
[[nodiscard]] std::vector<std::string> told_of_twins(const std::vector<Dataset>& training,
                                                     const std::vector<Dataset>& validation);

}  // namespace millrace::data
