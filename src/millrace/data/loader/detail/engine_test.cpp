// Tests the engine with integers: a slot is a row of numbers, and a ticket writes one of them.
#include "millrace/data/loader/detail/engine.h"

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <numeric>
#include <vector>

#include "millrace/base/philox.h"

namespace millrace::data::detail {
namespace {

struct Numbers {
  std::vector<std::uint64_t> values;
};

class NumberWork {
 public:
  using Slot = Numbers;
  std::uint64_t per_batch = 5;
  std::function<void(std::uint64_t batch, std::uint64_t ticket)> before;  // called by run()
  std::atomic<int> made{0};
  std::atomic<int> starved_calls{0};
  std::atomic<int> stalled_calls{0};

  std::unique_ptr<Slot> make_slot() {
    ++made;
    return std::make_unique<Slot>(Slot{std::vector<std::uint64_t>(per_batch)});
  }
  [[nodiscard]] std::uint64_t tickets() const noexcept { return per_batch; }
  void begin(Slot& slot, std::uint64_t) noexcept { std::fill(slot.values.begin(), slot.values.end(), 0); }
  void run(Slot& slot, std::uint64_t batch, std::uint64_t ticket, int) noexcept {
    if (before) before(batch, ticket);
    slot.values[ticket] += batch * 1000 + ticket + 1;  // += makes a ticket that ran twice visible
  }
  void starved(std::size_t) { ++starved_calls; }
  void stalled(std::uint64_t, double) { ++stalled_calls; }
};

std::vector<std::uint64_t> expected(std::uint64_t batch, std::uint64_t tickets) {
  std::vector<std::uint64_t> values(tickets);
  std::iota(values.begin(), values.end(), batch * 1000 + 1);
  return values;
}

// A gate at which readers wait until the test opens it.
class Gate {
 public:
  void open() {
    open_.store(true);
    open_.notify_all();
  }
  void wait() const { open_.wait(false); }

 private:
  std::atomic<bool> open_{false};
};

EngineOptions with_readers(int readers) { return {.readers = readers, .ahead = 2, .slots = 4}; }

TEST(Engine, delivers_every_batch_in_order_for_any_number_of_readers) {
  for (const int readers : {0, 1, 2, 8}) {
    for (const std::uint64_t tickets : {1, 5, 64}) {
      auto work = std::make_shared<NumberWork>();
      work->per_batch = tickets;
      Engine<NumberWork> engine(work, with_readers(readers));
      for (std::uint64_t batch = 0; batch < 300; ++batch) {
        ASSERT_EQ(engine.next()->values, expected(batch, tickets)) << readers << " readers, batch " << batch;
      }
      EXPECT_LE(work->made.load(), 4);
      EXPECT_EQ(work->starved_calls.load(), 0);
    }
  }
}

TEST(Engine, delays_do_not_change_the_order) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    auto work = std::make_shared<NumberWork>();
    work->before = [seed](std::uint64_t batch, std::uint64_t ticket) {
      const std::uint64_t spins = make_key(seed, batch, ticket) % 20'000;
      for (std::atomic<std::uint64_t> i = 0; i < spins; ++i) {
      }
    };
    Engine<NumberWork> engine(work, with_readers(3));
    for (std::uint64_t batch = 0; batch < 30; ++batch) ASSERT_EQ(engine.next()->values, expected(batch, 5));
  }
}

TEST(Engine, works_ahead_by_as_many_batches_as_asked) {
  auto work = std::make_shared<NumberWork>();
  std::atomic<std::uint64_t> highest{0};
  std::atomic<int> runs{0};
  work->before = [&](std::uint64_t batch, std::uint64_t) {
    std::uint64_t seen = highest;
    while (batch > seen && !highest.compare_exchange_weak(seen, batch)) {
    }
    ++runs;
    runs.notify_all();
  };
  Engine<NumberWork> engine(work, {.readers = 2, .ahead = 3, .slots = 5});
  for (int seen = runs; seen < 15; seen = runs) runs.wait(seen);  // waits until 3 batches of 5 tickets are made, without a next()
  EXPECT_EQ(highest.load(), 2U);
  EXPECT_EQ(engine.next()->values, expected(0, 5));
  for (int seen = runs; seen < 20; seen = runs) runs.wait(seen);
  EXPECT_EQ(highest.load(), 3U);
}

TEST(Engine, restart_goes_on_with_any_batch) {
  for (const int readers : {0, 1, 4}) {
    auto work = std::make_shared<NumberWork>();
    Engine<NumberWork> engine(work, with_readers(readers), 17);
    EXPECT_EQ(engine.next()->values, expected(17, 5));
    for (std::uint64_t i = 0; i < 2000; ++i) {
      const std::uint64_t first = i * 7 % 31;
      engine.restart(first);
      for (std::uint64_t batch = first; batch < first + i % 4; ++batch) ASSERT_EQ(engine.next()->values, expected(batch, 5));
    }
    EXPECT_LE(work->made.load(), 4 + 4) << "slots of closed runs come back";
    EXPECT_EQ(work->starved_calls.load(), 0);
  }
}

