// The program millrace-torch, by which `millrace` (launcher/main.cpp) replaces itself: the command line with the recipes of this
// tree.
#include "millrace/cli/main.h"

#include <link.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "recipes/registry.h"

namespace {

int is_plugin(dl_phdr_info* library, std::size_t, void*) {
  return std::string_view(library->dlpi_name).ends_with("/libmillrace_cuda.so") ? 1 : 0;
}

// True if a profiler may be loaded, by LD_PRELOAD or with the plugin for GPUs. A profiler writes its last records when the
// program ends.
bool may_be_recorded() { return std::getenv("LD_PRELOAD") != nullptr || ::dl_iterate_phdr(&is_plugin, nullptr) != 0; }

}  // namespace

int main(int argc, char** argv) {
  ::prctl(PR_SET_NAME, "millrace");  // the name that ps, top and killall show
  const int exit_code = millrace::cli_main(argc, argv, millrace::recipes::all());
  if (may_be_recorded()) return exit_code;
  std::fflush(nullptr);
  ::_exit(exit_code);  // LibTorch's destructors take a quarter of the time of a short command, and free only memory
}
