// Tests batches on their way to a device that delays its copies and its work, each by random times.
#include "millrace/train/step/detail/device_slots.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <numeric>

#include "millrace/base/error.h"
#include "millrace/base/philox.h"
#include "millrace/data/sources/memory_source.h"
#include "millrace/train/step/feed.h"

namespace millrace {
namespace {

// Two queues of delayed actions on memory, as on a device. Actions run at once only if something waits for them.
class LateDevice final : public device::Copies {
 public:
  explicit LateDevice(std::uint64_t seed) : dice_(seed) {}

  class Place final : public Mark {
   public:
    explicit Place(LateDevice& device) : device_(device) {}
    [[nodiscard]] bool reached() const override { return is_reached; }
    void wait() const override {
      ++device_.host_waits;
      for (int i = 0; i < 10'000 && !is_reached; ++i) device_.do_something();
      MR_CHECK(is_reached, "the host waits for ever");
    }
    bool is_reached = false;

   private:
    LateDevice& device_;
  };

  [[nodiscard]] at::Tensor memory(std::int64_t bytes) override {
    ++memories;
    // Like a device's memory, this memory is never freed, so that late actions touch no other memory.
    kept_.push_back(std::make_unique<std::vector<std::byte>>(static_cast<std::size_t>(bytes) + 64));
    auto first = reinterpret_cast<std::uintptr_t>(kept_.back()->data());
    first += (64 - first % 64) % 64;
    return at::from_blob(reinterpret_cast<void*>(first), {bytes}, at::TensorOptions(at::kByte));  // NOLINT: an aligned place
  }
  void copy(const at::Tensor& to, const at::Tensor& from) override {
    ++copied;
    copies_.push_back(
        {[to = to.data_ptr(), from = from.data_ptr(), bytes = from.nbytes()] { std::memcpy(to, from, bytes); }, {}});
  }
  [[nodiscard]] MarkPtr mark_work() override { return mark(work_); }
  [[nodiscard]] MarkPtr mark_copies() override { return mark(copies_); }
  void hold_work(const Mark& until) override { work_.push_back({{}, &static_cast<const Place&>(until)}); }
  void hold_copies(const Mark& until) override { copies_.push_back({{}, &static_cast<const Place&>(until)}); }

