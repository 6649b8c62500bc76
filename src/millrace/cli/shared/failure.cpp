#include "millrace/cli/shared/failure.h"

#include <c10/util/Exception.h>
#include <sys/resource.h>

#include <cerrno>
#include <filesystem>
#include <new>
#include <string_view>
#include <system_error>

#include "millrace/base/error.h"
#include "millrace/base/fs.h"
#include "millrace/base/json.h"
#include "millrace/device/errors.h"
#include "millrace/device/preflight.h"
#include "millrace/system/process_limits.h"

namespace millrace::cli {
namespace {

constexpr std::string_view kReportIt =
    "check the sizes in the config against the data (millrace config explain, millrace inspect); when they are right, this is a "
    "mistake in Millrace: report it with the command line and the run's log.jsonl";

std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

Failure out_of_memory(const std::string& detail) {
  const std::string raise = limit_of(RLIMIT_AS) || limit_of(RLIMIT_DATA) ? "raise the limit, " : "";
  return {to_text("DeviceError",
                  {"out of memory" + (detail.empty() ? "" : ": " + detail), device::memory_account(),
                   raise + "lower data.batch_size and raise optim.accumulate by the same factor (the result stays "
                           "the same), use a smaller model, fewer readers (--data.workers=1 --data.prefetch=1), or free memory"}),
          1};
}

Failure file_failure(const std::string& what, const std::filesystem::path& path, int error_number) {
  return {to_text("FileError", {what, path.string(), remedy_for(error_number)}), 1};
}

bool is_errno(const std::error_code& code) {
  return code.category() == std::generic_category() || code.category() == std::system_category();
}

// The failure for an error of std::thread, locks or clocks. The error number says what the system refused.
Failure system_failure(const std::system_error& error) {
  const std::error_code& code = error.code();
  if (is_errno(code) && code.value() == ENOMEM) return out_of_memory("");
  if (is_errno(code) && code.value() == EAGAIN) {
    return {to_text("DeviceError", {"no further thread could be made: " + code.message(), device::thread_account(),
                                    "raise the limit, end other programs, or use fewer threads (--device.threads=1 "
                                    "--data.workers=0)"}),
            1};
  }
  if (is_errno(code)) return file_failure(first_line(error.what()), {}, code.value());
  return {to_text("InternalError", {first_line(error.what()), "", std::string(kReportIt)}), 1};
}

}  // namespace

Failure describe(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    return {error.what(), error.exit_code()};
  } catch (const FsError& error) {
    return file_failure(error.what(), error.path(), error.error_number());
  } catch (const std::filesystem::filesystem_error& error) {
    return file_failure(error.code().message(), error.path1(), error.code().value());
  } catch (const std::system_error& error) {
    return system_failure(error);
  } catch (const std::bad_alloc&) {
    return out_of_memory("");
  } catch (const c10::Error& error) {
    const std::string text = first_line(error.what_without_backtrace());
    if (device::is_out_of_memory(error)) return out_of_memory(text);
    if (device::is_device_lost(error)) return {to_text("DeviceError", device::lost_device(error, "")), 1};
    return {to_text("InternalError", {"LibTorch refused an operation: " + text, "", std::string(kReportIt)}), 1};
  } catch (const Json::exception& error) {
    return {to_text("InternalError", {error.what(), "a JSON value", std::string(kReportIt)}), 1};
  } catch (const std::exception& error) {
    if (device::is_out_of_memory(error)) return out_of_memory(first_line(error.what()));
    return {to_text("InternalError", {first_line(error.what()), "", std::string(kReportIt)}), 1};
  } catch (...) {
    return {to_text("InternalError", {"an exception of unknown type", "", std::string(kReportIt)}), 1};
  }
}

}  // namespace millrace::cli
