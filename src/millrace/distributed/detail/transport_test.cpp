#include "millrace/distributed/detail/transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/base/error.h"

namespace millrace::distributed {
namespace {

const RankDevice kCpu{"a", "", "", "its tensors are in host memory"};
const RankDevice kFirst{"a", "0000:3b:00.0", "NCCL 2.28.9", ""};
const RankDevice kSecond{"a", "0000:5e:00.0", "NCCL 2.28.9", ""};
const RankDevice kElsewhere{"b", "0000:3b:00.0", "NCCL 2.28.9", ""};

std::string text(const std::vector<RankDevice>& ranks, const std::string& wish = "auto") {
  const Chosen<std::string> transport = choose_transport(ranks, wish);
  return transport.value + ": " + transport.reason;
}

std::string refusal(const std::vector<RankDevice>& ranks) {
  try {
    return text(ranks, "nccl");
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(Transport, IsNcclWhereEachRankHasAGpuOfItsOwn) {
  EXPECT_EQ(text({kFirst, kSecond}), "nccl: NCCL 2.28.9, a GPU for each rank");
  EXPECT_EQ(text({kFirst, kSecond}, "nccl"), "nccl: NCCL 2.28.9, a GPU for each rank");
  EXPECT_EQ(text({kFirst, kElsewhere}), "nccl: NCCL 2.28.9, a GPU for each rank");
}

TEST(Transport, IsGlooElsewhereAndSaysWhy) {
  EXPECT_EQ(text({kCpu, kCpu}), "gloo: the ranks compute on CPUs");
  EXPECT_EQ(text({kFirst, kSecond}, "gloo"), "gloo: as the config says; tensors of a GPU are copied through host memory");
  EXPECT_EQ(text({kFirst, kCpu}), "gloo: through host memory, because rank 1 on a computes on its CPU");
  const RankDevice bare{"b", "0000:3b:00.0", "", "this build has no NCCL: nccl.h was not found when it was configured"};
  EXPECT_EQ(
      text({kFirst, bare}),
      "gloo: through host memory, because rank 1 on b: this build has no NCCL: nccl.h was not found when it was configured");
  const RankDevice older{"b", "0000:3b:00.0", "NCCL 2.27.3", ""};
  EXPECT_EQ(text({kFirst, older}), "gloo: through host memory, because rank 1 on b has NCCL 2.27.3, but rank 0 has NCCL 2.28.9");
  EXPECT_EQ(text({kFirst, kSecond, kFirst}),
            "gloo: through host memory, because ranks 0 and 2 share GPU 0000:3b:00.0 of a, but NCCL needs a GPU for each rank");
}

TEST(Transport, ThatWasAskedForAndCantBeIsRefused) {
  EXPECT_EQ(refusal({kFirst, kFirst}),
            "ConfigError  the ranks can't add up tensors over NCCL: ranks 0 and 1 share GPU 0000:3b:00.0 of a, but NCCL needs a "
            "GPU for each rank\n  where    distributed.transport\n"
            "  next     remove this cause, or set distributed.transport=auto: Gloo then carries the tensors through host memory");
  EXPECT_THAT(refusal({kCpu, kCpu}), testing::HasSubstr("rank 0 on a computes on its CPU"));
}

TEST(Transport, WhatRanksTellEachOtherIsWhatTheyHave) {
  const RankDevice read = RankDevice::of(kElsewhere.to_json());
  EXPECT_EQ(read.to_json(), kElsewhere.to_json());
  EXPECT_EQ(read.host, "b");
  EXPECT_EQ(read.gpu, "0000:3b:00.0");
}

}  // namespace
}  // namespace millrace::distributed
