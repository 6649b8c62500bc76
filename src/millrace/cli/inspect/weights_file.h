// Writes the files of weights of export and import.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "millrace/cli/shared/arguments.h"
#include "millrace/core/batch.h"

namespace millrace::cli {

// Takes --to. UsageError if it is missing or is neither a .safetensors nor a .pt file.
[[nodiscard]] std::filesystem::path take_target(Arguments& arguments, const std::string& command);

struct WeightsFile {
  std::string from;                                  // the source of the tensors, for the message
  std::string left_out = {};                         // parts of it that the file can't hold
  std::map<std::string, std::string> metadata = {};  // for .safetensors
  std::vector<std::filesystem::path> beside = {};    // further files written next to it
};

// Writes the tensors and prints what was written. A .safetensors file always gets the metadata "format: pt".
void write_weights(const std::filesystem::path& to, const Tensors& tensors, const WeightsFile& about, bool json);

}  // namespace millrace::cli
