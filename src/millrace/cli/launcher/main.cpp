// The program `millrace` that users start. It checks that LibTorch can be loaded, then replaces itself by millrace-torch from the
// same folder.
#include <sys/auxv.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "millrace/base/error.h"
#include "millrace/base/fs.h"
#include "millrace/system/malloc_pages.h"
#include "millrace/system/openmp.h"
#include "millrace/system/process_limits.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

fs::path own_folder() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (!error) return self.parent_path();
  // For systems without /proc. getauxval() returns a pointer as a number.
  const auto* const name = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));  // NOLINT(performance-no-int-to-ptr)
  return fs::path(name == nullptr ? "" : name).parent_path();
}

// Replaces this process by millrace-torch. Returns the error message if that fails.
std::string become(char** argv) {
  if (std::string refusal = start_refusal(); !refusal.empty()) return refusal;
  const fs::path program = own_folder() / "millrace-torch";
  std::string waits = kOpenmpWaits, pages = kMallocPages;  // must stay alive, because putenv() does not copy them
  if (!configures_openmp_waits(environ)) ::putenv(waits.data());
  if (!configures_malloc(environ)) ::putenv(pages.data());
  ::setenv("KINETO_LOG_LEVEL", "99", 0);  // otherwise LibTorch's profiler prints an error on machines without a GPU
  ::execv(program.c_str(), argv);
  const int error_number = errno;
  return to_text(
      "FileError",
      {"the program " + program.string() + " can't be started: " + std::generic_category().message(error_number),
       "millrace becomes it",
       error_number == ENOENT ? "install millrace again: both programs must be in the same folder" : remedy_for(error_number)});
}

}  // namespace
}  // namespace millrace

int main(int, char** argv) {
  std::fprintf(stderr, "%s\n", millrace::become(argv).c_str());
  return 1;
}
