// Streams, events and their order. Kernels run when they are launched; asynchronous copies complete late: only once a waiting
// operation must see them done. STANDIN_LATE=<seed> picks the late copies (0: no copy; without it: all).
#pragma once

#include <c10/core/Stream.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "device_memory.h"

namespace millrace::standin {

inline constexpr int kStreams = 25;                // per device, in addition to the default stream
inline constexpr int kRecordingStream = kStreams;  // of them the last, which is in no pool: recorder.h

// The position of each stream when an event was recorded: everything up to there is known to be done.
using Clock = std::array<std::uint32_t, std::size_t{kDevices} * (kStreams + 1)>;

struct Event {
  Clock clock{};
  bool recorded = false;
  int queries = 0;
  double seconds = 0.0;  // of the host's clock, when it was recorded
  // Recorded in a recording (recorder.h): its number, or 0, and how much of which stream was launched.
  std::uint64_t recording = 0;
  std::size_t line = 0;
  std::uint32_t launched = 0;
};

[[nodiscard]] int current_device();
int exchange_device(int device);  // returns the previous device
[[nodiscard]] c10::Stream current_stream(int device);
c10::Stream exchange_stream(c10::Stream stream);
[[nodiscard]] c10::Stream stream_from_pool(int device);

// Begins an operation on the current stream of `device`: all earlier work of this stream is done. In a recording (recorder.h) it
// is only counted, and the caller hands its work to the recorder.
void launch(int device, const std::string& name);
void in_order(int device);  // the same for an operation without a kernel

// Records the memory that the last operation or copy on the current stream accesses; a mistake if no event orders the access.
void touch(int device, const std::byte* begin, const std::byte* end, bool written, const std::string& name);
[[nodiscard]] std::size_t line_of(c10::Stream stream);  // the index of a stream in a Clock

struct Copy {
  std::function<void()> land;         // reads the source and writes the target
  const void* host = nullptr;         // the host's side
  const std::byte* device = nullptr;  // the device's side, as kernels see it
  std::size_t bytes = 0;
  bool to_device = true;
  std::function<void()> deliver;  // to the host, once the host knows that the copy is done
};
void copy_asynchronously(int device, Copy copy);
// Completes the copies that still need this host memory, which its owner is about to release.
void land_copies_of(const void* host);
// The same for a block of a device that was made for work of stream `line`: the block's next user works on the same stream and so
// after its copies. Copies of other streams stay late.
void land_copies_of(const std::byte* begin, const std::byte* end, std::size_t line);
[[nodiscard]] bool is_in_use(const void* host);

void record(Event& event, c10::Stream stream);
void block(const Event& event, c10::Stream stream);
[[nodiscard]] bool query(Event& event);
[[nodiscard]] bool query(c10::Stream stream);
void wait(const Event& event);
void wait(c10::Stream stream, const std::string& name);
void wait_for_device(int device);

// Prints the mistake on stderr, counts it and throws.
[[noreturn]] void mistake(const std::string& text);

// STANDIN_KERNELS=none: operations with a kernel for `meta`, and convolutions, return tensors of the right shape and compute
// nothing; the others compute, and no access is watched.
[[nodiscard]] bool computes_nothing();

// Errors that a test requests: STANDIN_OUT_OF_MEMORY=<n>[,memory|cublas|cudnn|internal|driver], STANDIN_LOST=<n>.
void refuse_if_asked(int device, std::size_t bytes);  // the n-th allocation
void fail_if_lost(const std::string& name);           // every operation from the n-th on

}  // namespace millrace::standin
