// The program millrace-torch, by which `millrace` (launcher/main.cpp) replaces itself: the command line with the recipes of this
// tree.
#include "millrace/cli/main.h"

#include <sys/prctl.h>

#include "recipes/registry.h"

int main(int argc, char** argv) {
  ::prctl(PR_SET_NAME, "millrace");  // the name that ps, top and killall show
  return millrace::cli_main(argc, argv, millrace::recipes::all());
}
