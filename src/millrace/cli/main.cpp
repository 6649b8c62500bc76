// The program `millrace`: the command line with the recipes of this tree.
#include "millrace/cli/main.h"

#include "millrace/recipes/registry.h"

int main(int argc, char** argv) { return millrace::cli_main(argc, argv, millrace::recipes::all()); }
