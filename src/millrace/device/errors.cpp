#include "millrace/device/errors.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <new>
#include <oneapi/dnnl/dnnl_common.hpp>
#include <string_view>
#include <utility>

namespace millrace::device {
namespace {

// cudaErrorMemoryAllocation. It is written as a number because only the plugin includes CUDA's headers.
constexpr std::int32_t kMemoryAllocation = 2;

// The errors (cudaError_t) after which the process's context is unusable, according to cudart's documentation.
constexpr std::array<std::int32_t, 18> kLost = {
    53,   // prior launch failure
    214,  // ECC, uncorrectable
    220,  // NVLink, uncorrectable
    226,  // contained: a memory error that ended the work of this process only
    700,  // illegal address
    702,  // launch timeout
    709,  // context destroyed
    710,  // assertion of a kernel
    714,  // hardware stack
    715,  // illegal instruction
    716,  // misaligned address
    717,  // address space
    718,  // program counter
    719,  // launch failure
    721,  // tensor memory leak
    810,  // MPS client terminated
    911,  // external device
    999,  // unknown
};

constexpr std::array<std::string_view, 7> kNoMemory = {
    "ALLOC_FAILED",       // follows CUBLAS_STATUS_, CUDNN_STATUS_, CUFFT_ or CUSOLVER_STATUS_
    "ALLOCATION_FAILED",  // follows CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ or _HOST_
    "CUDA error: out of memory",
    "CUDA driver error: out of memory",                      // from the allocator, when it maps a segment that grows
    "unable to find an engine to execute this computation",  // no algorithm for a convolution had room for its workspace
    "not enough memory",                                     // the message of LibTorch's allocator of host memory
    "can't allocate memory"};

constexpr std::array<std::string_view, 18> kNoDevice = {"CUBLAS_STATUS_EXECUTION_FAILED",
                                                        "CUBLAS_STATUS_MAPPING_ERROR",
                                                        "CUDNN_STATUS_EXECUTION_FAILED",
                                                        "CUFFT_EXEC_FAILED",
                                                        "CUSOLVER_STATUS_EXECUTION_FAILED",
                                                        "an illegal memory access was encountered",
                                                        "an illegal instruction was encountered",
                                                        "unspecified launch failure",
                                                        "device-side assert triggered",
                                                        "misaligned address",
                                                        "uncorrectable ECC error",
                                                        "uncorrectable NVLink error",
                                                        "the launch timed out and was terminated",
                                                        "hardware stack error",
                                                        "invalid program counter",
                                                        "operation not supported on global/shared address space",
                                                        "context is destroyed",
                                                        "CUDA error: unknown error"};

bool holds(std::string_view text, const auto& words) noexcept {
  return std::ranges::any_of(words, [&](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

// True if cuDNN names an internal error without details. The cause is then a missing resource, usually memory.
bool is_bare_internal_error(std::string_view text) noexcept {
  constexpr std::string_view kInternal = "CUDNN_STATUS_INTERNAL_ERROR";
  const std::size_t at = text.find(kInternal);
  return at != std::string_view::npos && !text.substr(at + kInternal.size()).starts_with('_');
}

std::string first_line(const std::exception& error) {
  const auto* const of_torch = dynamic_cast<const c10::Error*>(&error);
  const std::string_view text = of_torch == nullptr ? error.what() : of_torch->what_without_backtrace();
  return std::string(text.substr(0, text.find('\n')));
}

}  // namespace

ErrorKind kind_of(const std::exception& error) noexcept {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return ErrorKind::out_of_memory;
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return ErrorKind::out_of_memory;
  // oneDNN's message is vague, but at run time its code generator fails only because memory is missing.
  if (const auto* const primitive = dynamic_cast<const dnnl::error*>(&error)) {
    const bool no_room = primitive->status == dnnl_out_of_memory || primitive->status == dnnl_runtime_error;
    return no_room ? ErrorKind::out_of_memory : ErrorKind::other;
  }
  if (const auto* const of_cuda = dynamic_cast<const c10::AcceleratorError*>(&error)) {
    if (of_cuda->get_error_code() == kMemoryAllocation) return ErrorKind::out_of_memory;
    if (std::ranges::find(kLost, of_cuda->get_error_code()) != kLost.end()) return ErrorKind::device_lost;
  }
  const auto* const of_torch = dynamic_cast<const c10::Error*>(&error);
  if (of_torch == nullptr) return ErrorKind::other;
  const std::string_view text = of_torch->what_without_backtrace();
  if (holds(text, kNoDevice)) return ErrorKind::device_lost;
  return holds(text, kNoMemory) || is_bare_internal_error(text) ? ErrorKind::out_of_memory : ErrorKind::other;
}

bool is_out_of_memory(const std::exception& error) noexcept { return kind_of(error) == ErrorKind::out_of_memory; }

bool is_device_lost(const std::exception& error) noexcept { return kind_of(error) == ErrorKind::device_lost; }

Message lost_device(const std::exception& error, std::string where, const std::string& first) {
  where += (where.empty() ? "" : "; ");
  return {"the GPU no longer answers this program: " + first_line(error),
          where + "a GPU reports an error late: the faulty operation is in this step or in the step before",
          first +
              "set CUDA_LAUNCH_BLOCKING=1 in the environment, so that the error comes from the operation itself, or "
              "--device.name=cpu, so that a wrong index gives a clearer error; if both runs succeed, look for Xid in the "
              "system's log (dmesg), where a card reports failures"};
}

}  // namespace millrace::device
