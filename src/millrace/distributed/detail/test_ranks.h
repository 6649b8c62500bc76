// For tests: ranks that are threads of one process, each with its own store and connections.
#pragma once

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "millrace/distributed/detail/address.h"
#include "millrace/distributed/processes.h"

namespace millrace::distributed {

// Turns off c10d's recorder of collectives, which is global to the process and does not support several threads.
[[maybe_unused]] inline const int kNoRecorder = ::setenv("TORCH_FR_BUFFER_SIZE", "0", 1);
// The program ignores SIGPIPE, so that a write to a rank that is gone is an error and does not end the process. Tests ignore it
// too.
[[maybe_unused]] inline const auto kBefore = std::signal(SIGPIPE, SIG_IGN);

inline int free_port() {
  int port = 0;
  ::close(listen_on("127.0.0.1", port));
  return port;
}

inline Rendezvous place(int rank, int world, int port) {
  return {.ranks = {rank, rank, world, world}, .launcher = "a test", .host = "127.0.0.1", .port = port};
}

// The message that each rank threw; "" for ranks that did not throw.
template <class Body>
std::vector<std::string> on_ranks(int world, int port, Body body, ProcessesOptions options = {.join_s = 60, .timeout_s = 60}) {
  std::vector<std::string> errors(static_cast<std::size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Processes processes(place(rank, world, port), options);
        body(processes);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline std::vector<std::string> none(int world) { return std::vector<std::string>(static_cast<std::size_t>(world)); }

}  // namespace millrace::distributed
