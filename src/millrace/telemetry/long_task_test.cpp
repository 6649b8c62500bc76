#include "millrace/telemetry/long_task.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>

namespace millrace::telemetry {
namespace {

// A log: a pipe whose other end the test reads.
class Log {
 public:
  Log() { EXPECT_EQ(::pipe(ends_.data()), 0); }
  ~Log() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  [[nodiscard]] int descriptor() const { return ends_[1]; }
  // Waits for a line.
  std::string line() {
    std::string text;
    for (char c = 0; c != '\n' && ::read(ends_[0], &c, 1) == 1;) text += c;
    return text;
  }

 private:
  std::array<int, 2> ends_{};
};

TEST(LongTask, SaysInALogOnceWhatItIsAndAboutHowLong) {
  Log log;
  Console console(Console::Mode::plain, log.descriptor());
  {
    LongTask task(console, "timing kernels in bf16", 0.5);
    task.expect(42);
    EXPECT_EQ(log.line(), "timing kernels in bf16: about 42 s\n");
  }
  {
    const LongTask task(console, "opening the data", 0);
    EXPECT_EQ(log.line(), "opening the data\n");
  }
  console.line("end");
  EXPECT_EQ(log.line(), "end\n");
}

TEST(LongTask, ThatIsShortSaysNothing) {
  Log log;
  Console console(Console::Mode::plain, log.descriptor());
  { const LongTask task(console, "timing kernels in bf16", 3600); }
  console.line("end");
  EXPECT_EQ(log.line(), "end\n");
}

}  // namespace
}  // namespace millrace::telemetry
