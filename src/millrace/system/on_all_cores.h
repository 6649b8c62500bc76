// Runs independent tasks on separate threads. It is for work that is done once, such as making sample data. A step's work runs
// on LibTorch's threads instead.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace millrace {

// Runs task(i) for 0 <= i < count on all cores. A task's work must depend only on i. If a task throws, its exception is thrown
// when all tasks have ended.
template <class Task>
void on_all_cores(std::int64_t count, const Task& task) {
  std::atomic<std::int64_t> next{0};
  std::exception_ptr failure;
  std::mutex mutex;
  const auto work = [&] {
    try {
      for (std::int64_t i = next++; i < count; i = next++) task(i);
    } catch (...) {
      const std::scoped_lock lock(mutex);
      failure = std::current_exception();
    }
  };
  std::vector<std::thread> helpers;
  const auto cores = static_cast<std::int64_t>(std::thread::hardware_concurrency());
  for (std::int64_t i = 1; i < std::min(cores, count); ++i) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace millrace
