// The interface through which the processes of a run communicate. No other part of the program asks for the number of processes.
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

class GradientSums;  // defined in core/gradient_sums.h
struct GradientSumsOptions;

// All functions that exchange values between ranks are collective: all processes of a run make the same calls in the same order,
// from the thread of the training loop, and wait for each other. ranks(), leave(), has_cut_sums() and exchanges() are not
// collective. If a process leaves the run, the next call of the other processes fails with an Error.
//
// The result of a collective call is the same on all ranks, to the bit, and the same in every run with the same number of ranks.
// The implementation chooses the order in which it adds up the ranks.
class Agreement {
 public:
  virtual ~Agreement() = default;
  [[nodiscard]] virtual Ranks ranks() const = 0;
  [[nodiscard]] virtual std::vector<Json> gather(Json mine) = 0;  // returns the values of all ranks, in the order of ranks
  // Adds up each element over the ranks, in place; sizes and types must be the same on all ranks.
  virtual void sum(std::vector<at::Tensor>& values) = 0;

  // Sets how tensors on `device` travel between ranks. `device` is the device on which this rank computes. `wish` is "auto",
  // "gloo" or "nccl". Call this before any tensor travels. Afterwards a call may return before its sums of a GPU's tensors are
  // complete; the current stream waits for the sums. Returns the choice: "gloo" or "nccl", or "" if the run has one process.
  // Throws ConfigError if the wish can't be met.
  [[nodiscard]] virtual Chosen<std::string> use_device(at::Device device, const std::string& wish);

  void mean(std::vector<at::Tensor>& values);  // like sum(), but divides by the number of ranks; only for floating-point numbers

  // Makes an object that sums gradients over the ranks while the backward pass still computes other gradients. Destroy the
  // object before this agreement. Returns null on all ranks if this agreement can't do that for these parameters.
  [[nodiscard]] virtual std::unique_ptr<GradientSums> gradient_sums(const std::vector<at::Tensor>& parameters,
                                                                    const GradientSumsOptions& options);

  // Replaces values[i] in place, byte for byte, by the values[i] of rank owners[i]. Sizes and types must be the same on all
  // ranks. After leave() throws DistributedError, because values of other ranks can't be fetched any more.
  virtual void share(std::vector<at::Tensor>& values, const std::vector<int>& owners);
  void share_from_root(std::vector<at::Tensor>& values) { share(values, std::vector<int>(values.size(), 0)); }
  void meet() { static_cast<void>(any(false)); }  // returns when all ranks have called it
  // Calls `work` on the first rank of each machine, and then on the machine's other ranks, so that they find the files that the
  // first rank wrote.
  void in_turn(const std::function<void()>& work);
  // A rank that ends with an error calls this. Afterwards its calls return at once, as if it were the only rank.
  virtual void leave() {}
  // Returns true if a lost rank or leave() may have made this rank compute with incomplete sums. The rank's values are then not
  // valid as a state of the run.
  [[nodiscard]] virtual bool has_cut_sums() const noexcept { return false; }

  // Returns how many calls so far have waited for the other ranks. Sums that are still under way are not counted.
  [[nodiscard]] virtual std::int64_t exchanges() const noexcept { return 0; }

  [[nodiscard]] bool any(bool mine);        // returns true if `mine` is true on any rank
  [[nodiscard]] Json from_root(Json mine);  // returns the value that rank 0 passed
  [[nodiscard]] std::int64_t sum(std::int64_t mine);
  [[nodiscard]] bool alone() const { return ranks().world_size == 1; }

  // The agreement for a run that has only one process. Its functions cost nothing. The object lives until the program ends.
  [[nodiscard]] static Agreement& of_one() noexcept;
};

}  // namespace millrace
