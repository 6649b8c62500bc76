// The state that all sources of a config share while they are read.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "millrace/config/schema.h"

namespace millrace::config {

// One source: a file, the environment, the flags, or values given by the program.
struct Layers::Layer {
  std::function<std::string(const std::string&)> origin_of;  // returns the origin of a key, given its dotted path in the source
  bool scalar_text = false;
  bool refuses_repeats = true;                      // false (flags): if a key is set twice, the last value counts
  std::map<std::string, std::string> seen = {};     // path -> "name, at origin" of its first use
  std::vector<std::filesystem::path> folders = {};  // searched in order for relative paths; "" = the current folder
};

}  // namespace millrace::config
