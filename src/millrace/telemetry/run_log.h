// What a run writes while it runs: log.jsonl, TensorBoard events, lines for people. A log that can't be written never stops
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

// One JSON object a line, appended and flushed per line. "kind" is the line's kind: start, step, validation, epoch, snapshot,
// loader, memory, precision, warning, end. "time" (seconds since this RunLog was made) is added automatically. Thread-safe. After
// a resume new lines are appended; a line cut by a crash is first completed by a newline. If the file system can reserve space,
// 16 kB are kept for the "end" line, so that it can be written even when the disk is full.
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
// package reads them. One file per process: events.out.tfevents.<unix seconds>.<host>.<pid>. Events are kept until flush(), the
// destructor or 64 kB; after a failed write they continue in a new file, since readers stop at a torn record. Thread-safe.
class EventWriter {
 public:
  EventWriter(Fs& fs, const std::filesystem::path& folder, std::function<void(const std::string&)> warn);
  ~EventWriter();
  // Marks a resumed run whose first repeated step is `step`: readers drop events from that step on in older files of the folder.
  void goes_on_at(std::int64_t step);
  void scalar(std::string_view tag, std::int64_t step, double value);
  void text(std::string_view tag, std::int64_t step, std::string_view value);
  void image(std::string_view tag, std::int64_t step, std::int64_t height, std::int64_t width, std::string_view rgb_png);
  void flush();
  [[nodiscard]] std::string file_name() const;  // inside the folder; after a failure "<file name>.<n>"

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

// Lines on a terminal are redrawn in place between log lines; elsewhere only plain lines are written. NO_COLOR is respected. All
// output of a run goes through one Console, so that lines and the progress line do not mix. Thread-safe. Output that fails (a
// closed pipe, a full disk) is dropped and sets has_failed(). automatic: progress, colours and redrawing on a terminal; plain:
// never; quiet: warnings only.
class Console {
 public:
  enum class Mode : std::uint8_t { automatic, plain, quiet };
  explicit Console(Mode mode = Mode::automatic, int file_descriptor = 1);
  ~Console();
  void line(std::string_view text);     // one or several finished lines
  void heading(std::string_view text);  // bold on a terminal
  void notice(std::string_view text);
  void warning(std::string_view text);      // to stderr, yellow on a terminal
  void progress(const Progress& progress);  // redraws at most ~10 times a second; does nothing if not on a terminal
  void end_progress();
  [[nodiscard]] bool has_failed() const;  // whether lines were lost; warnings, on stderr, don't count
  [[nodiscard]] bool is_terminal() const noexcept;
  [[nodiscard]] int width() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Joins the parts of a long line, two spaces apart, wrapped to the terminal's width or, elsewhere, to 100 columns.
[[nodiscard]] std::string in_lines(const Console& console, const std::vector<std::string>& parts);

// The log line: "step  300/800  epoch 2  loss 2.3170  lr 1e-03  18.4k tokens/s  wait 1 %  ETA 42 s".
[[nodiscard]] std::string to_text(const Progress& progress);

}  // namespace millrace::telemetry
