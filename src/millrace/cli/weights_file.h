// Files of weights that export and import write.
#pragma once

#include <filesystem>
#include <string>

#include "millrace/cli/arguments.h"
#include "millrace/core/batch.h"

namespace millrace::cli {

// Takes --to. UsageError when it is missing or names neither a .safetensors nor a .pt file.
[[nodiscard]] std::filesystem::path take_target(Arguments& arguments, const std::string& command);

// Writes the tensors and prints what was written; `from` is said as their source, `left_out` what of it has no place there.
void write_weights(const std::filesystem::path& to, const Tensors& tensors, const std::string& from, const std::string& left_out,
                   bool json);

}  // namespace millrace::cli
