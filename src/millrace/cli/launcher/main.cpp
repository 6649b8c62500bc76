// The program `millrace` that users start: checks that LibTorch can be loaded, then becomes millrace-torch. That program is next
// to it in a build folder, and in libexec/millrace of an installation.
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
  // Without /proc, takes the path from getauxval(), which returns a pointer as a number.
  const auto* const name = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));  // NOLINT(performance-no-int-to-ptr)
  return fs::path(name == nullptr ? "" : name).parent_path();
}

fs::path program_to_become() {
  const fs::path folder = own_folder();
  std::error_code error;
  const fs::path beside = folder / "millrace-torch";
  return fs::exists(beside, error) ? beside : folder.parent_path() / "libexec" / "millrace" / "millrace-torch";
}

// Replaces this process by the program; returns the error message if that fails.
std::string become(char** argv) {
  if (std::string refusal = start_refusal(); !refusal.empty()) return refusal;
  const fs::path program = program_to_become();
  std::string waits = kOpenmpWaits, pages = kMallocPages;  // not temporaries, because putenv() keeps pointers to the text
  if (!configures_openmp_waits(environ)) ::putenv(waits.data());
  if (!configures_malloc(environ)) ::putenv(pages.data());
  ::setenv("KINETO_LOG_LEVEL", "99", 0);  // otherwise LibTorch's profiler prints an error on machines without a GPU
  ::execv(program.c_str(), argv);
  const int error_number = errno;
  return to_text(
      "FileError",
      {"the program " + program.string() + " can't be started: " + std::generic_category().message(error_number),
       "millrace becomes it",
       error_number == ENOENT ? "install millrace again with `./dev install`: a part is missing" : remedy_for(error_number)});
}

}  // namespace
}  // namespace millrace

int main(int, char** argv) {
  std::fprintf(stderr, "%s\n", millrace::become(argv).c_str());
  return 1;
}
