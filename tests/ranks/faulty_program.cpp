// The toy of grouped batches as a program one rank of which ends badly. FAULT="RANK PLACE WAY" sets which, where and how;
// SAVE_KILLS=N kills a rank in a save in each of the first N attempts; rank, save and moment are drawn.
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "millrace/base/philox.h"
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
  if (way == "slow") std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const volatile bool forever = true;
  while (way == "loop" && forever) {
  }
}

int number_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::atoi(text);
}

struct SaveKill {
  int save = 0;  // of this attempt; 0 = none
  std::chrono::microseconds delay{};
};

SaveKill drawn() {
  constexpr std::uint64_t kRanks = 2, kSaves = 3, kLongest = 6000;  // microseconds: a save here takes some thousands
  const int attempt = number_of("TORCHELASTIC_RESTART_COUNT");
  if (attempt >= number_of("SAVE_KILLS")) return {};
  millrace::Philox random(millrace::make_key(23, static_cast<std::uint64_t>(attempt)));
  const auto rank = static_cast<int>(random.below(kRanks));
  const SaveKill kill{static_cast<int>(1 + random.below(kSaves)), std::chrono::microseconds(random.below(kLongest))};
  return rank == number_of("RANK") ? kill : SaveKill{};
}

}  // namespace

int main(int argc, char** argv) {
  const Fault fault = planted();
  if (fault.place == "meeting") happen(fault.way);
  const SaveKill save_kill = drawn();
  int losses = 0, saves = 0;
  millrace::toys::at_point = [&](const char* at) {
    constexpr int kSomeSteps = 12;  // trials and the rehearsal are over
    const std::string here = at;
    if (here == "loss") ++losses;
    if (here == "state" && losses > 0 && ++saves == save_kill.save) {
      std::thread([&] {
        std::this_thread::sleep_for(save_kill.delay);
        ::kill(::getpid(), SIGKILL);
      }).detach();
    }
    const bool is_step = here == "loss" && fault.place == "step";
    if (losses > kSomeSteps && (is_step || here == fault.place)) happen(fault.way);
  };
  const std::array<millrace::Entry, 1> recipes = {millrace::toys::grouped_regression()};
  return millrace::cli_main(argc, argv, recipes);
}
