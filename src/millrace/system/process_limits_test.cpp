#include "millrace/system/process_limits.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>

namespace millrace {
namespace {

constexpr std::size_t kBytes = std::size_t{64} << 20U;

TEST(Limits, MappedBytesFollowAMapping) {
  const std::uint64_t before = mapped_bytes();
  ASSERT_GT(before, 0U);
  void* const memory = ::mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  EXPECT_GE(mapped_bytes(), before + kBytes);
  ::munmap(memory, kBytes);
}

TEST(Limits, WhatIsLeftOfALimitIsWhatCanStillBeMapped) {
  const pid_t child = ::fork();  // a child, because the limit would stay in this process
  if (child == 0) {
    const std::uint64_t most = mapped_bytes() + kBytes;
    const rlimit limit{most, most};
    if (::setrlimit(RLIMIT_AS, &limit) != 0) ::_exit(2);
    const bool known = limit_of(RLIMIT_AS) == most && address_space_left().value_or(2 * kBytes) <= kBytes;
    keep_address_space(kBytes / 2);
    const bool keeps = may_map(kBytes / 4) && !may_map(kBytes / 2 + 8192);
    const bool too_much = ::mmap(nullptr, kBytes + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED;
    ::_exit(known && keeps && too_much ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

std::string refusal_below(int resource, rlim_t most) {
  rlimit before{};
  ::getrlimit(static_cast<__rlimit_resource_t>(resource), &before);
  const rlimit limit{most, before.rlim_max};
  ::setrlimit(static_cast<__rlimit_resource_t>(resource), &limit);
  const std::string text = start_refusal();
  ::setrlimit(static_cast<__rlimit_resource_t>(resource), &before);
  return text;
}

TEST(Limits, WhatDoesNotLetAProgramStartIsNamed) {
  EXPECT_EQ(start_refusal(), "");
  EXPECT_EQ(refusal_below(RLIMIT_NOFILE, 15),
            "DeviceError  this process may open 15 files (ulimit -n), and the program needs 16 merely to start\n"
            "  next     raise the limit (ulimit -n 65536) and try again");
  EXPECT_EQ(refusal_below(RLIMIT_NOFILE, 16), "");
}

TEST(Limits, WithoutALimitOrAReserveAnythingMayBeMapped) {
  EXPECT_EQ(kept_address_space(), 0U);
  EXPECT_TRUE(may_map(~std::uint64_t{0}));
  EXPECT_GE(thread_stack_bytes(), 16384U);
}

}  // namespace
}  // namespace millrace
