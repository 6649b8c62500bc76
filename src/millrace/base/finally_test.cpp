#include "millrace/base/finally.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace millrace {
namespace {

TEST(Finally, TheEndComesAfterTheWork) {
  std::string order;
  EXPECT_EQ(finally([&] { return order += "work ", 7; }, [&] { order += "end"; }), 7);
  EXPECT_EQ(order, "work end");
  finally([&] { order = "void "; }, [&] { order += "end"; });
  EXPECT_EQ(order, "void end");
}

TEST(Finally, TheFirstErrorIsTheOneThatIsTold) {
  bool ended = false;
  const auto run = [&](bool work_fails, bool end_fails) -> std::string {
    try {
      finally(
          [&] {
            if (work_fails) throw std::runtime_error("work");
          },
          [&] {
            ended = true;
            if (end_fails) throw std::runtime_error("end");
          });
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(run(true, false), "work");
  EXPECT_TRUE(ended);
  EXPECT_EQ(run(true, true), "work");
  EXPECT_EQ(run(false, true), "end");
  EXPECT_EQ(run(false, false), "");
}

}  // namespace
}  // namespace millrace
