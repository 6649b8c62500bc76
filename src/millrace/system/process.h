// What a program asks of the system once, before anything else.
#pragma once

#include <filesystem>
#include <string>

namespace millrace {

// Descriptors 0 to 2 that are closed lead to /dev/null, so that no file gets their number and takes what is printed; reading and
// writing them stays an error. A write beyond the largest file allowed (ulimit -f) fails with EFBIG; it would end the process.
// A crash says what it interrupted (system/crash.h).
void prepare_process();

// What the linker put into this program to tell its builds apart, in hexadecimal digits; "" = nothing.
[[nodiscard]] std::string build_id();

// Where what is made once is kept for later runs of this user: $XDG_CACHE_HOME/millrace, else ~/.cache/millrace, else runs/cache.
[[nodiscard]] std::filesystem::path cache_folder();

}  // namespace millrace
