// Work that may never come back, as a word to a machine whose link was cut.
#pragma once

#include <chrono>
#include <future>
#include <optional>
#include <thread>
#include <utility>

namespace millrace::distributed {

// Runs `work` in a thread of its own, which is left behind when it takes longer than that: what it refers to must live as long as
// it does. Its exceptions come out of the future.
template <class Work>
auto in_background(Work work) {
  std::packaged_task<decltype(work())()> task(std::move(work));
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  return result;
}

// What `work` returned, nullopt when that took longer than `seconds`. Throws what it threw.
template <class Work>
auto within(double seconds, Work work) -> std::optional<decltype(work())> {
  auto result = in_background(std::move(work));
  if (result.wait_for(std::chrono::duration<double>(seconds)) != std::future_status::ready) return std::nullopt;
  return result.get();
}

}  // namespace millrace::distributed
