// The machinery of the loader, without the data. A batch has a number and consists of tickets, which are its units of work.
// Reader threads work on the tickets in a ring of slots, which hold the batches; the batches are delivered in order. The engine
// is a template over the work, so that tests can use integers.
//
// Work provides
//   using Slot = ...;                                        what a batch is made in
//   std::unique_ptr<Slot> make_slot();                       consumer's thread; may throw
//   std::uint64_t tickets() const noexcept;                  number of tickets of every batch, at least 1
//   void begin(Slot&, std::uint64_t batch) noexcept;         any thread; before the batch's first ticket
//   void run(Slot&, std::uint64_t batch, std::uint64_t ticket, int reader) noexcept;   errors are kept in the slot
//   void starved(std::size_t lent);                          consumer's thread, before a slot beyond the limit; may throw
//   void stalled(std::uint64_t batch, double seconds);       consumer's thread, when it has waited `seconds` for a batch
#pragma once

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "millrace/data/loader/detail/thread_usage.h"
#include "millrace/system/crash.h"
#include "millrace/system/process_limits.h"
#include "millrace/system/signals.h"

namespace millrace::data::detail {

struct EngineOptions {
  int readers = 0;                                    // 0: next() runs the tickets itself, in the calling thread
  std::size_t ahead = 2;                              // number of batches that are prepared ahead of the consumer
  std::size_t max_ahead = 0;                          // the largest `ahead` for set_stages(); below `ahead` it counts as `ahead`
  std::size_t slots = 4;                              // the largest number of slots, unless the consumer holds all of them
  std::chrono::milliseconds first_stall{10'000};      // Work::stalled is called after this wait, then after twice the wait, ...
  std::chrono::milliseconds shutdown_patience{1000};  // stop() abandons a reader that is inside a ticket for longer than this
};

// All calls belong to one thread, the consumer's. A slot that was lent to the consumer may be destroyed on any thread, even after
// the engine.
template <class Work>
class Engine {
 public:
  using Slot = typename Work::Slot;

  Engine(std::shared_ptr<Work> work, EngineOptions options, std::uint64_t first_batch = 0)
      : state_(std::make_shared<State>(std::move(work), options)) {
    start_readers(options.readers);
    try {
      restart(first_batch);
    } catch (...) {
      stop();
      throw;
    }
  }
  ~Engine() { stop(); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] int readers() const noexcept { return std::min(state_->active.load(), static_cast<int>(threads_.size())); }
  [[nodiscard]] ThreadUsage usage() const { return usage_of(threads_, state_->thread_ids()); }  // summed over the readers
  [[nodiscard]] std::size_t slots() const {
    const std::lock_guard lock(state_->mutex);
    return state_->made;
  }
  [[nodiscard]] std::size_t lent() const {
    const std::lock_guard lock(state_->mutex);
    return state_->lent;
  }
  // Returns the number of the batch that next() will return.
  [[nodiscard]] std::uint64_t position() const noexcept { return position_; }

  // Returns the next batch. Its slot returns to the engine when the pointer is destroyed.
  std::shared_ptr<Slot> next() {
    std::unique_ptr<Slot> slot = threads_.empty() ? make_here() : take_ready();
    ++position_;
    {
      const std::lock_guard lock(state_->mutex);
      ++state_->lent;
      state_->position = position_;
      if (state_->run) assign(*state_, *state_->run);
    }
    return {slot.release(), [state = state_](Slot* back) noexcept { give_back(*state, std::unique_ptr<Slot>(back)); }};
  }

  // Waits until next() would return at once, but no longer than `most`. Returns false if next() would still have to wait.
  // Without readers returns true immediately, because next() then runs the tickets itself.
  bool wait(std::chrono::milliseconds most) {
    if (threads_.empty()) return true;
    const std::shared_ptr<Run> run = state_->run;
    ensure_slot(*run);
    return await(run->cells[position_ % run->cells.size()], Clock::now() + most);
  }

