// Reads the state of NVIDIA GPUs from NVML, the management library of the driver (NVML API Reference Manual). The library is
// loaded at run time, so the same program also runs on a machine without it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/json.h"

namespace millrace::doctor {

// Any thread may use an object, but only one thread at a time.
class Nvml {
 public:
  // The state of a GPU at one moment. Values that the driver does not report are left out.
  struct Reading {
    std::string name;
    std::optional<std::pair<int, int>> capability;
    std::optional<double> utilisation;  // share of the driver's latest sampling period in which a kernel was running
    std::optional<std::uint64_t> memory_used, memory_total;
    std::optional<double> mhz, most_mhz;  // present and maximum clock of the multiprocessors
    std::optional<double> celsius, watts;
    std::vector<std::string> held_back;  // reasons why the clock is below its maximum, except an idle GPU and limits that the
                                         // user set
    [[nodiscard]] Json to_json() const;
  };

  // Loads the library; `library` is a name for dlopen. Returns null if the library is missing or does not work; `why` then
  // gives the reason in a sentence.
  [[nodiscard]] static std::unique_ptr<Nvml> open(std::string& why, const char* library = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  [[nodiscard]] const std::string& driver() const noexcept { return driver_; }  // version of the driver: "550.54.15"
  [[nodiscard]] int count() const noexcept { return count_; }
  // Reads the GPU that has the number `index` in CUDA. `visible` is the value of CUDA_VISIBLE_DEVICES (null = not set): a list
  // of numbers or of the driver's ids ("GPU-..."). The list ends before the first entry that is neither. nullopt if there is no
  // such GPU.
  [[nodiscard]] std::optional<Reading> read(int index, const char* visible = nullptr) const;

 private:
  struct Calls;
  explicit Nvml(std::unique_ptr<Calls> calls);
  std::unique_ptr<Calls> calls_;
  std::string driver_;
  int count_ = 0;
};

}  // namespace millrace::doctor
