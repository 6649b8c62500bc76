// Scopes for number formats: autocast, for which C++ LibTorch has no scope, and TF32.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>

namespace millrace::device {

// Turns autocast on for the calling thread until destruction; nullopt changes nothing. Autocast caches the casts of weights. The
// outermost scope drops these casts when it ends, before the optimiser changes the weights. Do not hold a scope during
// backward().
class Autocast {
 public:
  Autocast(c10::DeviceType device, std::optional<c10::ScalarType> dtype);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool active_;
  c10::DeviceType device_;
  bool was_enabled_ = false;
  bool was_cached_ = false;
  c10::ScalarType was_dtype_ = c10::ScalarType::Float;
};

// Turns autocast off for the calling thread until destruction, for losses and layers that must stay fp32.
class NoAutocast {
 public:
  explicit NoAutocast(c10::DeviceType device);
  ~NoAutocast();
  NoAutocast(const NoAutocast&) = delete;
  NoAutocast& operator=(const NoAutocast&) = delete;

 private:
  c10::DeviceType device_;
  bool was_enabled_;
};

// Sets whether fp32 matrix products and convolutions on a GPU may use TF32 (10 bits of mantissa). Unlike autocast, the setting
// applies to the whole process, so call this on the training loop's thread only. The setting has no effect on a CPU. LibTorch's
// default allows TF32 for convolutions only.
void allow_tf32(bool allowed);

// Calls allow_tf32(), and restores the earlier setting at destruction.
class Tf32 {
 public:
  explicit Tf32(bool allowed);
  ~Tf32();
  Tf32(const Tf32&) = delete;
  Tf32& operator=(const Tf32&) = delete;

 private:
  bool was_matmul_;
  bool was_convolution_;
};

}  // namespace millrace::device