  // Changes the number of readers from now on. More readers are started if needed; surplus readers sleep after their current
  // ticket. `readers` must be at least 1 if the engine has had a reader before.
  void set_readers(int readers) {
    const bool first = threads_.empty();
    start_readers(readers);
    const std::lock_guard lock(state_->mutex);
    state_->readers_wake.notify_all();
    state_->parked_wake.notify_all();
    if (first && !threads_.empty()) begin_run(position_);
  }
  // Sets the number of batches ahead, at most EngineOptions::max_ahead, and the largest number of slots. Surplus slots are freed
  // when they return to the engine.
  void set_stages(std::size_t ahead, std::size_t slots) {
    const std::lock_guard lock(state_->mutex);
    state_->ahead = std::min(ahead, state_->cells);
    state_->slots = slots;
  }

  // Discards prepared batches; next() then returns batch `first_batch`. Does not wait for tickets that are being worked on.
  void restart(std::uint64_t first_batch) {
    position_ = first_batch;
    asked_.reset();
    if (threads_.empty()) return;
    {
      const std::lock_guard lock(state_->mutex);
      begin_run(first_batch);
    }
    make_slots(*state_->run);  // no lock is needed, because only this thread replaces the run
  }

  // Ends the readers. Returns false if a reader did not finish its ticket in time. Such a reader is abandoned, and frees what it
  // holds when the ticket ends.
  bool stop() noexcept {
    std::vector<std::unique_ptr<Slot>> freed;
    std::unique_lock lock(state_->mutex);
    state_->stopping = true;
    if (state_->run) close(*state_, *state_->run);
    freed.swap(state_->free);
    state_->made -= freed.size();
    state_->readers_wake.notify_all();
    state_->parked_wake.notify_all();
    const int started = threads_.empty() ? state_->exited : static_cast<int>(threads_.size());
    const bool all =
        state_->exited_wake.wait_for(lock, state_->options.shutdown_patience, [&] { return state_->exited == started; });
    lock.unlock();
    for (std::thread& thread : threads_) all ? thread.join() : thread.detach();
    threads_.clear();
    return all;
  }

 private:
  using Clock = std::chrono::steady_clock;

  // The place in which a batch is made. The cells are a ring: batch b is in cell b % cells.
  struct Cell {
    // Set while the batch is being made. Protected by State::mutex. A reader that is counted in `users` may use the slot without
    // the mutex while the run is open.
    std::unique_ptr<Slot> slot;
    std::atomic<std::uint64_t> remaining{0};  // tickets that are not done
    std::atomic<int> users{0};                // readers that work on a ticket of this cell
  };

  // A series of consecutive batches; restart() closes the run and begins another one. A reader shares ownership of the run on
  // which it works.
  struct Run {
    Run(std::uint64_t first_batch, std::size_t ahead) : first(first_batch), assigned(first_batch), cells(ahead) {}
    const std::uint64_t first;
    std::uint64_t assigned;                      // number of the first batch without a slot; protected by State::mutex
    std::atomic<std::uint64_t> next_ticket{0};   // number of the next ticket to take, counted from batch `first`
    std::atomic<std::uint64_t> ticket_limit{0};  // number of tickets in the batches that have a slot
    std::atomic<bool> closed{false};
    int readers = 0;  // protected by State::mutex
    std::vector<Cell> cells;
  };

