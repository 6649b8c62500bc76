// Streams, events and the order they make. Kernels run when they are launched; asynchronous copies land late: only when something
// that waits for them has to see them done. STANDIN_LATE=<seed> picks those that do (0: no copy; without it: all of them).
#pragma once

#include <c10/core/Stream.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "device_memory.h"

namespace millrace::standin {

inline constexpr int kStreams = 24;  // of a device, beside the default one

// How far each stream was when something happened: what is not beyond it is known to be done.
using Clock = std::array<std::uint32_t, std::size_t{kDevices} * (kStreams + 1)>;

struct Event {
  Clock clock{};
  bool recorded = false;
  int queries = 0;
  double seconds = 0.0;  // when it was recorded
};

[[nodiscard]] int current_device();
int exchange_device(int device);  // gives the one before
[[nodiscard]] c10::Stream current_stream(int device);
c10::Stream exchange_stream(c10::Stream stream);
[[nodiscard]] c10::Stream stream_from_pool(int device);

// An operation begins on the current stream of `device`: what was asked of this stream before is done.
void launch(int device, const std::string& name);
void in_order(int device);  // the same for what is no kernel

// What the operation, or the copy, that was asked of the current stream last does to memory; a mistake where no event orders
// that.
void touch(int device, const std::byte* begin, const std::byte* end, bool written, const std::string& name);
[[nodiscard]] std::size_t line_of(c10::Stream stream);  // the index of a stream in a Clock

struct Copy {
  std::function<void()> land;         // reads the source and writes the target
  const void* host = nullptr;         // the side of the host
  const std::byte* device = nullptr;  // the side of the device, as kernels have it
  std::size_t bytes = 0;
  bool to_device = true;
  std::function<void()> deliver;  // to the host, once the host knows that the copy is done
};
void copy_asynchronously(int device, Copy copy);
// Lets copies land that still need this memory of the host, which its owner is about to give back.
void land_copies_of(const void* host);
// The same for a block of a device that was made for work of stream `line`: whoever gets this memory next works on the same
// stream and so after its copies. Copies of other streams stay late.
void land_copies_of(const std::byte* begin, const std::byte* end, std::size_t line);
[[nodiscard]] bool is_in_use(const void* host);

void record(Event& event, c10::Stream stream);
void block(const Event& event, c10::Stream stream);
[[nodiscard]] bool query(Event& event);
[[nodiscard]] bool query(c10::Stream stream);
void wait(const Event& event);
void wait(c10::Stream stream, const std::string& name);
void wait_for_device(int device);

// Says on stderr what was done wrong, counts it and throws.
[[noreturn]] void mistake(const std::string& text);

// STANDIN_KERNELS=none: operations with a kernel for `meta`, and convolutions, give tensors of the right shape and compute
// nothing; the others compute, and nothing is watched.
[[nodiscard]] bool computes_nothing();

// Errors that a test asks for: STANDIN_OUT_OF_MEMORY=<n>[,memory|cublas|cudnn|internal|driver], STANDIN_LOST=<n>.
void refuse_if_asked(int device, std::size_t bytes);  // the n-th allocation
void fail_if_lost(const std::string& name);           // from the n-th operation on

}  // namespace millrace::standin
