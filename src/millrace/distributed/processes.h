// The ranks of a run as processes. The ranks find each other through c10d's store, and add up tensors over Gloo, or over NCCL on
// GPUs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "millrace/core/agreement.h"
#include "millrace/core/gradient_sums.h"
#include "millrace/distributed/rendezvous.h"

namespace millrace::device {
class RankGroups;
}

namespace millrace::distributed {

struct ProcessesOptions {
  double join_s = 300;      // seconds that a rank waits for the other ranks to join
  double timeout_s = 1800;  // seconds that a call waits for the other ranks; the end of a rank's process is noticed at once
};

// A process makes one object and uses it from one thread. SIGPIPE must be ignored (system/signals.h), because writes may go to
// a rank that is gone.
//
// The store and all connections listen on this machine's address on the route to the store. If all ranks are on this machine,
// that is only the loopback address. GLOO_SOCKET_IFNAME can name another interface for the connections.
class Processes final : public Agreement {
 public:
  // Returns when all ranks have joined. Throws DistributedError if the port is taken, or if the host is unknown or another
  // machine. If ranks did not join, the error lists their numbers.
  explicit Processes(Rendezvous rendezvous, ProcessesOptions options = {});
  ~Processes() override;
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  [[nodiscard]] Ranks ranks() const override;
  // If ranks are lost, throws DistributedError, which names the lost ranks as far as the remaining ranks can identify them.
  [[nodiscard]] std::vector<Json> gather(Json mine) override;
  [[nodiscard]] Chosen<std::string> use_device(at::Device device, const std::string& wish) override;
  // Implements use_device() with a given transport for the device's tensors. `groups` must outlive this object. `groups` is null
  // if there is no such transport, and `why_none` then says why.
  [[nodiscard]] Chosen<std::string> use_groups(at::Device device, device::RankGroups* groups, const std::string& why_none,
                                               const std::string& wish);
  using Agreement::sum;
  // Tensors of the same type and device travel together. A GPU's tensors go through host memory if no other transport carries
  // them.
  void sum(std::vector<at::Tensor>& values) override;
  // Sends values from each owner to all ranks, some megabytes at a time, by the transports of sum().
  void share(std::vector<at::Tensor>& values, const std::vector<int>& owners) override;
  // Returns null for a GPU's parameters if their gradients travel through host memory.
  [[nodiscard]] std::unique_ptr<GradientSums> gradient_sums(const std::vector<at::Tensor>& parameters,
                                                            const GradientSumsOptions& options) override;
  void leave() override;
  [[nodiscard]] bool has_cut_sums() const noexcept override { return has_cut_sums_; }
  [[nodiscard]] std::int64_t exchanges() const noexcept override { return exchanges_; }

 private:
  struct Parts;
  void call(const std::function<void()>& collective);
  [[noreturn]] void throw_lost_rank(const std::string& reason);
  void cut_groups();
  void share_alike(std::vector<at::Tensor>& values, const std::vector<int>& owners);

  Rendezvous rendezvous_;
  ProcessesOptions options_;
  std::unique_ptr<Parts> parts_;
  bool has_left_ = false, has_cut_sums_ = false;
  int gradient_groups_ = 0;
  std::int64_t exchanges_ = 0;
};

}  // namespace millrace::distributed
