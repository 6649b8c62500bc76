// Files of weights that export and import write.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "millrace/cli/shared/arguments.h"
#include "millrace/core/batch.h"

namespace millrace::cli {

// Takes --to. UsageError when it is missing or names neither a .safetensors nor a .pt file.
[[nodiscard]] std::filesystem::path take_target(Arguments& arguments, const std::string& command);

struct WeightsFile {
  std::string from;                                  // said as the source of the tensors
  std::string left_out = {};                         // what of it has no place there
  std::map<std::string, std::string> metadata = {};  // for .safetensors
  std::vector<std::filesystem::path> beside = {};    // files that were written for it
};

// Writes the tensors and prints what was written. A .safetensors file gets the metadata "format: pt" in any case.
void write_weights(const std::filesystem::path& to, const Tensors& tensors, const WeightsFile& about, bool json);

}  // namespace millrace::cli
