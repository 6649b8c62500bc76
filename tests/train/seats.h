// Ranks as threads of one process, for tests of their agreement.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "millrace/core/agreement.h"

namespace millrace::toys {

// Meeting point of the threads: each leaves a value, all read all values.
class Table {
 public:
  explicit Table(int seats) : places_(static_cast<std::size_t>(seats)) {}

  template <class T>
  std::vector<T> exchange(int seat, T mine) {
    put(seat, &mine);
    std::vector<T> all;
    for (const void* place : places_) all.push_back(*static_cast<const T*>(place));
    wait();
    return all;
  }

 private:
  void put(int seat, const void* what) {
    places_[static_cast<std::size_t>(seat)] = what;
    wait();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    const std::size_t round = round_;
    if (++here_ == places_.size()) {
      here_ = 0;
      ++round_;
      all_here_.notify_all();
    } else {
      all_here_.wait(lock, [&] { return round_ != round; });
    }
  }
  std::vector<const void*> places_;
  std::mutex mutex_;
  std::condition_variable all_here_;
  std::size_t here_ = 0, round_ = 0;
};

class Seat final : public Agreement {
 public:
  Seat(Table& table, int rank, int world) : table_(table), ranks_{rank, rank, world} {}
  [[nodiscard]] Ranks ranks() const override { return ranks_; }
  [[nodiscard]] std::vector<Json> gather(Json mine) override { return table_.exchange(ranks_.rank, std::move(mine)); }
  void sum(std::vector<at::Tensor>& values) override {
    std::vector<at::Tensor> mine;
    for (const at::Tensor& value : values) mine.push_back(value.clone());
    const auto all = table_.exchange(ranks_.rank, std::move(mine));
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < values.size(); ++i) {
      at::Tensor total = all[0][i].clone();
      for (std::size_t rank = 1; rank < all.size(); ++rank) total += all[rank][i];
      values[i].copy_(total);
    }
  }

 private:
  Table& table_;
  Ranks ranks_;
};

// A process on whose GPU a sum was, or was not, cut short when a rank was lost.
class HalfASum final : public Agreement {
 public:
  explicit HalfASum(bool has) : has_(has) {}
  [[nodiscard]] Ranks ranks() const override { return {}; }
  [[nodiscard]] std::vector<Json> gather(Json mine) override { return {std::move(mine)}; }
  void sum(std::vector<at::Tensor>&) override {}
  [[nodiscard]] bool has_cut_sums() const noexcept override { return has_; }

 private:
  bool has_;
};

// Runs `body(agreement)` on `world` ranks and returns their results by rank. An exception on any rank is rethrown here.
template <class Body>
auto on_ranks(int world, Body body) {
  Table table(world);
  std::vector<decltype(body(std::declval<Agreement&>()))> results(static_cast<std::size_t>(world));
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      Seat seat(table, rank, world);
      try {
        results[static_cast<std::size_t>(rank)] = body(seat);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return results;
}

}  // namespace millrace::toys
