// The toy of grouped batches as a program that dies in a step. DEATH is the cause; DEATH_RANK the rank that dies, if there are
// several; DEATH_FILE the run's log, or a file on the disk that is to fill up.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/cli/main.h"
#include "toys.h"

namespace {

std::string value_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

std::string text_of(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void lower(int resource, rlim_t to) {
  struct rlimit limit {};
  ::getrlimit(resource, &limit);
  limit.rlim_cur = to;
  ::setrlimit(resource, &limit);
}

void use_up_cpu_time() {
  struct rusage used {};
  ::getrusage(RUSAGE_SELF, &used);
  lower(RLIMIT_CPU, static_cast<rlim_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec + 1));
  const volatile bool forever = true;
  while (forever) {
  }
}

void ask_for_too_much_memory() {
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  lower(RLIMIT_AS, pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + (256U << 20U));
  std::vector<char> much(std::size_t{1} << 30U);
  volatile char* const first = much.data();
  *first = 1;
}

// From now on whatever anybody frees is taken at once.
void fill_disk(const std::string& file) {
  static bool fills = false;
  if (std::exchange(fills, true)) return;
  std::thread([file] {
    const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    const std::array<char, 4096> block{};
    while (descriptor >= 0) {
      if (::write(descriptor, block.data(), block.size()) <= 0) std::this_thread::yield();
    }
  }).detach();
}

// The signal comes when the log says that the run hangs; 0 = none comes.
void hang(const std::string& log, int signal) {
  const auto send = [log, signal, before = text_of(log).size()] {
    while (text_of(log).find("\"kind\":\"hang\"", before) == std::string::npos)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ::kill(::getpid(), signal);
  };
  if (signal != 0) std::thread(send).detach();
  const volatile bool forever = true;
  while (forever) ::pause();
}

void happen(const std::string& way) {
  if (way == "kill") ::raise(SIGKILL);
  if (way == "quit") ::raise(SIGQUIT);
  if (way == "cpu time") use_up_cpu_time();
  if (way == "memory") ask_for_too_much_memory();
  if (way == "disk") fill_disk(value_of("DEATH_FILE"));
  if (way == "device") throw std::runtime_error("the device is gone");
  if (way == "hang") hang("", 0);
  if (way == "hang, SIGKILL") hang(value_of("DEATH_FILE"), SIGKILL);
  if (way == "hang, SIGTERM") hang(value_of("DEATH_FILE"), SIGTERM);
  if (way == "two signals") {
    ::raise(SIGTERM);
    ::raise(SIGTERM);
  }
  if (way == "fault") {
    volatile int* volatile nowhere = nullptr;
    *nowhere = 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  // A script that starts the tests with & ignores some, and what is ignored at the start stays so.
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) ::signal(number, SIG_DFL);
  const std::string way = value_of("DEATH"), rank = value_of("DEATH_RANK");
  const bool is_meant = rank.empty() || rank == value_of("RANK");
  std::atomic<int> losses{0};
  millrace::toys::at_point = [&](const char* at) {
    constexpr int kSomeSteps = 40;  // trials are over, and there are log lines
    const std::string_view here = at;
    if (here == "loss") ++losses;
    if (!is_meant || losses <= kSomeSteps) return;
    if (here == "loss") happen(way);
    if (here == "read" && way == "data") throw millrace::DataError({"the row can't be read", "a test", "repair it"});
    if (here == "state" && way == "device") throw std::runtime_error("the device is still gone");
  };
  const std::array<millrace::Entry, 1> recipes = {millrace::toys::grouped_regression()};
  return millrace::cli_main(argc, argv, recipes);
}
