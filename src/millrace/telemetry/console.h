// The lines that a program prints while it works, and its line of progress.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::telemetry {

// Prints a run's lines and its progress line. All output of a run goes through one Console, so that the two do not mix. On a
// terminal the progress line is redrawn in place between log lines; elsewhere only plain lines are written. NO_COLOR is
// respected. Output that fails (a closed pipe, a full disk) is dropped and sets has_failed(). Thread-safe. Modes: automatic =
// progress, colours and redrawing on a terminal; plain = none of these; quiet = warnings only.
class Console {
 public:
  // The content of the progress line.
  struct Progress {
    std::int64_t step = 0;
    std::int64_t total_steps = 0;
    std::uint64_t epoch = 0;
    double loss = 0;
    double rate = 0;        // units per second
    std::string rate_unit;  // "tokens/s", "samples/s"
    double data_wait_share = 0;
    std::optional<double> eta_seconds;
    std::string extra;  // e.g. memory; before the first step only this is shown
    std::optional<double> learning_rate;
  };

  enum class Mode : std::uint8_t { automatic, plain, quiet };
  explicit Console(Mode mode = Mode::automatic, int file_descriptor = 1);
  ~Console();
  void line(std::string_view text);     // prints one or several finished lines
  void heading(std::string_view text);  // prints in bold on a terminal
  void notice(std::string_view text);
  void warning(std::string_view text);  // prints to stderr, yellow on a terminal
  // Shows the progress line. Redraws at most about 10 times a second; does nothing if the output is not a terminal.
  void progress(const Progress& progress);
  void end_progress();
  [[nodiscard]] bool has_failed() const;  // true: lines were lost; warnings, which go to stderr, don't count
  [[nodiscard]] bool is_terminal() const noexcept;
  [[nodiscard]] int width() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Joins the parts of a long line, two spaces apart, and wraps the line to the terminal's width. Without a terminal, wraps it to
// 100 columns.
[[nodiscard]] std::string in_lines(const Console& console, const std::vector<std::string>& parts);

// Returns the log line: "step  300/800  epoch 2  loss 2.3170  lr 0.001  18.4k tokens/s  wait 1 %  ETA 42 s".
[[nodiscard]] std::string to_text(const Console::Progress& progress);

}  // namespace millrace::telemetry
