// Work with an end that must come, for what may fail where a destructor may not throw: on a GPU each operation.
#pragma once

#include <exception>
#include <type_traits>
#include <utility>

namespace millrace {

// work(), then after(); also when work() throws. What after() throws then is dropped: the first error is the one to tell.
template <class Work, class After>
std::invoke_result_t<Work> finally(Work&& work, After&& after) {
  const auto guarded = [&]() -> std::invoke_result_t<Work> {
    try {
      return std::forward<Work>(work)();
    } catch (...) {
      try {
        after();
      } catch (const std::exception&) {  // of the same cause, as a rule
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
