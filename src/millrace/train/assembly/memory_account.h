// One account of a run's memory: what each part takes, and how near their sum comes to what the run took at most.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/json.h"

namespace millrace {

// Bytes; 0 = none of it. On a GPU weights to activations are the device's and the rest the host's, which two sums tell apart.
struct MemoryAccount {
  bool on_gpu = false;
  std::uint64_t weights = 0;  // parameters and buffers
  std::uint64_t gradients = 0;
  std::uint64_t optimizer = 0;
  std::uint64_t averages = 0;     // optim.ema_decay
  std::uint64_t activations = 0;  // what else tensors held in a step at most
  std::uint64_t loader = 0;       // batches being made and used
  std::uint64_t cache = 0;        // data.cache
  std::uint64_t snapshot = 0;     // the copy that is written beside the training
  std::uint64_t scratch = 0;      // what operations took of the heap beside tensors, and its fragments
  std::uint64_t libraries = 0;    // the program and its libraries: code, and what they allocate before a recipe is made

  [[nodiscard]] std::vector<std::pair<std::string, std::uint64_t>> parts() const;  // in this order
  [[nodiscard]] std::uint64_t of_tensors() const noexcept;                         // weights to activations
  [[nodiscard]] std::uint64_t sum() const noexcept;  // of what the process's own memory holds: on a GPU without the tensors

  // `peak`: of the process. {part: bytes, "sum", "peak", "rest": peak - sum}, on a GPU also "gpu": what tensors took of it.
  [[nodiscard]] Json to_json(std::uint64_t peak) const;
  // "peak memory 263 MB: libraries 150 MB, activations 84 MB, weights 12 MB, ..., rest 3 %", largest first. Each part is what it
  // took at most, so together they may be more than the peak; then the text says by how much. On a GPU its part comes first:
  // "GPU memory 9.1 GB: activations 7.0 GB, ...; peak memory ...".
  [[nodiscard]] std::string to_text(std::uint64_t peak) const;
};

}  // namespace millrace
