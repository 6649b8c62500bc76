// A running process of millrace-hdf5, the only program that calls libhdf5. The process is started with posix_spawn, at any time
// and from any thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace millrace::hdf5::detail {

class Process {
 public:
  // `files` become the child's descriptors from kFirstFile on. Throws DataError if the program is missing or can't be started.
  Process(const std::string& job, std::span<const int> files);
  ~Process();  // ends the child process
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  bool send(std::span<const std::byte> bytes);  // false if the process has ended
  bool send_frame(std::string_view bytes);
  // Sends at most kFilesAtOnce open files, which the child receives as its own descriptors.
  bool send_files(std::span<const int> files);
  [[nodiscard]] std::optional<std::string> receive_frame();  // nullopt if the process has ended
  // Receive an answer directly into its destination: receive_size() returns the size of the next frame, receive() its bytes.
  [[nodiscard]] std::optional<std::uint64_t> receive_size();
  bool receive(std::span<std::byte> out);
  // Call this after a call above has failed. Waits for the process to end and describes how it ended: "ended by signal 11
  // (Segmentation fault)", "exit status 3".
  [[nodiscard]] std::string how_it_ended();

 private:
  pid_t process_ = -1;
  int socket_ = -1;
};

}  // namespace millrace::hdf5::detail
