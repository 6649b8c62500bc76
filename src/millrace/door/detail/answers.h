// Return values of the functions of libheadrace.so. Texts belong to the calling thread. Failures never leave the library as
// exceptions.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "millrace/base/error.h"
#include "millrace/base/json.h"

namespace millrace::door::detail {

[[nodiscard]] std::string text_of(const Json& json);  // returns the JSON's text; replaces bytes that are not UTF-8

// Returns `text` and keeps it until this thread's next call.
[[nodiscard]] const char* say(std::string text);

// Keeps a failure of this thread for headrace_error().
void keep_failure(std::string_view kind, const Message& message);
void keep_failure(const ConfigError& error);  // the problems of `error` become one message, with a line for each problem

// Returns this thread's latest failure as JSON; "" if there was no failure.
[[nodiscard]] const std::string& failure();

// Calls `work`. If it throws, keeps the failure and returns `otherwise`.
template <class Work, class Result>
Result guarded(Result otherwise, Work work) noexcept {
  try {
    return work();
  } catch (const ConfigError& error) {
    keep_failure(error);
  } catch (const Error& error) {
    keep_failure(error.kind(), error.message());
  } catch (const std::bad_alloc&) {
    keep_failure("MemoryError", {"out of memory", "", "lower the batch size or max_buffer_bytes, or free memory"});
  } catch (const std::exception& error) {
    keep_failure("InternalError", {error.what(), "libheadrace.so", "report it, and say how it happened"});
  }
  return otherwise;
}

}  // namespace millrace::door::detail
