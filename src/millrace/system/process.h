// Preparations that a program makes once, before anything else.
#pragma once

#include <filesystem>
#include <string>

namespace millrace {

// Opens closed descriptors 0 to 2 on /dev/null, because a file that got one of these numbers would receive printed text. Reading
// and writing them remains an error. Makes a write beyond the largest file allowed (ulimit -f) fail with EFBIG instead of ending
// the process. Makes a crash report what it interrupted (system/crash.h).
void prepare_process();

// Returns this machine's name; "?" if the system does not give one.
[[nodiscard]] std::string host_name();

// Returns the linker's identity of this build, in hexadecimal digits; "" if the build has no identity.
[[nodiscard]] std::string build_id();

// Returns the folder for files that are made once and kept for this user's later runs: $XDG_CACHE_HOME/millrace, else
// ~/.cache/millrace, else runs/cache.
[[nodiscard]] std::filesystem::path cache_folder();

}  // namespace millrace
