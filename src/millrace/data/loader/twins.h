// Finds files of a run with equal content: their samples would be trained on twice, or would be in both training and validation.
#pragma once

#include <string>
#include <vector>

#include "millrace/data/loader/source.h"

namespace millrace::data {

// Returns up to two lines: one about files of `training` that equal another file of `training`, one about files of `validation`
// that equal a file of `training`. Each names the first such pair. The second line is left out if training and validation consist
// of the same files, whose samples they share out. Files are equal if size and digest are (see file_stamps.h); the line says so,
// because the digest of a large file covers only parts of it. Returns nothing if equal digests may be chance, because very many
// files have the same size, and nothing if training and validation have digests of different kinds, because their numbers of
// files differ much.
[[nodiscard]] std::vector<std::string> notices_of_twins(const std::vector<Dataset>& training,
                                                        const std::vector<Dataset>& validation);

}  // namespace millrace::data
