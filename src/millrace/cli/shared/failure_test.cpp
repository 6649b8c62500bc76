#include "millrace/cli/shared/failure.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <new>
#include <oneapi/dnnl/dnnl_common.hpp>
#include <system_error>

#include "millrace/base/fs.h"

namespace millrace::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

template <class Thrown>
std::string told(const Thrown& thrown) {
  try {
    throw thrown;
  } catch (...) {
    const Failure failure = describe(std::current_exception());
    EXPECT_EQ(failure.exit_code, 1);
    return failure.text;
  }
}

TEST(Failure, WantOfMemoryComesWithAnAccountOfIt) {
  const auto account = AllOf(StartsWith("DeviceError  out of memory"), HasSubstr("peak resident"), HasSubstr("are free"));
  EXPECT_THAT(told(std::bad_alloc()), account);
  EXPECT_THAT(told(std::system_error(ENOMEM, std::generic_category())), account);
  EXPECT_THAT(told(dnnl::error(dnnl_out_of_memory, "could not create a memory object")),
              AllOf(account, HasSubstr("could not create a memory object")));
  EXPECT_THAT(told(dnnl::error(dnnl_runtime_error, "could not create a primitive")), account);
  EXPECT_THAT(told(dnnl::error(dnnl_invalid_arguments, "could not create a primitive")), StartsWith("InternalError"));
}

TEST(Failure, AThreadThatCannotBeMadeNamesTheLimits) {
  EXPECT_THAT(
      told(std::system_error(EAGAIN, std::generic_category())),
      AllOf(StartsWith("DeviceError  no further thread could be made"), HasSubstr("limit"), HasSubstr("--device.threads=1")));
}

TEST(Failure, FilesComeWithTheRemedyForTheirReason) {
  EXPECT_THAT(told(FsError("open", "runs/a", EMFILE)), AllOf(HasSubstr("runs/a"), HasSubstr("ulimit -n")));
  EXPECT_THAT(told(FsError("write", "runs/a", EFBIG)), HasSubstr("ulimit -f"));
  EXPECT_THAT(told(std::filesystem::filesystem_error("can't", "runs/b", std::error_code(EMFILE, std::generic_category()))),
              AllOf(HasSubstr("runs/b"), HasSubstr("ulimit -n")));
  EXPECT_THAT(told(std::system_error(ENOSPC, std::system_category())), AllOf(Not(HasSubstr("mistake")), HasSubstr("df -h")));
}

TEST(Failure, ALostDeviceIsNoMistakeOfOurs) {
  EXPECT_THAT(told(c10::AcceleratorError({__func__, __FILE__, 0}, 719, "CUDA error: unspecified launch failure\nSearch for it")),
              AllOf(StartsWith("DeviceError  the GPU no longer answers this program: CUDA error: unspecified launch failure\n"),
                    HasSubstr("CUDA_LAUNCH_BLOCKING=1"), Not(HasSubstr("mistake"))));
  EXPECT_THAT(told(c10::Error({__func__, __FILE__, 0}, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`")),
              StartsWith("DeviceError  out of memory"));
}

}  // namespace
}  // namespace millrace::cli
