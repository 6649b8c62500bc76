#include "millrace/cli/launch/core_slices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace::cli {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Two sockets with two cores each, which have two threads each. As on Linux, the first threads of all cores have the first
// numbers.
const std::vector<LogicalCpu> kServer = {{0, 0, 0, 0}, {1, 0, 1, 0}, {2, 1, 0, 0}, {3, 1, 1, 0},
                                         {4, 0, 0, 0}, {5, 0, 1, 0}, {6, 1, 0, 0}, {7, 1, 1, 0}};

TEST(CoreSlices, ARankHasWholeCoresOfOneSocket) {
  EXPECT_THAT(core_slices(kServer, 2), ElementsAre(ElementsAre(0, 4, 1, 5), ElementsAre(2, 6, 3, 7)));
  EXPECT_THAT(core_slices(kServer, 4), ElementsAre(ElementsAre(0, 4), ElementsAre(1, 5), ElementsAre(2, 6), ElementsAre(3, 7)));
}

TEST(CoreSlices, AllHaveAsManyCores) {
  EXPECT_THAT(core_slices(kServer, 3), ElementsAre(ElementsAre(0, 4), ElementsAre(1, 5), ElementsAre(2, 6)));
}

TEST(CoreSlices, CoresOfDifferentDiesAreDifferent) {
  const std::vector<LogicalCpu> dies = {{0, 0, 0, 0}, {1, 0, 0, 1}, {2, 0, 0, 0}, {3, 0, 0, 1}};
  EXPECT_THAT(core_slices(dies, 2), ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
}

TEST(CoreSlices, FewerCoresThanRanksAreLeftToTheSystem) { EXPECT_THAT(core_slices(kServer, 5), IsEmpty()); }

TEST(CoreSlices, ThisProcessMayRunSomewhere) { EXPECT_FALSE(usable_cpus().empty()); }

}  // namespace
}  // namespace millrace::cli
