// The memory and time of one training step, block by block: bytes that exist, and milliseconds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/memory/block.h"

namespace millrace::memory {

struct StepProfile {
  // A section of a step. Forward: before, in or after a block's pass. Backward: from the point where the pass enters a block to
  // the point where it enters the next one.
  struct Segment {
    enum class Kind : std::uint8_t { gap, forward, backward };
    Kind kind = Kind::gap;
    std::int64_t block = -1;  // index into StepProfile::blocks; for a gap, the block before the gap, or -1 if there is none
    std::uint64_t peak_bytes = 0;
    std::uint64_t begin_bytes = 0, end_bytes = 0;  // bytes that exist at the beginning and the end
    double ms = 0;
  };

  std::vector<std::string> blocks;               // a name for each run of a block, in order
  std::vector<Segment> segments;                 // in the order of the step
  std::vector<std::uint64_t> second_pass_bytes;  // by block: bytes that a second pass brought back; 0 = there was no second pass
  std::vector<double> second_pass_ms;
  [[nodiscard]] std::uint64_t peak_bytes() const noexcept;
  [[nodiscard]] std::string where(const Segment& segment) const;  // "in the backward pass of layer1"
};

// Watches one step. Waits for the device at each border of a segment, so use it in trials only.
class Profiler final : public Watcher {
 public:
  explicit Profiler(c10::Device device);
  std::size_t forward_begins(std::string_view block) override;
  void forward_ends() override;
  void backward_begins(std::size_t index) override;
  void second_pass_begins(std::size_t index) override;
  void second_pass_ends(std::size_t index) override;
  [[nodiscard]] StepProfile finish();  // call it at the end of the backward pass

 private:
  void next(StepProfile::Segment::Kind kind, std::int64_t block);
  void close();

  c10::Device device_;
  StepProfile profile_;
  StepProfile::Segment open_;
  double begin_ms_ = 0;
  std::uint64_t second_pass_live_ = 0;
  double second_pass_begin_ms_ = 0;
};

}  // namespace millrace::memory
