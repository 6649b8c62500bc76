// The recipe's row of the recipe registry.
#pragma once

#include "millrace/train/recipe/entry.h"

namespace millrace::recipes::cosmology {

[[nodiscard]] Entry entry();

// `millrace pca fit|validate`: fits foreground components, or compares stored components with those of single batches. Returns
// the exit code.
int pca_command(std::span<const std::string> words);

// `millrace uvh5`: converts an interferometer's files to the folders that a run reads. Returns the exit code.
int uvh5_command(std::span<const std::string> words);

}  // namespace millrace::recipes::cosmology
