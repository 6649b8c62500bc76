#include <fcntl.h>
#include <gmock/gmock.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>
#include <thread>

#include "millrace/telemetry/run_log.h"

namespace millrace::telemetry {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

Console::Progress progress_at(std::int64_t step) {
  Console::Progress progress;
  progress.step = step;
  progress.total_steps = 800;
  progress.epoch = 2;
  progress.loss = 2.317;
  progress.rate = 18400;
  progress.rate_unit = "tok/s";
  progress.data_wait_share = 0.012;
  progress.eta_seconds = 42;
  progress.learning_rate = 1e-3;
  return progress;
}

// A terminal whose other end the test reads.
class Terminal {
 public:
  explicit Terminal(unsigned short columns) {
    winsize size{};
    size.ws_col = columns;
    size.ws_row = 24;
    if (::openpty(&reader_, &writer_, nullptr, nullptr, &size) != 0) reader_ = writer_ = -1;
  }
  ~Terminal() {
    ::close(reader_);
    ::close(writer_);
  }
  [[nodiscard]] bool is_open() const { return reader_ >= 0; }
  [[nodiscard]] int descriptor() const { return writer_; }
  // All text written so far. It is read up to a mark that this function writes.
  std::string shown() {
    constexpr char kMark = '\x04';
    EXPECT_EQ(::write(writer_, &kMark, 1), 1);
    std::string text;
    std::array<char, 4096> buffer{};
    while (text.empty() || text.back() != kMark) {
      const ssize_t got = ::read(reader_, buffer.data(), buffer.size());
      if (got <= 0) break;
      text.append(buffer.data(), static_cast<std::size_t>(got));
    }
    text.pop_back();
    return text;
  }

 private:
  int reader_ = -1;
  int writer_ = -1;
};

class ConsoleTest : public testing::Test {
 protected:
  ConsoleTest() {
    ::setenv("TERM", "xterm", 1);
    ::unsetenv("NO_COLOR");
  }
};

class Pipe {
 public:
  Pipe() { EXPECT_EQ(::pipe(ends_.data()), 0); }
  ~Pipe() { ::close(ends_[0]); }
  [[nodiscard]] int descriptor() const { return ends_[1]; }
  std::string rest() {
    ::close(ends_[1]);
    std::string text(1 << 16, '\0');
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::read(ends_[0], text.data(), text.size()))));
    return text;
  }

 private:
  std::array<int, 2> ends_{};
};

TEST(Console, KnowsThatLinesWereLost) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  Console console(Console::Mode::plain, ends[1]);
  console.line("read");
  EXPECT_FALSE(console.has_failed());
  ::close(ends[1]);
  console.line("lost");
  EXPECT_TRUE(console.has_failed());
  ::close(ends[0]);
}

TEST(Console, AnOutputThatDoesNotBlockLosesNothing) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  ASSERT_EQ(::fcntl(ends[1], F_SETFL, O_WRONLY | O_NONBLOCK), 0);
  std::string seen;
  std::thread reader([&] {
    std::array<char, 4096> buffer{};
    for (ssize_t got = 0; (got = ::read(ends[0], buffer.data(), buffer.size())) > 0;)
      seen.append(buffer.data(), static_cast<std::size_t>(got));
  });
  const std::string text(4 << 20, 'x');  // more than a pipe holds
  Console console(Console::Mode::plain, ends[1]);
  console.line(text);
  EXPECT_FALSE(console.has_failed());
  ::close(ends[1]);
  reader.join();
  EXPECT_EQ(seen.size(), text.size() + 1);
  ::close(ends[0]);
}

TEST(ProgressText, IsTheLogLine) {
  EXPECT_EQ(to_text(progress_at(300)), "step 300/800  epoch 2  loss 2.3170  lr 0.001  18.4k tok/s  wait 1 %  ETA 42 s");
  EXPECT_THAT(to_text(progress_at(9)), StartsWith("step   9/800  epoch 2"));
  Console::Progress bare;
  bare.step = 12;
  bare.extra = "3.1 GB";
  EXPECT_EQ(to_text(bare), "step 12  epoch 0  loss 0.0000  wait 0 %  3.1 GB");
}

TEST(ProgressText, BeforeTheFirstStepIsWhatTheCallerSays) {
  EXPECT_EQ(to_text({.extra = "timing kernels in bf16: 12 s of about 40 s"}), "timing kernels in bf16: 12 s of about 40 s");
  Console::Progress progress = progress_at(300);
  progress.extra = "1.2 GB";
  EXPECT_THAT(to_text(progress), EndsWith("ETA 42 s  1.2 GB"));
}

