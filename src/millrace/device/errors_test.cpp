#include "millrace/device/errors.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <new>
#include <oneapi/dnnl/dnnl_common.hpp>
#include <stdexcept>

namespace millrace::device {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr c10::SourceLocation kHere{"errors_test.cpp", "test", 1};

ErrorKind of_torch(const std::string& text) { return kind_of(c10::Error(kHere, text)); }
ErrorKind of_cuda(std::int32_t code, const std::string& text) { return kind_of(c10::AcceleratorError(kHere, code, text)); }

TEST(Errors, WantOfMemoryHasManyForms) {
  EXPECT_EQ(kind_of(std::bad_alloc()), ErrorKind::out_of_memory);
  EXPECT_EQ(kind_of(dnnl::error(dnnl_out_of_memory, "could not create a memory object")), ErrorKind::out_of_memory);
  EXPECT_EQ(kind_of(c10::OutOfMemoryError(kHere, "CUDA out of memory. Tried to allocate 2.00 GiB.")), ErrorKind::out_of_memory);
  EXPECT_EQ(of_cuda(2, "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call"),
            ErrorKind::out_of_memory);
  for (const char* const text :
       {"CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", "cuFFT error: CUFFT_ALLOC_FAILED",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED", "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
        "GET was unable to find an engine to execute this computation after trying 4 plans.", "CUDA error: out of memory",
        "CUDA driver error: out of memory"}) {
    EXPECT_EQ(of_torch(text), ErrorKind::out_of_memory) << text;
    EXPECT_TRUE(is_out_of_memory(c10::Error(kHere, text))) << text;
  }
  try {
    (void)at::empty({std::int64_t{1} << 46}, at::kByte);  // refused by LibTorch itself
    ADD_FAILURE() << "64 TB were given";
  } catch (const std::exception& error) {
    EXPECT_TRUE(is_out_of_memory(error)) << error.what();
  }
}

TEST(Errors, ALostDeviceIsKnownByItsCodeOrItsText) {
  for (const std::int32_t code : {214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 999})
    EXPECT_EQ(of_cuda(code, "CUDA error: in other words"), ErrorKind::device_lost) << code;
  for (const char* const text : {"CUDA error: an illegal memory access was encountered", "CUDA error: unspecified launch failure",
                                 "CUDA error: device-side assert triggered", "CUDA error: uncorrectable ECC error encountered",
                                 "CUDA error: misaligned address", "CUDA driver error: an illegal instruction was encountered",
                                 "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(...)`",
                                 "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED_CUDART"}) {
    EXPECT_EQ(of_torch(text), ErrorKind::device_lost) << text;
    EXPECT_FALSE(is_out_of_memory(c10::Error(kHere, text))) << text;
  }
}

TEST(Errors, WhatIsNeitherStaysTheCallersBusiness) {
  EXPECT_EQ(kind_of(std::runtime_error("can't allocate memory")), ErrorKind::other) << "the text of a stranger proves nothing";
  EXPECT_EQ(kind_of(dnnl::error(dnnl_invalid_arguments, "could not create a primitive")), ErrorKind::other);
  EXPECT_EQ(of_cuda(1, "CUDA error: invalid argument"), ErrorKind::other);
  EXPECT_EQ(of_cuda(9, "CUDA error: invalid configuration argument"), ErrorKind::other);
  EXPECT_EQ(of_torch("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED"), ErrorKind::other);
  EXPECT_EQ(of_torch("The size of tensor a (3) must match the size of tensor b (4)"), ErrorKind::other);
  EXPECT_EQ(of_torch("CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasSgemm(...)`"), ErrorKind::other);
}

TEST(Errors, ALostDeviceIsToldInOneLineOfWhat) {
  const Message told =
      lost_device(c10::AcceleratorError(kHere, 700, "CUDA error: an illegal memory access was encountered\nSearch for it"),
                  "step 12", "the last good snapshot is runs/a; ");
  EXPECT_EQ(told.what, "the GPU no longer answers this program: CUDA error: an illegal memory access was encountered");
  EXPECT_THAT(told.where, testing::StartsWith("step 12; "));
  EXPECT_THAT(told.next, testing::StartsWith("the last good snapshot is runs/a; set CUDA_LAUNCH_BLOCKING=1"));
  EXPECT_THAT(lost_device(std::runtime_error("x"), "").where, Not(HasSubstr(";")));
}

}  // namespace
}  // namespace millrace::device
