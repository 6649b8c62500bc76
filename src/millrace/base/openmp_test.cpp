#include "millrace/base/openmp.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(Openmp, KnowsWhetherSomebodyChose) {
  const char* const nothing[] = {"PATH=/bin", "OMP_NUM_THREADS=2", "MY_OMP_WAIT_POLICY=active", nullptr};
  const char* const policy[] = {"PATH=/bin", "OMP_WAIT_POLICY=active", nullptr};
  const char* const count[] = {"GOMP_SPINCOUNT=0", nullptr};
  EXPECT_FALSE(says_how_openmp_waits(nullptr));
  EXPECT_FALSE(says_how_openmp_waits(nothing));
  EXPECT_TRUE(says_how_openmp_waits(policy));
  EXPECT_TRUE(says_how_openmp_waits(count));
}

}  // namespace
}  // namespace millrace
