// The files that a run writes while it runs: log.jsonl and TensorBoard events. Its lines for people are in console.h. A log that
// can't be written never stops training: the first failure is reported once, later failures are counted.
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
#include "millrace/telemetry/console.h"

namespace millrace::telemetry {

// Writes one JSON object per line, and flushes after each line. "kind" is the line's kind: start, step, validation, epoch,
// snapshot, loader, memory, precision, warning, end. "time" (seconds since this RunLog was made) is added automatically.
// Thread-safe. After a resume new lines are appended; a line cut by a crash is first completed by a newline. If the file system
// can reserve space, 16 kB are kept for the "end" line, so that it can be written even when the disk is full.
class RunLog {
 public:
  RunLog(Fs& fs, const std::filesystem::path& file, std::function<void(const std::string&)> warn);
  ~RunLog();
  void write(std::string_view kind, Json values);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Writes TensorBoard scalar and text events (TFRecord framing with masked CRC32C, protobuf encoded by hand), which the
// `tensorboard` package reads. One file per process: events.out.tfevents.<unix seconds>.<host>.<pid>. Events are kept in memory
// until flush(), the destructor, or until they take 64 kB. After a failed write they continue in a new file, because readers
// stop at a torn record. Thread-safe.
class EventWriter {
 public:
  EventWriter(Fs& fs, const std::filesystem::path& folder, std::function<void(const std::string&)> warn);
  ~EventWriter();
  // Marks a resumed run whose first repeated step is `step`. Readers then drop the events of the folder's older files from that
  // step on.
  void goes_on_at(std::int64_t step);
  void scalar(std::string_view tag, std::int64_t step, double value);
  void text(std::string_view tag, std::int64_t step, std::string_view value);
  void image(std::string_view tag, std::int64_t step, std::int64_t height, std::int64_t width, std::string_view rgb_png);
  void flush();
  [[nodiscard]] std::string file_name() const;  // name inside the folder; after a failure "<file name>.<n>"

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::telemetry
