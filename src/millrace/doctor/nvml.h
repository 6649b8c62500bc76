// State of NVIDIA GPUs, read from the driver's management library (NVML API Reference Manual), which is loaded at run time: the
// same program runs on a machine without it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/json.h"

namespace millrace::doctor {

// An object must be used by one thread at a time, which may be any thread.
class Nvml {
 public:
  // One reading. Values that the driver does not report are left out.
  struct Reading {
    std::string name;
    std::optional<std::pair<int, int>> capability;
    std::optional<double> utilisation;  // share of the driver's last sampling period in which a kernel ran
    std::optional<std::uint64_t> memory_used, memory_total;
    std::optional<double> mhz, most_mhz;  // clock of the multiprocessors
    std::optional<double> celsius, watts;
    std::vector<std::string> held_back;  // why the clock is below its maximum; idleness and limits set by the user are not listed
    [[nodiscard]] Json to_json() const;
  };

  // Opens the library; `library` is a name for dlopen. Returns null if it is missing or does not work; `why` then says so in one
  // sentence.
  [[nodiscard]] static std::unique_ptr<Nvml> open(std::string& why, const char* library = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  [[nodiscard]] const std::string& driver() const noexcept { return driver_; }  // "550.54.15"
  [[nodiscard]] int count() const noexcept { return count_; }
  // Reads the GPU that CUDA calls `index`. `visible` is the value of CUDA_VISIBLE_DEVICES (null = not set): numbers or the
  // driver's ids ("GPU-..."), up to the first entry that is neither. nullopt if there is no such GPU.
  [[nodiscard]] std::optional<Reading> read(int index, const char* visible = nullptr) const;

 private:
  struct Calls;
  explicit Nvml(std::unique_ptr<Calls> calls);
  std::unique_ptr<Calls> calls_;
  std::string driver_;
  int count_ = 0;
};

}  // namespace millrace::doctor
