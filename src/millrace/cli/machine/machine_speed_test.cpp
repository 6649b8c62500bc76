#include "millrace/cli/machine/machine_speed.h"

#include <gtest/gtest.h>

#include <sstream>

namespace millrace::cli {
namespace {

TEST(MachineSpeed, TheClockIsThatOfTheCoreThatIsAskedFor) {
  const std::string text =
      "processor\t: 0\nvendor_id\t: x\ncpu MHz\t\t: 800.013\n\nprocessor\t: 1\ncpu MHz\t\t: 3594.2\n\nprocessor\t: 10\n";
  const auto clock_of = [&](int cpu) {
    std::istringstream info(text);
    return mhz_of_cpu(info, cpu);
  };
  EXPECT_EQ(clock_of(0), 800.013);
  EXPECT_EQ(clock_of(1), 3594.2);
  EXPECT_FALSE(clock_of(10)) << "it tells none";
  EXPECT_FALSE(clock_of(2));
  EXPECT_FALSE(clock_of(-1));
}

}  // namespace
}  // namespace millrace::cli