  // The state that readers and lent slots share, so it lives until the last of them is destroyed.
  struct State {
    State(std::shared_ptr<Work> w, EngineOptions o)
        : work(std::move(w)),
          options(o),
          tickets(work->tickets()),
          cells(std::max(o.ahead, o.max_ahead)),
          ahead(o.ahead),
          slots(o.slots) {}
    std::vector<int> thread_ids() {
      const std::lock_guard lock(mutex);
      return ids;
    }
    const std::shared_ptr<Work> work;
    const EngineOptions options;
    const std::uint64_t tickets;
    const std::size_t cells;
    std::mutex mutex;
    std::condition_variable readers_wake;   // notified of new tickets, of a new run, or of stop()
    std::condition_variable parked_wake;    // notified if more readers may work, or of stop()
    std::condition_variable consumer_wake;  // notified if a batch is done or a slot has returned
    std::condition_variable exited_wake;
    std::atomic<int> active{0};  // readers whose number is below this may take tickets
    // The mutex protects the members from here on.
    std::size_t ahead;
    std::size_t slots;
    std::vector<int> ids;  // the system's thread id of each reader
    std::vector<std::unique_ptr<Slot>> free;
    std::shared_ptr<Run> run;
    std::uint64_t position = 0;
    std::size_t made = 0;     // number of slots that exist
    std::size_t lent = 0;     // number of slots that the consumer holds
    std::size_t zombies = 0;  // number of slots that readers of closed runs still use
    int idle = 0;             // number of readers that sleep
    int exited = 0;
    bool stopping = false;
  };

  // Spins for a bounded time before a thread sleeps, because a hand-over takes well under a microsecond if the other thread is
  // running, but several microseconds if it sleeps.
  template <class Ready>
  static bool spin_until(const Ready& ready) {
    static const bool alone = std::thread::hardware_concurrency() < 2;
    if (alone) return ready();
    const auto end = Clock::now() + std::chrono::microseconds(2);
    do {
      for (int i = 0; i < 16; ++i) {
        if (ready()) return true;
      }
    } while (Clock::now() < end);
    return ready();
  }

  // Gives free slots to the next batches in order. Called with the mutex locked.
  static void assign(State& state, Run& run) noexcept {
    while (!state.free.empty() && run.assigned < state.position + state.ahead) {
      Cell& cell = run.cells[run.assigned % run.cells.size()];
      cell.slot = std::move(state.free.back());
      state.free.pop_back();
      state.work->begin(*cell.slot, run.assigned);
      cell.remaining.store(state.tickets, std::memory_order_relaxed);
      ++run.assigned;
      run.ticket_limit.store((run.assigned - run.first) * state.tickets, std::memory_order_release);
      const auto wake = std::min<std::uint64_t>(state.tickets, static_cast<std::uint64_t>(state.idle));
      for (std::uint64_t i = 0; i < wake; ++i) state.readers_wake.notify_one();
    }
  }

  // Takes a slot back. Frees the slot if there are more slots than the limit allows. Called with the mutex locked.
  static void put_back(State& state, std::unique_ptr<Slot> slot) noexcept {
    if (state.stopping || state.made > state.slots) {
      slot.reset();
      --state.made;
    } else {
      state.free.push_back(std::move(slot));  // can't throw, because add_slot() reserved the room
    }
    if (state.run) assign(state, *state.run);
    state.consumer_wake.notify_one();
  }

  static void give_back(State& state, std::unique_ptr<Slot> slot) noexcept {
    const std::lock_guard lock(state.mutex);
    --state.lent;
    put_back(state, std::move(slot));
  }

  // Closes a run. Called with the mutex locked. A reader either sees `closed` before it touches a slot, or it is counted in
  // `users`, which this function sees.
  static void close(State& state, Run& run) noexcept {
    run.closed.store(true);
    for (Cell& cell : run.cells) {
      if (!cell.slot) continue;
      if (cell.users.load() == 0) {
        state.free.push_back(std::move(cell.slot));
      } else {
        ++state.zombies;
      }
    }
    state.run.reset();
  }

  // Called with the mutex locked when a reader leaves a run. The last reader of a closed run returns the slots that close() could
  // not take.
  static void leave(State& state, Run& run) noexcept {
    if (--run.readers > 0) return;
    if (!run.closed.load()) return;
    for (Cell& cell : run.cells) {
      if (!cell.slot) continue;
      --state.zombies;
      put_back(state, std::move(cell.slot));
    }
  }

