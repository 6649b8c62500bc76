#include "ranks.h"

#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "aliases.h"
#include "recorder.h"
#include "streams.h"

namespace millrace::standin {
namespace {

using Tensors = std::vector<at::Tensor>;

// Keeps what Gloo works on. On a GPU the stream waits for it; here the thread has to, and a wait of the host is not counted.
class GroupWork final : public c10d::Work {
 public:
  GroupWork(c10::intrusive_ptr<c10d::Work> inner, Tensors tensors) : inner_(std::move(inner)), tensors_(std::move(tensors)) {}
  bool isCompleted() override { return inner_->isCompleted(); }
  [[nodiscard]] bool isSuccess() const override { return inner_->isSuccess(); }
  [[nodiscard]] std::exception_ptr exception() const override { return inner_->exception(); }
  void synchronize() override { (void)inner_->wait(); }
  bool wait(std::chrono::milliseconds timeout) override { return inner_->wait(timeout); }
  void abort() override { inner_->abort(); }
  Tensors result() override { return tensors_; }

 private:
  c10::intrusive_ptr<c10d::Work> inner_;
  Tensors tensors_;
};

class Group final : public c10d::Backend {
 public:
  explicit Group(const device::RankGroups::Seat& seat) : c10d::Backend(seat.rank, seat.world_size) {
    auto options = c10d::ProcessGroupGloo::Options::create(seat.timeout);
    options->devices.push_back(c10d::ProcessGroupGloo::createDefaultDevice());
    gloo_ = c10::make_intrusive<c10d::ProcessGroupGloo>(seat.store, seat.rank, seat.world_size, std::move(options));
  }

  [[nodiscard]] const std::string getBackendName() const override { return "standin"; }
  c10::intrusive_ptr<c10d::Work> broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    Tensors ours = begin("broadcast", tensors, true);
    return keep(gloo_->broadcast(ours, options), tensors);
  }
  c10::intrusive_ptr<c10d::Work> allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    Tensors ours = begin("allreduce", tensors, true);
    return keep(gloo_->allreduce(ours, options), tensors);
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& out, at::Tensor& in,
                                                 const c10d::AllgatherOptions& options) override {
    at::Tensor to = begin("allgather", {out}, true)[0];
    at::Tensor from = begin("allgather", {in}, false)[0];
    return keep(gloo_->_allgather_base(to, from, options), {out, in});
  }
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& out, at::Tensor& in, std::vector<std::int64_t>& out_split,
                                               std::vector<std::int64_t>& in_split,
                                               const c10d::AllToAllOptions& options) override {
    at::Tensor to = begin("alltoall", {out}, true)[0];
    at::Tensor from = begin("alltoall", {in}, false)[0];
    return keep(gloo_->alltoall_base(to, from, out_split, in_split, options), {out, in});
  }
  void abort() override { gloo_->abort(); }
  void shutdown() override { gloo_->shutdown(); }

 private:
  static Tensors begin(const std::string& name, const Tensors& tensors, bool written) {
    refuse_in_recording("a collective, whose work is the host's here: " + name);
    Tensors ours;
    for (const at::Tensor& tensor : tensors) {
      launch(tensor.get_device(), name);
      used(tensor, written, name);
      ours.push_back(alias_of(tensor));
    }
    return ours;
  }
  static c10::intrusive_ptr<c10d::Work> keep(c10::intrusive_ptr<c10d::Work> work, Tensors tensors) {
    return c10::make_intrusive<GroupWork>(std::move(work), std::move(tensors));
  }

  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo_;
};

class Groups final : public device::RankGroups {
 public:
  [[nodiscard]] std::string name() const override { return "standin"; }
  [[nodiscard]] std::string library() const override { return "the stand-in's Gloo"; }
  [[nodiscard]] std::string identity(int gpu) const override { return "standin:" + std::to_string(gpu); }
  [[nodiscard]] c10::intrusive_ptr<c10d::Backend> connect(const device::RankGroups::Seat& seat) override {
    return c10::make_intrusive<Group>(seat);
  }
};

}  // namespace

device::RankGroups& rank_groups() {
  static Groups groups;
  return groups;
}

}  // namespace millrace::standin
