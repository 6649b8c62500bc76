// What the program does, each in one process with one file: no threads, limits already set.
#pragma once

#include <cstdint>
#include <string>

namespace millrace::hdf5::child {

inline constexpr int kSocket = 0;
inline constexpr unsigned kWallSeconds = 120;  // for one file or one block; then SIGALRM ends the process

// One frame from or to the socket. get_frame: false at the end of the conversation.
bool get_frame(int socket, std::string& bytes);
bool get_exactly(int socket, char* to, std::size_t size);
bool put_frame(int socket, const std::string& bytes);

// The answer to "what is in the file of this descriptor": a frame whose first byte is an Answer. Never throws for what a
// file holds.
[[nodiscard]] std::string describe(int descriptor, const std::string& request);
// Answers requests for blocks until the socket ends.
int read_blocks(int descriptor);
// Takes arrays from the socket and writes them.
int write_arrays(int descriptor);

// Lets this process have that much address space, at most; 0 = as much as it has now. No effect under sanitizers.
void allow_memory(std::uint64_t bytes);

}  // namespace millrace::hdf5::child
