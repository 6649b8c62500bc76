// What the sources of a config have in common while they are read.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "millrace/config/schema.h"

namespace millrace::config {

// One file, the environment, the flags, or values given by the program.
struct Layers::Layer {
  std::function<std::string(const std::string&)> origin_of;  // by dotted path as written
  bool scalar_text = false;
  bool refuses_repeats = true;                      // of one key under two names; for flags the last one counts
  std::map<std::string, std::string> seen = {};     // path -> "name, at origin" of the first
  std::vector<std::filesystem::path> folders = {};  // where a relative path is looked for, in order; "" = the current one
};

}  // namespace millrace::config
