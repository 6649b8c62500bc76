// Preparations that a program makes once, before anything else.
#pragma once

#include <filesystem>
#include <string>

namespace millrace {

// Opens closed descriptors 0 to 2 on /dev/null. Otherwise a file could get one of these numbers and receive printed text.
// Reading and writing them remains an error. A write beyond the largest file allowed (ulimit -f) fails with EFBIG instead of
// ending the process. A crash reports what it interrupted (system/crash.h).
void prepare_process();

// This machine's name; "?" if the system does not give one.
[[nodiscard]] std::string host_name();

// The linker's identity of this build, in hexadecimal digits; "" if the build has no identity.
[[nodiscard]] std::string build_id();

// The folder of files that are made once and kept for this user's later runs: $XDG_CACHE_HOME/millrace, else ~/.cache/millrace,
// else runs/cache.
[[nodiscard]] std::filesystem::path cache_folder();

}  // namespace millrace
