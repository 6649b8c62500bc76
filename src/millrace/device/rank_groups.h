// How tensors of a GPU travel between the processes of a run without a way round by host memory.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <string>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace millrace::device {

// A rank's place in a group.
struct RankSeat {
  c10::intrusive_ptr<c10d::Store> store;  // where the members of this one group find each other
  int rank = 0;
  int world_size = 1;
  int gpu = 0;                          // this rank's
  std::chrono::milliseconds timeout{};  // of each exchange
};

// What the CUDA plugin gives where it was built with NCCL. Thread-safe.
class RankGroups {
 public:
  virtual ~RankGroups() = default;
  [[nodiscard]] virtual std::string name() const = 0;             // "nccl"
  [[nodiscard]] virtual std::string library() const = 0;          // "NCCL 2.28.9": ranks that differ in it can't meet
  [[nodiscard]] virtual std::string identity(int gpu) const = 0;  // of a GPU, the same in each process of this machine
  // Connections between the GPUs of all ranks. Collective: throws, as what it stands on throws, where a rank does not come.
  // Work::wait() of what it gives holds up the current stream, not the thread. A rank that is lost may leave that stream waiting
  // until the group's abort(); what it computes afterwards is no sum.
  [[nodiscard]] virtual c10::intrusive_ptr<c10d::Backend> connect(const RankSeat& seat) = 0;
};

}  // namespace millrace::device
