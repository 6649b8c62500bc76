// An account of a run's memory: the bytes of each part, and their sum compared with the measured peak.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/json.h"

namespace millrace {

// All members are bytes; 0 = the run has no such part. On a GPU the members from weights to activations are device memory and the
// rest is host memory; of_tensors() and sum() keep the two apart.
struct MemoryAccount {
  bool on_gpu = false;
  std::uint64_t weights = 0;  // parameters and buffers
  std::uint64_t gradients = 0;
  std::uint64_t optimizer = 0;
  std::uint64_t averages = 0;     // optim.ema_decay
  std::uint64_t activations = 0;  // the most bytes of other tensors that a step holds
  std::uint64_t loader = 0;       // batches that are being prepared or used
  std::uint64_t cache = 0;        // data.cache
  std::uint64_t snapshot = 0;     // the copy that is written to disk while training continues
  std::uint64_t scratch = 0;      // heap memory that operations take in addition to tensors, and fragments of the heap
  std::uint64_t libraries = 0;    // the program and its libraries: code, and their allocations before a recipe is made

  [[nodiscard]] std::vector<std::pair<std::string, std::uint64_t>> parts() const;  // the members with their names, in the order
                                                                                   // above
  [[nodiscard]] std::uint64_t of_tensors() const noexcept;                         // sum of the members from weights to
                                                                                   // activations
  [[nodiscard]] std::uint64_t sum() const noexcept;  // sum of the parts that are host memory: on a CPU all parts, on a GPU the
                                                     // parts after activations

  // {part: bytes, "sum", "peak", "rest": peak - sum}; on a GPU also "gpu", the bytes of tensors there. `peak`: peak bytes of the
  // process.
  [[nodiscard]] Json to_json(std::uint64_t peak) const;
  // "peak memory 263 MB: libraries 150 MB, activations 84 MB, weights 12 MB, ..., rest 3 %", the largest part first. Each part
  // reaches its maximum at its own time, so the sum may exceed the peak; then the text says by how much. On a GPU the text begins
  // with the GPU's memory: "GPU memory 9.1 GB: activations 7.0 GB, ...; peak memory ...".
  [[nodiscard]] std::string to_text(std::uint64_t peak) const;
};

}  // namespace millrace
