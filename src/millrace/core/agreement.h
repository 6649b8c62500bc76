// What the processes of a run agree on. Nothing else in the program asks how many processes there are.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "millrace/base/chosen.h"
#include "millrace/base/json.h"
#include "millrace/core/batch.h"

namespace millrace {

class GradientSums;  // core/gradient_sums.h
struct GradientSumsOptions;

// Every call but ranks() is collective: all processes of a run make the same calls in the same order, from the thread of the
// training loop, and wait for each other. A process that leaves the run makes the others' next call fail with an Error.
//
// The result of a call is the same on all ranks, to the bit, and the same in each run with as many ranks; the order in which
// the ranks are added up is the implementation's.
class Agreement {
 public:
  virtual ~Agreement() = default;
  [[nodiscard]] virtual Ranks ranks() const = 0;
  [[nodiscard]] virtual std::vector<Json> gather(Json mine) = 0;  // what each rank gave, by rank
  virtual void sum(std::vector<at::Tensor>& values) = 0;          // in place, elementwise; the same sizes and types on all ranks

  // Tensors of `device`, on which this rank computes, travel from here on as `wish` says: "auto", "gloo", "nccl". To be called
  // before any travels. Sums of a GPU's tensors then may still be under way when a call returns: the current stream waits for
  // them. Gives how they travel, "gloo" or "nccl"; "" for one process. ConfigError where the wish can't be.
  [[nodiscard]] virtual Chosen<std::string> use_device(at::Device device, const std::string& wish);

  void mean(std::vector<at::Tensor>& values);  // the same of floating-point numbers, divided by the number of ranks

  // Sums that are under way while gradients are computed; null where this agreement has none, or not for such parameters: on all
  // ranks alike. They end before the agreement does.
  [[nodiscard]] virtual std::unique_ptr<GradientSums> gradient_sums(const std::vector<at::Tensor>& parameters,
                                                                    const GradientSumsOptions& options);

  // Each value becomes, byte for byte, that of the rank `owners` names for it, in place; the same sizes and types on all ranks.
  // DistributedError after leave(): what others own can't be had any more.
  virtual void share(std::vector<at::Tensor>& values, const std::vector<int>& owners);
  void share_from_root(std::vector<at::Tensor>& values) { share(values, std::vector<int>(values.size(), 0)); }
  void meet() { static_cast<void>(any(false)); }  // returns when all ranks have come here
  // Calls `work` on the first rank of each machine, and on the others when that has ended: what it leaves on the disk is there
  // for them.
  void in_turn(const std::function<void()>& work);
  // This rank ends with an error: from here on its calls wait for nobody and know of itself alone.
  virtual void leave() {}
  // After a lost rank or leave(): sums were cut short that this rank may have computed with, so that what it holds is no state of
  // the run.
  [[nodiscard]] virtual bool has_cut_sums() const noexcept { return false; }

  // Calls so far that waited for the other ranks, those of sums under way not among them.
  [[nodiscard]] virtual std::int64_t exchanges() const noexcept { return 0; }

  [[nodiscard]] bool any(bool mine);        // true when it is true on some rank
  [[nodiscard]] Json from_root(Json mine);  // what rank 0 gave
  [[nodiscard]] std::int64_t sum(std::int64_t mine);
  [[nodiscard]] bool alone() const { return ranks().world_size == 1; }

  // One process, which costs nothing; lives as long as the program.
  [[nodiscard]] static Agreement& of_one() noexcept;
};

}  // namespace millrace
