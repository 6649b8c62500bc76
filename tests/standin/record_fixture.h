// The fixture of the tests of recordings, and what they compare.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "fixture.h"

namespace millrace::standin {

using Tensors = std::vector<at::Tensor>;
using Work = std::function<void()>;

// In its own words; empty where nothing is thrown.
[[nodiscard]] inline std::string thrown_by(const Work& act) {
  try {
    act();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

// Sines of 0, pace, 2 pace, …, on the device.
[[nodiscard]] at::Tensor numbers(at::IntArrayRef sizes, double pace = 1.0);

// Also NaN is equal to itself.
[[nodiscard]] inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.detach().cpu().contiguous(), y = b.detach().cpu().contiguous();
  return x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type() &&
         (x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0);
}

class Record : public Standin {
 protected:
  std::unique_ptr<device::Recording> record(const Work& work) { return backend_->record(0, work); }
  // What a recording of `act` says.
  std::string refusal(const Work& act) {
    return thrown_by([&] { (void)record(act); });
  }
};

}  // namespace millrace::standin