  void launch(std::function<void()> operation) { work_.push_back({std::move(operation), {}}); }
  void do_something() {
    auto& queue = dice_() % 2 == 0 ? work_ : copies_;
    if (queue.empty()) return;
    const Item& item = queue.front();
    if (item.until != nullptr && !item.until->is_reached) return;
    if (item.run) item.run();
    queue.erase(queue.begin());
  }
  void do_some() {
    for (std::uint32_t i = dice_() % 12; i > 0; --i) do_something();
  }
  void finish() {
    for (int i = 0; i < 100'000 && !(work_.empty() && copies_.empty()); ++i) do_something();
    ASSERT_TRUE(work_.empty() && copies_.empty()) << "the queues wait for each other";
  }
  std::uint32_t dice() { return dice_(); }

  int memories = 0, copied = 0, host_waits = 0;

 private:
  struct Item {
    std::function<void()> run;
    const Place* until = nullptr;
  };
  MarkPtr mark(std::vector<Item>& queue) {
    auto place = std::make_shared<Place>(*this);
    places_.push_back(place);  // an event exists until every queue has reached it
    queue.push_back({[to = place.get()] { to->is_reached = true; }, {}});
    return place;
  }

  Philox dice_;
  std::vector<Item> work_, copies_;
  std::vector<std::shared_ptr<Place>> places_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> kept_;
};

constexpr std::int64_t kSamples = 22;
constexpr std::int64_t kBatch = 4;

data::Pipeline numbers() {
  std::vector<std::int64_t> ids(kSamples);
  std::iota(ids.begin(), ids.end(), std::int64_t{100});
  std::vector<std::uint8_t> bytes(kSamples * 3);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(100 + i / 3);
  std::vector<data::MemoryArray> arrays;
  arrays.push_back(data::memory_array<std::uint8_t>("byte", {3}, std::move(bytes)));
  arrays.push_back(data::memory_array<std::int64_t>("id", {}, std::move(ids)));
  return data::single(std::make_shared<data::MemorySource>(std::move(arrays)));
}

data::LoaderOptions shuffled() { return {.batch_size = kBatch, .shuffle = true, .seed = 3, .readers = 0}; }

// The values that the device's work reads from a batch when its turn comes.
struct Seen {
  std::vector<std::int64_t> ids, bytes, expected;
};

void launch_reading(LateDevice& device, const Batch& batch, Seen& seen) {
  const auto rows = static_cast<std::size_t>(batch.rows());
  for (const std::int64_t index : batch.groups()[0].indices) seen.expected.push_back(100 + index);
  device.launch(
      [&seen, rows, id = batch["id"].const_data_ptr<std::int64_t>(), byte = batch["byte"].const_data_ptr<std::uint8_t>()] {
        seen.ids.insert(seen.ids.end(), id, id + rows);
        for (std::size_t i = 0; i < rows; ++i) seen.bytes.push_back(byte[3 * i + 2]);
      });
}

TEST(DeviceSlots, NoBatchIsWrongHoweverLateCopiesAndWorkAre) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    data::Loader loader(numbers(), shuffled());
    auto made = std::make_unique<LateDevice>(seed);
    LateDevice& device = *made;
    Feed feed(loader, Split::train, std::move(made));
    Seen seen;
    const bool looks = seed % 4 != 0;
    for (int step = 0; step < 15; ++step) {
      std::optional<Batch> batch = feed.next();
      if (!batch) continue;  // the epoch has ended
      launch_reading(device, *batch, seen);
      if (device.dice() % 3 == 0) launch_reading(device, *batch, seen);
      batch.reset();
      device.do_some();
      if (looks) feed.look_ahead();
      device.do_some();
    }
    device.finish();
    EXPECT_EQ(seen.ids, seen.expected);
    EXPECT_EQ(seen.bytes, seen.expected);
    EXPECT_LE(device.memories, 2);
  }
}

TEST(DeviceSlots, WhatSomebodyHoldsStaysWhatItIs) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    data::Loader loader(numbers(), shuffled());
    auto made = std::make_unique<LateDevice>(seed);
    LateDevice& device = *made;
    Feed feed(loader, Split::train, std::move(made));
    Seen seen;
    std::vector<Batch> held;
    for (int step = 0; step < 15; ++step) {
      std::optional<Batch> batch = feed.next();
      if (!batch) continue;
      launch_reading(device, *batch, seen);
      if (device.dice() % 2 == 0) held.push_back(std::move(*batch));
      batch.reset();
      feed.look_ahead();
      device.do_some();
      if (held.empty() || device.dice() % 2 == 0) continue;
      launch_reading(device, held.front(), seen);  // launched after the next batch was sent
      held.erase(held.begin());
    }
    device.finish();
    EXPECT_EQ(seen.ids, seen.expected);
    EXPECT_EQ(seen.bytes, seen.expected);
  }
}

TEST(DeviceSlots, OneCopyForABatchAndTwoMemoriesForARun) {
  data::Loader loader(numbers(), shuffled());
  auto made = std::make_unique<LateDevice>(1);
  LateDevice& device = *made;
  Feed feed(loader, Split::train, std::move(made));
  for (int step = 0; step < 5; ++step) {
    ASSERT_TRUE(feed.next());
    device.finish();  // as if the device were as fast as the host
    feed.look_ahead();
  }
  EXPECT_EQ(device.copied, 6);
  EXPECT_EQ(device.memories, 2);
  EXPECT_EQ(device.host_waits, 0);
}

