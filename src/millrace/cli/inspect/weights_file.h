// Writes the files of weights that `export` and `import` make.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "millrace/cli/shared/arguments.h"
#include "millrace/core/batch.h"

namespace millrace::cli {

// Takes --to from the words. Throws UsageError if it is missing or is neither a .safetensors nor a .pt file.
[[nodiscard]] std::filesystem::path take_target(Arguments& arguments, const std::string& command);

// Throws UsageError if the command would write over a file that it reads. `flag`: the flag that names `to`.
void refuse_same_file(const std::filesystem::path& from, const std::filesystem::path& to, const std::string& flag);

struct WeightsFile {
  std::string from;                                  // where the tensors come from, for the message
  std::string left_out = {};                         // what the source also has but the file can't hold
  std::map<std::string, std::string> metadata = {};  // written into .safetensors files only
  std::vector<std::filesystem::path> beside = {};    // further files that were written in the same folder
};

// Writes the tensors and prints what was written. A .safetensors file always gets the metadata "format: pt".
void write_weights(const std::filesystem::path& to, const Tensors& tensors, const WeightsFile& about, bool json);

}  // namespace millrace::cli
