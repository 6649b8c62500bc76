// What a run writes while it goes: log.jsonl, TensorBoard events, lines for people. A log that can't be written never stops
// training: the first failure is reported once, later ones are counted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/fs.h"
#include "millrace/base/json.h"

namespace millrace::telemetry {

// One JSON object a line, appended and flushed per line. "kind" says what it is: start, step, validation, epoch, snapshot,
// loader, memory, precision, warning, end. Adds "time" (seconds since this RunLog was made) itself. Thread-safe. After a resume
// new lines are appended; a line cut by a crash is completed with a newline first. Lines leave 16 kB of the disk to "end", where
// the file system can keep them: it is written on a disk that is full.
class RunLog {
 public:
  RunLog(Fs& fs, const std::filesystem::path& file, std::function<void(const std::string&)> warn);
  ~RunLog();
  void write(std::string_view kind, Json values);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// TensorBoard scalar and text events (TFRecord framing with masked CRC32C, protobuf encoded by hand): the real `tensorboard`
// package reads them. One file per process: events.out.tfevents.<unix seconds>.<host>.<pid>. Events are kept until flush(),
// the destructor or 64 kB; after a failed write they go on in a new file, since readers stop at a torn record. Thread-safe.
class EventWriter {
 public:
  EventWriter(Fs& fs, const std::filesystem::path& folder, std::function<void(const std::string&)> warn);
  ~EventWriter();
  // The run goes on, and `step` is the first that is made anew: readers drop what older files of the folder say from there on.
  void goes_on_at(std::int64_t step);
  void scalar(std::string_view tag, std::int64_t step, double value);
  void text(std::string_view tag, std::int64_t step, std::string_view value);
  void image(std::string_view tag, std::int64_t step, std::int64_t height, std::int64_t width, std::string_view rgb_png);
  void flush();
  [[nodiscard]] std::string file_name() const;  // in the folder; after a failure "<file name>.<n>"

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// What the progress line shows.
struct Progress {
  std::int64_t step = 0;
  std::int64_t total_steps = 0;
  std::uint64_t epoch = 0;
  double loss = 0;
  double rate = 0;        // units per second
  std::string rate_unit;  // "tokens/s", "samples/s"
  double data_wait_share = 0;
  std::optional<double> eta_seconds;
  std::string extra;  // e.g. memory
  std::optional<double> learning_rate;
};

// Lines on a terminal are redrawn in place between log lines; elsewhere plain lines only. NO_COLOR is respected. All output of
// a run goes through one Console, so that lines and the progress line do not mix. Thread-safe. Output that fails (a closed
// pipe, a full disk) is dropped, and has_failed() says so. automatic: a terminal gets progress, colours and redrawing; plain:
// never; quiet: warnings only.
class Console {
 public:
  enum class Mode : std::uint8_t { automatic, plain, quiet };
  explicit Console(Mode mode = Mode::automatic, int file_descriptor = 1);
  ~Console();
  void line(std::string_view text);     // one finished line (or several)
  void heading(std::string_view text);  // bold on a terminal
  void notice(std::string_view text);
  void warning(std::string_view text);      // to stderr, yellow on a terminal
  void progress(const Progress& progress);  // redraws; at most ~10 a second; nothing when not a terminal
  void end_progress();
  [[nodiscard]] bool has_failed() const;  // lines were lost; warnings, on stderr, don't count
  [[nodiscard]] bool is_terminal() const noexcept;
  [[nodiscard]] int width() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Parts of a line that may be long, two spaces apart, wrapped to the terminal or, elsewhere, to 100 columns.
[[nodiscard]] std::string in_lines(const Console& console, const std::vector<std::string>& parts);

// The log line: "step  300/800  epoch 2  loss 2.3170  lr 1e-03  18.4k tokens/s  wait 1 %  ETA 42 s".
[[nodiscard]] std::string to_text(const Progress& progress);

}  // namespace millrace::telemetry
