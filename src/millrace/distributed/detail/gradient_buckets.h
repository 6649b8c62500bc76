// Adds up the ranks' gradients in buckets, which are sent while the backward pass runs.
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

// The transports for the buckets of one set of parameters. No other code uses them, so that the buckets alone decide the order
// of the transports' calls.
struct BucketBackends {
  // The transports for the two halves of a sum. Both are the same object for two ranks, and if there is a second_stream.
  c10::intrusive_ptr<c10d::Backend> to, back;
  std::optional<c10::Stream> second_stream;  // stream of the second halves; nullopt: Work::wait() blocks the thread
  c10::intrusive_ptr<c10d::Backend> words;   // carries numbers in CPU memory; only the loop's thread uses it
};

// All ranks send the buckets in the same order. At first, buckets go from the last parameter to the first, because a backward
// pass reaches most parameters in this order. After the first step, buckets follow the order in which gradients arrived on rank
// 0.
class GradientBuckets final : public GradientSums {
 public:
  // Runs a collective call and converts its exceptions to the caller's error.
  using Guard = std::function<void(const std::function<void()>&)>;
  // All parameters must be on the device whose tensors the transports carry.
  GradientBuckets(BucketBackends backends, std::vector<at::Tensor> parameters, const GradientSumsOptions& options, Guard guard);
  ~GradientBuckets() override;
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  void begin(const at::Tensor& factor) override;
  [[nodiscard]] bool has_begun() const noexcept override { return begun_; }
  void send() override;
  [[nodiscard]] bool is_spoiled() const noexcept override { return spoiled_; }
  [[nodiscard]] std::vector<at::Tensor> receive() override;
  [[nodiscard]] GradientSums::Traffic take_traffic() noexcept override { return std::exchange(traffic_, {}); }

 private:
  struct Hook;
  struct Bucket;
  struct Slot {
    std::size_t bucket = 0;
    at::Tensor view;  // the parameter's section of its bucket, with the sizes and strides of the parameter
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
  std::vector<Slot> slots_;            // one for each parameter
  std::vector<std::size_t> arrivals_;  // indices of parameters, in the order in which their gradients arrived in the first step
  bool order_agreed_ = false;
  std::mutex mutex_;  // guards the members below: gradients arrive in autograd's threads
  at::Tensor factor_;
  std::size_t next_ = 0, next_back_ = 0;  // the bucket to send next; the bucket whose sum is sent back next
  bool begun_ = false, sent_ = false, spoiled_ = false;
  GradientSums::Traffic traffic_;
};

}  // namespace millrace::distributed