TEST(Console, ASmallLossHasFourSignificantDigits) {
  Console::Progress line;
  for (const auto& [loss, shown] : {std::pair{0.00412345, "loss 0.004123 "}, std::pair{-0.0512345, "loss -0.05123 "},
                                    std::pair{0.000667512, "loss 6.675e-04 "}, std::pair{0.123456, "loss 0.1235 "},
                                    std::pair{1234.56789, "loss 1234.5679 "}}) {
    line.loss = loss;
    EXPECT_THAT(to_text(line), testing::HasSubstr(shown));
  }
}

TEST_F(ConsoleTest, APipeGetsPlainLinesOnly) {
  Pipe pipe;
  {
    Console console(Console::Mode::automatic, pipe.descriptor());
    EXPECT_FALSE(console.is_terminal());
    EXPECT_EQ(console.width(), 80);
    console.heading("plan");
    console.progress(progress_at(1));
    console.line("a line");
    console.notice("something");
  }
  EXPECT_EQ(pipe.rest(), "plan\na line\nnote: something\n");
}

TEST_F(ConsoleTest, QuietPrintsWarningsOnly) {
  Pipe pipe;
  Console console(Console::Mode::quiet, pipe.descriptor());
  testing::internal::CaptureStderr();
  console.line("a line");
  console.heading("plan");
  console.warning("careful");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "warning: careful\n");
  EXPECT_EQ(pipe.rest(), "");
}

TEST_F(ConsoleTest, ATerminalRedrawsItsProgressBelowTheLines) {
  Terminal terminal(200);
  if (!terminal.is_open()) GTEST_SKIP() << "no pseudo terminal here";
  Console console(Console::Mode::automatic, terminal.descriptor());
  ASSERT_TRUE(console.is_terminal());
  EXPECT_EQ(console.width(), 200);
  console.progress(progress_at(300));
  EXPECT_EQ(terminal.shown(), "\r\x1b[2K" + to_text(progress_at(300)));
  console.line("snapshot saved");
  EXPECT_EQ(terminal.shown(), "\r\x1b[2Ksnapshot saved\r\n" + to_text(progress_at(300)));
  for (int i = 0; i < 100; ++i) console.progress(progress_at(301));
  EXPECT_LT(terminal.shown().size(), 60 * to_text(progress_at(301)).size()) << "redrawn ten times a second at most";
  console.end_progress();
  EXPECT_EQ(terminal.shown(), "\r\x1b[2K");
  console.line("done");
  EXPECT_EQ(terminal.shown(), "done\r\n");
  console.heading("plan");
  EXPECT_EQ(terminal.shown(), "\x1b[1mplan\x1b[0m\r\n");
}

TEST_F(ConsoleTest, ANarrowTerminalNeverWraps) {
  Terminal terminal(40);
  if (!terminal.is_open()) GTEST_SKIP() << "no pseudo terminal here";
  Console console(Console::Mode::automatic, terminal.descriptor());
  console.progress(progress_at(300));
  EXPECT_EQ(terminal.shown(), "\r\x1b[2Kstep 300/800  epoch 2  loss 2.3170");
  console.end_progress();
  Terminal tiny(6);
  Console small(Console::Mode::automatic, tiny.descriptor());
  small.progress(progress_at(300));
  EXPECT_EQ(tiny.shown(), "\r\x1b[2Kstep ");
}

TEST_F(ConsoleTest, NoColorAndDumbTerminalsAreRespected) {
  Terminal terminal(80);
  if (!terminal.is_open()) GTEST_SKIP() << "no pseudo terminal here";
  ::setenv("NO_COLOR", "1", 1);
  {
    Console console(Console::Mode::automatic, terminal.descriptor());
    console.heading("plan");
    console.progress(progress_at(1));
  }
  EXPECT_THAT(terminal.shown(), AllOf(StartsWith("plan\r\n\r\x1b[2Kstep   1"), EndsWith("\r\x1b[2K"), Not(HasSubstr("\x1b[1m"))));
  ::setenv("TERM", "dumb", 1);
  {
    Console console(Console::Mode::automatic, terminal.descriptor());
    EXPECT_FALSE(console.is_terminal());
    console.progress(progress_at(1));
  }
  EXPECT_EQ(terminal.shown(), "");
}

TEST_F(ConsoleTest, AClosedOutputIsNoError) {
  Console console(Console::Mode::automatic, -1);
  console.line("nobody reads this");
  console.progress(progress_at(1));
}

}  // namespace
}  // namespace millrace::telemetry
