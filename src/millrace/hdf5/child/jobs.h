// The jobs of the program millrace-hdf5. Each job runs in a separate process without threads, for one file, after that process's
// limits were set.
#pragma once

#include <cstdint>
#include <string>

namespace millrace::hdf5::child {

inline constexpr int kSocket = 0;
inline constexpr unsigned kWallSeconds = 120;  // time for a file or a block; then SIGALRM ends the process

// Functions that read or write on the socket; they return false at the end of the conversation. A frame is a length and that
// many bytes.
bool get_frame(int socket, std::string& bytes);
bool get_exactly(int socket, char* to, std::size_t size);
bool put_frame(int socket, const std::string& bytes);

// Describes the contents of the file of this descriptor. Returns a frame whose first byte is an Answer. Never throws because of
// a file's contents.
[[nodiscard]] std::string describe(int descriptor, const std::string& request);
// Answers requests for blocks until the other side closes the socket.
int read_blocks(int descriptor);
// Receives arrays from the socket and writes them.
int write_arrays(int descriptor);

// Limits this process's address space to `bytes` more than the limit that follows from the size of the job's file. Has no effect
// under sanitizers.
void allow_memory(std::uint64_t bytes);

}  // namespace millrace::hdf5::child
