// The program millrace-torch, by which `millrace` (launcher/main.cpp) replaces itself: the command line with the recipes of this
// tree.
#include "millrace/cli/main.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>

#include "recipes/registry.h"

int main(int argc, char** argv) {
  ::prctl(PR_SET_NAME, "millrace");  // the name that ps, top and killall show
  const int exit_code = millrace::cli_main(argc, argv, millrace::recipes::all());
  // Ends without the destructors of static objects: LibTorch's take a quarter of the time of a short command, and free only
  // memory.
  std::fflush(nullptr);
  ::_exit(exit_code);
}
