// What the processes of a run agree on. No other part of the program asks how many processes there are.
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
// The result of a call is the same on all ranks, to the bit, and the same in every run with this many ranks; the order in which
// the ranks are added up is up to the implementation.
class Agreement {
 public:
  virtual ~Agreement() = default;
  [[nodiscard]] virtual Ranks ranks() const = 0;
  [[nodiscard]] virtual std::vector<Json> gather(Json mine) = 0;  // what each rank passed, by rank
  virtual void sum(std::vector<at::Tensor>& values) = 0;          // in place, elementwise; the same sizes and types on all ranks

  // From here on tensors of `device`, on which this rank computes, travel as `wish` says: "auto", "gloo", "nccl". Call it before
  // any tensor travels. After it, sums of a GPU's tensors may still be under way when a call returns: the current stream waits
  // for them. Returns how they travel, "gloo" or "nccl"; "" for one process. ConfigError if the wish can't be met.
  [[nodiscard]] virtual Chosen<std::string> use_device(at::Device device, const std::string& wish);

  void mean(std::vector<at::Tensor>& values);  // as sum(), for floating-point numbers, then divided by the number of ranks

  // Sums that run while gradients are computed; they must end before the agreement does. Null, on all ranks alike, if this
  // agreement has no such sums for these parameters.
  [[nodiscard]] virtual std::unique_ptr<GradientSums> gradient_sums(const std::vector<at::Tensor>& parameters,
                                                                    const GradientSumsOptions& options);

  // Each value becomes, byte for byte, that of its rank in `owners`, in place; the same sizes and types on all ranks.
  // DistributedError after leave(): values that other ranks own can't be had any more.
  virtual void share(std::vector<at::Tensor>& values, const std::vector<int>& owners);
  void share_from_root(std::vector<at::Tensor>& values) { share(values, std::vector<int>(values.size(), 0)); }
  void meet() { static_cast<void>(any(false)); }  // returns when all ranks have come here
  // Calls `work` on the first rank of each machine, and then on the others, which find the files that it left on disk.
  void in_turn(const std::function<void()>& work);
  // Called by a rank that ends with an error: from here on its calls wait for no other rank and know of this rank alone.
  virtual void leave() {}
  // After a lost rank or leave(): whether this rank may have computed with incomplete sums, so that its values are not a state of
  // the run.
  [[nodiscard]] virtual bool has_cut_sums() const noexcept { return false; }

  // Number of calls so far that waited for the other ranks, without sums that are under way.
  [[nodiscard]] virtual std::int64_t exchanges() const noexcept { return 0; }

  [[nodiscard]] bool any(bool mine);        // true if it is true on any rank
  [[nodiscard]] Json from_root(Json mine);  // the value that rank 0 passed
  [[nodiscard]] std::int64_t sum(std::int64_t mine);
  [[nodiscard]] bool alone() const { return ranks().world_size == 1; }

  // The agreement of a single process, which costs nothing; lives as long as the program.
  [[nodiscard]] static Agreement& of_one() noexcept;
};

}  // namespace millrace
