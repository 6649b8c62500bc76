// Gradients of the ranks, added up in buckets that leave while the backward pass is under way.
#pragma once

#include <c10/core/Stream.h>
#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "millrace/core/gradient_sums.h"

namespace c10d {
class Backend;
}

namespace millrace::distributed {

// What carries the buckets of one set of parameters, and nothing else: the order of its calls is theirs.
struct BucketBackends {
  c10::intrusive_ptr<c10d::Backend> to, back;  // the halves of a sum; one where the second begins with the first
  std::optional<c10::Stream> beside;           // where the second halves are computed: of groups that hold up streams
  c10::intrusive_ptr<c10d::Backend> words;     // numbers of the CPU, from the loop's thread
};

// Buckets leave in one order on all ranks: that of the first begun step on rank 0, once that is known, else the parameters'
// from the last to the first, in which a backward pass comes to most of them.
class GradientBuckets final : public GradientSums {
 public:
  // Runs a collective call and turns what it throws into the caller's error.
  using Guard = std::function<void(const std::function<void()>&)>;
  // Parameters are on one device, which the backends carry.
  GradientBuckets(BucketBackends backends, std::vector<at::Tensor> parameters, const GradientSumsOptions& options, Guard guard);
  ~GradientBuckets() override;
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  void begin(const at::Tensor& factor) override;
  [[nodiscard]] bool has_begun() const noexcept override { return begun_; }
  void send() override;
  [[nodiscard]] bool is_spoiled() const noexcept override { return spoiled_; }
  [[nodiscard]] std::vector<at::Tensor> receive() override;
  [[nodiscard]] GradientTraffic take_traffic() noexcept override { return std::exchange(traffic_, {}); }

 private:
  struct Hook;
  struct Bucket;
  struct Slot {
    std::size_t bucket = 0;
    at::Tensor view;  // in its bucket, with the sizes and strides of its parameter
    bool filled = false;
  };
  void lay_out(const std::vector<std::size_t>& order);
  void arrive(std::size_t parameter);
  void fill(std::size_t parameter);
  void launch_full();
  void agree_on_order();

  BucketBackends backends_;
  std::vector<at::Tensor> parameters_;
  GradientSumsOptions options_;
  Guard guard_;
  std::vector<Bucket> buckets_;
  std::vector<Slot> slots_;            // by parameter
  std::vector<std::size_t> arrivals_;  // of the first step
  bool order_agreed_ = false;
  std::mutex mutex_;  // of all below: gradients come in autograd's threads
  at::Tensor factor_;
  std::size_t next_ = 0, next_back_ = 0;  // the bucket that leaves next, and whose sum is given back next
  bool begun_ = false, sent_ = false, spoiled_ = false;
  GradientTraffic traffic_;
};

}  // namespace millrace::distributed
