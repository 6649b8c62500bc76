#include "millrace/system/openmp.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace millrace {
namespace {

TEST(Openmp, KnowsWhetherSomebodyChose) {
  const char* const nothing[] = {"PATH=/bin", "OMP_NUM_THREADS=2", "MY_OMP_WAIT_POLICY=active", nullptr};
  const char* const policy[] = {"PATH=/bin", "OMP_WAIT_POLICY=active", nullptr};
  const char* const count[] = {"GOMP_SPINCOUNT=0", nullptr};
  EXPECT_FALSE(configures_openmp_waits(nullptr));
  EXPECT_FALSE(configures_openmp_waits(nothing));
  EXPECT_TRUE(configures_openmp_waits(policy));
  EXPECT_TRUE(configures_openmp_waits(count));
}

TEST(Openmp, KnowsWhoAsksForAnotherNumberOfThreads) {
  ::unsetenv("TORCHELASTIC_RESTART_COUNT");
  ::unsetenv("MKL_NUM_THREADS");
  ::setenv("OMP_NUM_THREADS", "3", 1);
  EXPECT_EQ(other_threads_asked(3), "");
  EXPECT_EQ(other_threads_asked(2), "OMP_NUM_THREADS=3");
  ::setenv("TORCHELASTIC_RESTART_COUNT", "0", 1);
  EXPECT_EQ(other_threads_asked(2), "") << "a launcher's choice is nobody's wish";
  ::unsetenv("TORCHELASTIC_RESTART_COUNT");
  ::setenv("OMP_NUM_THREADS", "", 1);
  EXPECT_EQ(other_threads_asked(2), "");
  ::unsetenv("OMP_NUM_THREADS");
}

}  // namespace
}  // namespace millrace
