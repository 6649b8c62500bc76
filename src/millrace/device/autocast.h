// Guards for number formats: autocast (C++ LibTorch has no guard for it) and TF32.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>

namespace millrace::device {

// Autocast is on for the calling thread until destruction; casts of weights are cached and dropped at the outermost exit, before
// the optimiser changes them. nullopt = changes nothing. Do not hold one over backward().
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

// Autocast is off for the calling thread until destruction: for losses and layers that must stay fp32.
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

// Sets whether fp32 matrix products and convolutions on a GPU may use TF32 (10 bits of mantissa), from here on. It applies to the
// whole process, unlike autocast: call it on the loop's thread only. No effect on a CPU. LibTorch's own default: convolutions
// only.
void allow_tf32(bool allowed);

// Allows or forbids TF32, as allow_tf32() does, until destruction.
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
