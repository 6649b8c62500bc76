// millrace-torch, which the program `millrace` (launcher/main.cpp) becomes: the command line with the recipes of this tree.
#include "millrace/cli/main.h"

#include <sys/prctl.h>

#include "recipes/registry.h"

int main(int argc, char** argv) {
  ::prctl(PR_SET_NAME, "millrace");  // the name for ps, top and killall
  return millrace::cli_main(argc, argv, millrace::recipes::all());
}
