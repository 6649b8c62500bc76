#include "millrace/telemetry/run_log.h"

#include <mutex>
#include <utility>

#include "millrace/base/clock.h"
#include "millrace/format/log_file.h"

namespace millrace::telemetry {

namespace {

constexpr std::uint64_t kRoom = 16U << 10U;  // enough for an "end" line with the text of an error

}  // namespace

struct RunLog::Impl {
  Impl(Fs& fs, const std::filesystem::path& path, std::function<void(const std::string&)> warn)
      : file(fs, path, std::move(warn), kRoom) {}
  std::mutex mutex;  // guards `file`
  format::LogFile file;
  double begin = steady_seconds();
};

RunLog::RunLog(Fs& fs, const std::filesystem::path& file, std::function<void(const std::string&)> warn)
    : impl_(std::make_unique<Impl>(fs, file, std::move(warn))) {}

RunLog::~RunLog() = default;

void RunLog::write(std::string_view kind, Json values) {
  if (!values.is_object()) values = Json{{"value", std::move(values)}};
  values["kind"] = kind;
  const std::lock_guard lock(impl_->mutex);
  values["time"] = steady_seconds() - impl_->begin;
  const std::string line = values.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (kind == "end")
    impl_->file.write_last_line(line);
  else
    impl_->file.write_line(line);
}

}  // namespace millrace::telemetry