TEST(DeviceSlots, TheHostIsThreeStepsAheadAtMost) {
  data::Loader loader(numbers(), shuffled());
  auto made = std::make_unique<LateDevice>(1);
  LateDevice& device = *made;
  Feed feed(loader, Split::train, std::move(made));
  int done = 0;
  for (int step = 0; step < 5; ++step) {
    ASSERT_TRUE(feed.next());
    device.launch([&done] { ++done; });
    feed.look_ahead();
    EXPECT_LE(step + 1 - done, 3);
  }
  EXPECT_GT(device.host_waits, 0);
}

TEST(DeviceSlots, FieldsAreChangedApart) {
  data::Loader loader(numbers(), shuffled());
  const Batch batch = to_batch(*loader.next(), Split::train, at::kCPU);
  loader.restart();
  const data::HostBatch host = *loader.next();
  const HostBlock block = block_of(host);
  const at::Tensor memory =
      at::from_blob(block.first, {block.bytes}, at::TensorOptions(at::kByte)).clone();  // aligned as LibTorch aligns memory
  const Batch copy = batch_in(memory, host, Split::train);
  EXPECT_EQ(to_text(copy), to_text(batch));
  EXPECT_TRUE(copy["id"].equal(batch["id"]));
  EXPECT_TRUE(copy["byte"].equal(batch["byte"]));
  EXPECT_EQ(copy.groups()[0].positions, batch.groups()[0].positions);
  copy["id"].fill_(7);
  EXPECT_TRUE(copy["byte"].equal(batch["byte"]));
  EXPECT_EQ(copy["byte"]._version(), 0);
  EXPECT_GT(copy["id"]._version(), 0);
}

TEST(Feed, TellsEachEpochsEndOnce) {
  data::Loader loader(numbers(), shuffled());
  Feed feed(loader, Split::train, std::make_unique<LateDevice>(1));
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    for (std::uint64_t index = 0; index < 6; ++index) {
      const std::optional<Batch> batch = feed.next();
      ASSERT_TRUE(batch);
      EXPECT_EQ(batch->origin().index, index);
      EXPECT_EQ(batch->epoch(), epoch);
      feed.look_ahead();
    }
    EXPECT_FALSE(feed.next());
  }
}

// A data set whose sample 9 can't be read.
class Broken final : public data::Source {
 public:
  [[nodiscard]] std::span<const Field> fields() const override { return fields_; }
  [[nodiscard]] std::int64_t size() const override { return 12; }
  [[nodiscard]] std::string fingerprint() const override { return "broken"; }
  void read(std::span<const std::int64_t> indices, data::Rows rows, const data::ReadRandom&) const override {
    for (std::size_t i = 0; i < indices.size(); ++i) {
      if (indices[i] == 9) throw DataError({"it is torn", "sample 9", ""});
      std::memcpy(rows.row(0, i, 8), &indices[i], 8);
    }
  }

 private:
  std::vector<Field> fields_ = {{"id", DType::i64, {}}};
};

TEST(Feed, WhatIsWrongWithABatchIsToldWhenItsTurnComes) {
  data::Loader loader(data::single(std::make_shared<Broken>()), {.batch_size = 4, .readers = 0});
  Feed feed(loader, Split::train, std::make_unique<LateDevice>(1));
  for (int step = 0; step < 2; ++step) {
    ASSERT_TRUE(feed.next());
    feed.look_ahead();
  }
  EXPECT_THROW((void)feed.next(), DataError);
}

TEST(Feed, GoesElsewhereWithTheLoader) {
  data::Loader loader(numbers(), shuffled());
  auto made = std::make_unique<LateDevice>(5);
  LateDevice& device = *made;
  Feed feed(loader, Split::train, std::move(made));
  const Json edge = loader.state();
  Seen first, again;
  for (Seen* seen : {&first, &again}) {
    for (int step = 0; step < 3; ++step) {
      const std::optional<Batch> batch = feed.next();
      ASSERT_TRUE(batch);
      launch_reading(device, *batch, *seen);
      feed.look_ahead();
    }
    feed.drop();
    loader.load_state(edge);
  }
  device.finish();
  EXPECT_EQ(first.ids, first.expected);
  EXPECT_EQ(again.ids, first.ids);
}

}  // namespace
}  // namespace millrace
