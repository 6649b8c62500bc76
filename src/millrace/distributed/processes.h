// The ranks of a run as processes that find each other through c10d's store and add up over Gloo, or over NCCL on GPUs.
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
  double join_s = 300;      // how long a rank waits for the others to join
  double timeout_s = 1800;  // how long a call waits for the others; the end of a process is noticed at once
};

// A process makes one, and uses it from one thread. SIGPIPE must be ignored (system/signals.h): writes may go to a rank that is
// gone.
//
// The store and all connections listen on the address by which this machine reaches the store's: on the loopback only, if all
// ranks are on this machine. GLOO_SOCKET_IFNAME names another interface for the connections.
class Processes final : public Agreement {
 public:
  // Returns when all ranks have joined. DistributedError if the port is taken or the host is another machine or unknown; if ranks
  // did not join, it lists their numbers.
  explicit Processes(Rendezvous rendezvous, ProcessesOptions options = {});
  ~Processes() override;
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  [[nodiscard]] Ranks ranks() const override;
  // DistributedError names the lost ranks, as far as the remaining ranks can find out.
  [[nodiscard]] std::vector<Json> gather(Json mine) override;
  [[nodiscard]] Chosen<std::string> use_device(at::Device device, const std::string& wish) override;
  // use_device() with a given transport of that device's tensors: `groups`, which must outlive this; or null, because of
  // `why_none`.
  [[nodiscard]] Chosen<std::string> use_groups(at::Device device, device::RankGroups* groups, const std::string& why_none,
                                               const std::string& wish);
  using Agreement::sum;
  // Tensors of the same type and device travel together; a GPU's tensors go through host memory if no other transport carries
  // them.
  void sum(std::vector<at::Tensor>& values) override;
  // Sends from each owner to all, some megabytes at a time, as in sum().
  void share(std::vector<at::Tensor>& values, const std::vector<int>& owners) override;
  // Sums for these parameters; null for a GPU's if they travel through host memory.
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