  static bool claim(Run& run, std::uint64_t& ticket) noexcept {
    ticket = run.next_ticket.load(std::memory_order_relaxed);
    while (ticket < run.ticket_limit.load(std::memory_order_acquire)) {
      if (run.next_ticket.compare_exchange_weak(ticket, ticket + 1, std::memory_order_relaxed)) return true;
    }
    return false;
  }

  // Waits for tickets. Returns false if the run was closed, the engine stops, or this reader is surplus.
  static bool wait_for_tickets(State& state, Run& run, int reader) {
    const auto there = [&run, &state, reader] {
      return run.closed.load(std::memory_order_relaxed) || reader >= state.active.load(std::memory_order_relaxed) ||
             run.next_ticket.load(std::memory_order_relaxed) < run.ticket_limit.load(std::memory_order_relaxed);
    };
    if (!spin_until(there)) {
      std::unique_lock lock(state.mutex);
      ++state.idle;
      state.readers_wake.wait(lock, there);
      --state.idle;
    }
    return !run.closed.load() && reader < state.active.load();
  }

  static void work_on(State& state, Run& run, int reader) {
    std::uint64_t ticket = 0;
    for (;;) {
      if (reader >= state.active.load(std::memory_order_relaxed)) return;
      if (!claim(run, ticket)) {
        if (wait_for_tickets(state, run, reader)) continue;
        return;
      }
      const std::uint64_t batch = run.first + ticket / state.tickets;
      Cell& cell = run.cells[batch % run.cells.size()];
      ++cell.users;
      if (run.closed.load()) {
        --cell.users;
        return;
      }
      state.work->run(*cell.slot, batch, ticket % state.tickets, reader);
      if (cell.remaining.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        const std::lock_guard lock(state.mutex);
        state.consumer_wake.notify_one();
      }
      --cell.users;
    }
  }

  static void serve(const std::shared_ptr<State>& state, int reader) {
    block_signals_in_this_thread();
    const CrashStack crash_stack;
    yield_to_the_step();
    std::unique_lock lock(state->mutex);
    state->ids[static_cast<std::size_t>(reader)] = this_thread_id();
    for (;;) {
      const auto parked = [&] { return reader >= state->active.load(); };
      state->parked_wake.wait(lock, [&] { return state->stopping || !parked(); });
      state->readers_wake.wait(lock, [&] { return state->stopping || parked() || (state->run && !state->run->closed.load()); });
      if (state->stopping) break;
      if (parked()) continue;
      const std::shared_ptr<Run> run = state->run;
      ++run->readers;
      lock.unlock();
      work_on(*state, *run, reader);
      lock.lock();
      leave(*state, *run);
    }
    ++state->exited;
    state->exited_wake.notify_all();
  }

  void start_readers(int readers) {
    state_->active = readers;
    for (int reader = static_cast<int>(threads_.size()); reader < readers; ++reader) {
      if (!may_map(thread_stack_bytes())) return;  // a limit on address space has the same effect as a limit on threads
      {
        const std::lock_guard lock(state_->mutex);
        state_->ids.resize(static_cast<std::size_t>(reader) + 1);
      }
      try {
        threads_.emplace_back([state = state_, reader] {
          ::pthread_setname_np(::pthread_self(), ("mr-reader-" + std::to_string(reader)).c_str());
          serve(state, reader);
        });
      } catch (const std::system_error&) {
        return;  // if the system allows no more threads, the engine continues with the readers that have started
      }
    }
  }

  // Closes the current run, begins another one and wakes the readers. Called with the mutex locked.
  void begin_run(std::uint64_t first_batch) {
    if (state_->run) close(*state_, *state_->run);
    state_->run = std::make_shared<Run>(first_batch, state_->cells);
    state_->position = first_batch;
    state_->readers_wake.notify_all();
  }

  std::unique_ptr<Slot> add_slot() {
    std::unique_ptr<Slot> slot = state_->work->make_slot();
    const std::lock_guard lock(state_->mutex);
    state_->free.reserve(state_->made + 1);
    ++state_->made;
    return slot;
  }

