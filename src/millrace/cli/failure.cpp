#include "millrace/cli/failure.h"

#include <c10/util/Exception.h>

#include <filesystem>
#include <new>
#include <string_view>

#include "millrace/base/error.h"
#include "millrace/base/fs.h"
#include "millrace/base/json.h"
#include "millrace/device/tensor_memory.h"

namespace millrace::cli {
namespace {

constexpr std::string_view kReport =
    "check the sizes in the config against the data (millrace config explain, millrace inspect); when they are right, this is a "
    "mistake in Millrace: report it with the command line and the run's log.jsonl";

Failure out_of_memory(const std::string& detail) {
  return {to_text("DeviceError", {"out of memory" + (detail.empty() ? "" : ": " + detail), "",
                                  "lower data.batch_size and raise optim.accumulate by the same factor (the result stays the "
                                  "same), use a smaller model, or free memory"}),
          1};
}

std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

}  // namespace

Failure describe(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    return {error.what(), error.exit_code()};
  } catch (const FsError& error) {
    return {to_text("FileError", {error.what(), error.path().string(),
                                  "check that the path exists, that you may use it, and that the disk is not full"}),
            1};
  } catch (const std::filesystem::filesystem_error& error) {
    return {to_text("FileError", {error.code().message(), error.path1().string(),
                                  "check that the path exists, that you may use it, and that the disk is not full"}),
            1};
  } catch (const std::bad_alloc&) {
    return out_of_memory("");
  } catch (const c10::Error& error) {
    const std::string text = first_line(error.what_without_backtrace());
    if (device::is_out_of_memory(error)) return out_of_memory(text);
    return {to_text("InternalError", {"LibTorch refused an operation: " + text, "", std::string(kReport)}), 1};
  } catch (const Json::exception& error) {
    return {to_text("InternalError", {error.what(), "a JSON value", std::string(kReport)}), 1};
  } catch (const std::exception& error) {
    return {to_text("InternalError", {first_line(error.what()), "", std::string(kReport)}), 1};
  } catch (...) {
    return {to_text("InternalError", {"an exception of unknown type", "", std::string(kReport)}), 1};
  }
}

}  // namespace millrace::cli
