// Python scripts beside the tests, for programs that run several.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace millrace::test {

struct PeerOptions {
  std::filesystem::path said = {};        // the file for all that the script says; empty: it says it where this program does
  std::vector<std::string> modules = {};  // that take long to import, of which some may not be installed
};

// Runs `script` with `words` and returns its exit status, which is 128 + N if signal N ended it. The first call starts a Python
// that imports torch, and each script is a fork of that.
int run_peer(const std::filesystem::path& script, const std::vector<std::string>& words, const PeerOptions& options = {});

}  // namespace millrace::test
