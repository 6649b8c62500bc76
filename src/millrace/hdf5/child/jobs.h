// The program's jobs; each runs in a separate process with one file: no threads, limits already set.
#pragma once

#include <cstdint>
#include <string>

namespace millrace::hdf5::child {

inline constexpr int kSocket = 0;
inline constexpr unsigned kWallSeconds = 120;  // for a file or a block; then SIGALRM ends the process

// Reads or writes one frame on the socket. get_frame: false at the end of the conversation.
bool get_frame(int socket, std::string& bytes);
bool get_exactly(int socket, char* to, std::size_t size);
bool put_frame(int socket, const std::string& bytes);

// The answer to "what is in the file of this descriptor": a frame whose first byte is an Answer. Never throws because of a file's
// contents.
[[nodiscard]] std::string describe(int descriptor, const std::string& request);
// Answers requests for blocks until the socket ends.
int read_blocks(int descriptor);
// Takes arrays from the socket and writes them.
int write_arrays(int descriptor);

// Limits this process's address space to this many bytes; 0 = to its present size. No effect under sanitizers.
void allow_memory(std::uint64_t bytes);

}  // namespace millrace::hdf5::child
