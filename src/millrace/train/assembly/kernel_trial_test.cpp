#include "millrace/train/assembly/kernel_trial.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(KeptKernels, HoldOnTheInstructionsThatTheyWereTriedOn) {
  Json choices = {{"kernels.product.fp32", "ours"}, {"kernels.norm.bf16", "library"},  {"kernels.of another time", "ours"},
                  {"precision.dtype", "bf16"},      {"device.instructions", "avx512"}, {"kernels.attention.fp32", 3}};
  const KeptKernels kept = kept_kernels(choices);
  ASSERT_EQ(kept.choices.size(), 2U);
  EXPECT_EQ(kept.choices[0].option(), "kernels.norm.bf16");
  EXPECT_EQ(kept.choices[0].implementation, kernels::Implementation::library);
  EXPECT_EQ(kept.choices[1].option(), "kernels.product.fp32");
  EXPECT_EQ(kept.choices[1].implementation, kernels::Implementation::ours);
  EXPECT_TRUE(kept.hold_on("avx512"));
  EXPECT_FALSE(kept.hold_on("amx"));
  choices.erase("device.instructions");
  EXPECT_TRUE(kept_kernels(choices).hold_on("amx")) << "of a snapshot that does not say it";
  EXPECT_TRUE(kept_kernels(Json::object()).choices.empty());
}

}  // namespace
}  // namespace millrace
