// Runs work and afterwards a clean-up that may throw, as every operation on a GPU may. A destructor can't do this, because it
// must not throw.
#pragma once

#include <exception>
#include <type_traits>
#include <utility>

namespace millrace {

// Calls work() and then after(), even if work() throws. If both throw, the error of after() is dropped, because the first error
// is the one to report.
template <class Work, class After>
std::invoke_result_t<Work> finally(Work&& work, After&& after) {
  const auto guarded = [&]() -> std::invoke_result_t<Work> {
    try {
      return std::forward<Work>(work)();
    } catch (...) {
      try {
        after();
      } catch (const std::exception&) {  // this error is dropped, because it usually has the same cause as the first one
      }
      throw;
    }
  };
  if constexpr (std::is_void_v<std::invoke_result_t<Work>>) {
    guarded();
    after();
  } else {
    auto result = guarded();
    after();
    return result;
  }
}

}  // namespace millrace
