// Tensors in and out of safetensors files, for predict.
#pragma once

#include <filesystem>

#include "millrace/core/batch.h"

namespace millrace::cli {

// DataError naming the file when it can't be read.
[[nodiscard]] Tensors read_tensors(const std::filesystem::path& path);
// Whole or not at all. UsageError when the place can't be written.
void write_tensors(const std::filesystem::path& path, const Tensors& tensors);

}  // namespace millrace::cli
