// Runs work that may never return, such as a message to a machine whose link is broken.
#pragma once

#include <chrono>
#include <future>
#include <optional>
#include <thread>
#include <utility>

namespace millrace::distributed {

// Runs `work` in a separate thread. If the caller does not wait for the future, the thread continues, so the data to which
// `work` refers must live as long as the thread. The future throws the exceptions of `work`.
template <class Work>
auto in_background(Work work) {
  std::packaged_task<decltype(work())()> task(std::move(work));
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  return result;
}

// The result of `work`; nullopt if it took longer than `seconds`. Throws the exceptions of `work`.
template <class Work>
auto within(double seconds, Work work) -> std::optional<decltype(work())> {
  auto result = in_background(std::move(work));
  if (result.wait_for(std::chrono::duration<double>(seconds)) != std::future_status::ready) return std::nullopt;
  return result.get();
}

}  // namespace millrace::distributed
