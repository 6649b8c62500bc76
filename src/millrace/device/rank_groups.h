// Sends tensors of a GPU between the processes of a run directly, without host memory.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <string>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace millrace::device {

// The CUDA plugin provides this object if it was built with NCCL. Thread-safe.
class RankGroups {
 public:
  // A rank's position in a group, and the store through which it finds the other ranks.
  struct Seat {
    c10::intrusive_ptr<c10d::Store> store;  // the store through which the group's members find each other
    int rank = 0;
    int world_size = 1;
    int gpu = 0;                          // this rank's GPU
    std::chrono::milliseconds timeout{};  // limit on the time of each exchange
  };

  virtual ~RankGroups() = default;
  [[nodiscard]] virtual std::string name() const = 0;  // for example "nccl"
  // The library's name and version, as in "NCCL 2.28.9"; ranks with different versions can't connect.
  [[nodiscard]] virtual std::string library() const = 0;
  [[nodiscard]] virtual std::string identity(int gpu) const = 0;  // identity of a GPU, the same in each process of this machine
  // Connects the GPUs of all ranks. Collective. Work::wait() of the result's operations makes the current stream wait, not the
  // thread. If a rank is lost, that stream may wait until the group's abort(), and later results are not valid sums. Throws the
  // libraries' errors if a rank does not arrive.
  [[nodiscard]] virtual c10::intrusive_ptr<c10d::Backend> connect(const Seat& seat) = 0;
};

}  // namespace millrace::device
