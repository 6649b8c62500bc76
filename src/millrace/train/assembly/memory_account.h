// One account of a run's memory: what each part takes, and how close their sum is to the run's peak.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/json.h"

namespace millrace {

// All members are bytes; 0 = the part is absent. On a GPU the members from weights to activations are device memory and the rest
// is host memory; of_tensors() and sum() keep them apart.
struct MemoryAccount {
  bool on_gpu = false;
  std::uint64_t weights = 0;  // parameters and buffers
  std::uint64_t gradients = 0;
  std::uint64_t optimizer = 0;
  std::uint64_t averages = 0;     // optim.ema_decay
  std::uint64_t activations = 0;  // other tensors held in a step, at most
  std::uint64_t loader = 0;       // batches that are prepared or in use
  std::uint64_t cache = 0;        // data.cache
  std::uint64_t snapshot = 0;     // the copy that is written while training continues
  std::uint64_t scratch = 0;      // heap memory that operations take besides tensors, and its fragments
  std::uint64_t libraries = 0;    // the program and its libraries: code, and their allocations before a recipe is made

  [[nodiscard]] std::vector<std::pair<std::string, std::uint64_t>> parts() const;  // the members in their order, with their names
  [[nodiscard]] std::uint64_t of_tensors() const noexcept;                         // weights to activations
  [[nodiscard]] std::uint64_t sum() const noexcept;  // sum of the parts in the process's own memory: on a GPU without the tensors

  // `peak`: peak bytes of the process. {part: bytes, "sum", "peak", "rest": peak - sum}, on a GPU also "gpu": the tensors' bytes
  // there.
  [[nodiscard]] Json to_json(std::uint64_t peak) const;
  // "peak memory 263 MB: libraries 150 MB, activations 84 MB, weights 12 MB, ..., rest 3 %", largest first. Each part is its own
  // maximum, so the sum may exceed the peak; then the text says by how much. On a GPU the text begins with its memory: "GPU
  // memory 9.1 GB: activations 7.0 GB, ...; peak memory ...".
  [[nodiscard]] std::string to_text(std::uint64_t peak) const;
};

}  // namespace millrace
