// The toy of grouped batches as a program of which one rank ends badly. FAULT="RANK PLACE WAY" says which, where and how.
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string>

#include "millrace/cli/main.h"
#include "toys.h"

namespace {

struct Fault {
  std::string rank, place, way;
};

Fault planted() {
  Fault fault;
  const char* text = std::getenv("FAULT");
  const char* restarts = std::getenv("TORCHELASTIC_RESTART_COUNT");
  if (text == nullptr || restarts == nullptr || std::string(restarts) != "0") return fault;
  std::istringstream(text) >> fault.rank >> fault.place >> fault.way;
  const char* rank = std::getenv("RANK");
  if (rank == nullptr || rank != fault.rank) fault.place.clear();
  return fault;
}

void happen(const std::string& way) {
  if (way == "kill") std::raise(SIGKILL);
  if (way == "stop") std::raise(SIGSTOP);
  if (way == "throw") throw std::runtime_error("thrown for a test");
  if (way == "exit") ::_exit(0);
  const volatile bool forever = true;
  while (way == "loop" && forever) {
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Fault fault = planted();
  if (fault.place == "meeting") happen(fault.way);
  int losses = 0;
  millrace::toys::at_point = [&](const char* at) {
    constexpr int kSomeSteps = 12;  // trials and the rehearsal are over
    const std::string here = at;
    if (here == "loss") ++losses;
    const bool is_step = here == "loss" && fault.place == "step";
    if (losses > kSomeSteps && (is_step || here == fault.place)) happen(fault.way);
  };
  const std::array<millrace::Entry, 1> recipes = {millrace::toys::grouped_regression()};
  return millrace::cli_main(argc, argv, recipes);
}