TEST(Engine, restart_does_not_wait_for_a_stuck_ticket) {
  auto work = std::make_shared<NumberWork>();
  Gate gate;
  work->before = [&gate](std::uint64_t batch, std::uint64_t ticket) {
    if (batch == 1 && ticket == 0) gate.wait();
  };
  Engine<NumberWork> engine(work, with_readers(2));
  EXPECT_EQ(engine.next()->values, expected(0, 5));
  engine.restart(100);
  for (std::uint64_t batch = 100; batch < 120; ++batch) ASSERT_EQ(engine.next()->values, expected(batch, 5));
  gate.open();
}

TEST(Engine, consumer_that_keeps_every_slot_gets_more) {
  for (const int readers : {0, 2}) {
    auto work = std::make_shared<NumberWork>();
    Engine<NumberWork> engine(work, with_readers(readers));
    std::deque<std::shared_ptr<Numbers>> kept;
    for (std::uint64_t batch = 0; batch < 50; ++batch) {
      kept.push_back(engine.next());
      ASSERT_EQ(kept.back()->values, expected(batch, 5));
    }
    EXPECT_GT(work->starved_calls.load(), 0);
    for (std::uint64_t batch = 0; batch < 50; ++batch) EXPECT_EQ(kept[batch]->values, expected(batch, 5));
    kept.clear();
    EXPECT_LE(engine.slots(), 6U) << "slots beyond the limit are freed when they come back";
    EXPECT_EQ(engine.next()->values, expected(50, 5));
  }
}

TEST(Engine, slots_outlive_the_engine_and_die_on_any_thread) {
  std::shared_ptr<Numbers> kept;
  std::weak_ptr<NumberWork> work;
  {
    auto made = std::make_shared<NumberWork>();
    work = made;
    Engine<NumberWork> engine(made, with_readers(2));
    kept = engine.next();
  }
  EXPECT_FALSE(work.expired());
  EXPECT_EQ(kept->values, expected(0, 5));
  std::thread([last = std::move(kept)]() mutable { last.reset(); }).join();
  EXPECT_TRUE(work.expired()) << "the last slot frees everything";
}

TEST(Engine, slots_come_back_from_another_thread_while_it_runs) {
  auto work = std::make_shared<NumberWork>();
  Engine<NumberWork> engine(work, with_readers(2));
  std::mutex mutex;
  std::deque<std::shared_ptr<Numbers>> queue;
  std::atomic<bool> done{false};
  std::thread other([&] {
    while (!done) {
      std::shared_ptr<Numbers> last;
      const std::lock_guard lock(mutex);
      if (!queue.empty()) {
        last = std::move(queue.front());
        queue.pop_front();
      }
    }
  });
  for (std::uint64_t batch = 0; batch < 2000; ++batch) {
    auto slot = engine.next();
    ASSERT_EQ(slot->values, expected(batch, 5));
    const std::lock_guard lock(mutex);
    queue.push_back(std::move(slot));
  }
  done = true;
  other.join();
}

TEST(Engine, stop_leaves_a_stuck_reader_behind) {
  auto gate = std::make_shared<Gate>();
  auto inside = std::make_shared<Gate>();
  auto came_back = std::make_shared<Gate>();
  auto work = std::make_shared<NumberWork>();
  std::weak_ptr<NumberWork> alive = work;
  work->before = [gate, inside, came_back](std::uint64_t batch, std::uint64_t ticket) {
    if (batch == 0 && ticket == 2) {
      inside->open();
      gate->wait();
      came_back->open();
    }
  };
  EngineOptions options = with_readers(2);
  options.shutdown_patience = std::chrono::milliseconds(1);
  {
    Engine<NumberWork> engine(work, options);
    work.reset();
    inside->wait();
    EXPECT_FALSE(engine.stop());
  }
  EXPECT_FALSE(alive.expired());
  gate->open();
  came_back->wait();
  while (!alive.expired()) std::this_thread::yield();  // until the reader has freed what it held
}

TEST(Engine, reports_a_batch_that_does_not_come) {
  auto work = std::make_shared<NumberWork>();
  work->before = [&](std::uint64_t batch, std::uint64_t ticket) {
    while (batch == 1 && ticket == 3 && work->stalled_calls.load() < 2) std::this_thread::yield();
  };
  EngineOptions options = with_readers(2);
  options.first_stall = std::chrono::milliseconds(1);
  Engine<NumberWork> engine(work, options);
  EXPECT_EQ(engine.next()->values, expected(0, 5));
  EXPECT_EQ(engine.next()->values, expected(1, 5));
  EXPECT_GE(work->stalled_calls.load(), 2);
  engine.stop();
}

TEST(Engine, starts_and_stops_many_times) {
  for (int i = 0; i < 300; ++i) {
    auto work = std::make_shared<NumberWork>();
    Engine<NumberWork> engine(work, with_readers(1 + i % 4));
    for (int batch = 0; batch < i % 3; ++batch) (void)engine.next();
    EXPECT_TRUE(engine.stop());
  }
}

}  // namespace
}  // namespace millrace::data::detail
