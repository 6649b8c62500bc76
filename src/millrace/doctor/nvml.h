// What the NVIDIA driver says of its GPUs, by its management library (NVML API Reference Manual), which is looked for when asked:
// a machine without it runs the same program.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/json.h"

namespace millrace::doctor {

// Of one moment. What the driver does not tell is left out.
struct GpuReading {
  std::string name;
  std::optional<std::pair<int, int>> capability;
  std::optional<double> utilisation;  // part of the driver's last sampling period in which a kernel ran
  std::optional<std::uint64_t> memory_used, memory_total;
  std::optional<double> mhz, most_mhz;  // of the multiprocessors
  std::optional<double> celsius, watts;
  std::vector<std::string> held_back;  // why the clock is below the most it could be; idle and chosen limits are no reasons
  [[nodiscard]] Json to_json() const;
};

// Calls of the library may come from any thread, of one object from one at a time.
class Nvml {
 public:
  // Null where there is no such library, or it does not work: `why` says so in one sentence. `library`: as dlopen takes it.
  [[nodiscard]] static std::unique_ptr<Nvml> open(std::string& why, const char* library = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  [[nodiscard]] const std::string& driver() const noexcept { return driver_; }  // "550.54.15"
  [[nodiscard]] int count() const noexcept { return count_; }
  // Of the GPU that CUDA calls `index`, with `visible` what CUDA_VISIBLE_DEVICES says (null = not set): numbers or the driver's
  // ids
  // ("GPU-..."), up to the first that is neither. nullopt: there is none.
  [[nodiscard]] std::optional<GpuReading> read(int index, const char* visible = nullptr) const;

 private:
  struct Calls;
  explicit Nvml(std::unique_ptr<Calls> calls);
  std::unique_ptr<Calls> calls_;
  std::string driver_;
  int count_ = 0;
};

}  // namespace millrace::doctor
