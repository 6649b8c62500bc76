// The program millrace-torch, by which `millrace` (launcher/main.cpp) replaces itself: the command line with the recipes of this
// tree.
#include "millrace/cli/main.h"

#include <dlfcn.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "recipes/registry.h"

namespace {

// True if something may write its last records when the program ends: a profiler of the GPU that the plugin uses, or one that was
// loaded before all libraries.
bool may_be_recorded() {
  return std::getenv("LD_PRELOAD") != nullptr || ::dlopen("libmillrace_cuda.so", RTLD_LAZY | RTLD_NOLOAD) != nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  ::prctl(PR_SET_NAME, "millrace");  // the name that ps, top and killall show
  const int exit_code = millrace::cli_main(argc, argv, millrace::recipes::all());
  if (may_be_recorded()) return exit_code;
  std::fflush(nullptr);
  ::_exit(exit_code);  // LibTorch's destructors take a quarter of the time of a short command, and free only memory
}