  std::unique_ptr<Slot> make_here() {
    std::unique_ptr<Slot> slot;
    std::size_t made = 0;
    {
      const std::lock_guard lock(state_->mutex);
      made = state_->made;
      if (!state_->free.empty()) {
        slot = std::move(state_->free.back());
        state_->free.pop_back();
      }
    }
    if (!slot) {
      if (made >= state_->slots) state_->work->starved(made);
      slot = add_slot();
    }
    Work& work = *state_->work;
    work.begin(*slot, position_);
    for (std::uint64_t ticket = 0; ticket < state_->tickets; ++ticket) work.run(*slot, position_, ticket, -1);
    return slot;
  }

  // Makes missing slots. Only the consumer's thread calls this, because only that thread may throw.
  void make_slots(Run& run) {
    for (;;) {
      {
        const std::lock_guard lock(state_->mutex);
        assign(*state_, run);
        if (run.assigned >= position_ + state_->ahead || state_->made >= state_->slots) return;
      }
      std::unique_ptr<Slot> slot = add_slot();
      const std::lock_guard lock(state_->mutex);
      put_back(*state_, std::move(slot));
    }
  }

  // Makes sure that batch position_ has a slot. First waits briefly for slots that readers of a closed run still use. If the
  // consumer holds all slots, makes one more, because waiting would never end.
  void ensure_slot(Run& run) {
    make_slots(run);
    {
      std::unique_lock lock(state_->mutex);
      const auto assigned = [&] { return run.assigned > position_; };
      if (!assigned() && state_->zombies > 0) {
        state_->consumer_wake.wait_for(lock, std::chrono::milliseconds(200), [&] { return assigned() || state_->zombies == 0; });
      }
      if (assigned()) return;
      const std::size_t lent = state_->lent;
      const bool kept_by_consumer = state_->zombies == 0;
      lock.unlock();
      if (kept_by_consumer) state_->work->starved(lent);
    }
    std::unique_ptr<Slot> slot = add_slot();
    const std::lock_guard lock(state_->mutex);
    state_->free.push_back(std::move(slot));
    assign(*state_, run);
  }

  // Waits until `end` for batch position_, which is in `cell`. Reports a stall after first_stall, then after twice that time,
  // and so on. The time counts across calls, because the wait may take several calls.
  bool await(const Cell& cell, typename Clock::time_point end) {
    const auto done = [&cell] { return cell.remaining.load(std::memory_order_acquire) == 0; };
    if (spin_until(done)) return true;
    if (!asked_) {
      asked_ = Clock::now();
      patience_ = state_->options.first_stall;
    }
    std::unique_lock lock(state_->mutex);
    while (!state_->consumer_wake.wait_until(lock, std::min(end, *asked_ + patience_), done)) {
      const auto now = Clock::now();
      if (now >= *asked_ + patience_) {
        lock.unlock();
        state_->work->stalled(position_, std::chrono::duration<double>(now - *asked_).count());
        patience_ *= 2;
        lock.lock();
      }
      if (now >= end) return false;
    }
    return true;
  }

  std::unique_ptr<Slot> take_ready() {
    const std::shared_ptr<Run> run = state_->run;  // no lock is needed, because only this thread replaces the run
    ensure_slot(*run);
    Cell& cell = run->cells[position_ % run->cells.size()];
    await(cell, Clock::time_point::max());
    asked_.reset();
    const std::lock_guard lock(state_->mutex);
    return std::move(cell.slot);
  }

  std::shared_ptr<State> state_;
  std::vector<std::thread> threads_;
  std::uint64_t position_ = 0;
  std::optional<typename Clock::time_point> asked_;  // when the wait for batch position_ began
  std::chrono::milliseconds patience_{0};            // the next stall is reported this long after asked_
};

}  // namespace millrace::data::detail
