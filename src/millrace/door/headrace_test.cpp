#include "millrace/door/headrace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "millrace/base/foreign_json.h"
#include "millrace/base/json.h"

namespace millrace {
namespace {

using testing::HasSubstr;

constexpr const char* kSleeping =
    R"({"data": {"kind": "sleeping", "samples": 20, "sleep_ms": 0, "slow_ms": 0}, "batch_size": 4, )"
    R"("seed": 3, "readers": 2})";

struct Closed {
  void operator()(headrace_loader* loader) const { headrace_close(loader); }
};
using Opened = std::unique_ptr<headrace_loader, Closed>;

Opened opened(const std::string& text) { return Opened(headrace_open(text.c_str(), nullptr, 0, nullptr)); }

int wait_for(headrace_loader* loader, headrace_batch& batch) {
  int got = HEADRACE_NOT_YET;
  while (got == HEADRACE_NOT_YET) got = headrace_next(loader, 100, &batch);
  return got;
}

// The numbers of the samples of the next batches, across the ends of epochs.
std::vector<std::vector<float>> numbers(headrace_loader* loader, int batches) {
  std::vector<std::vector<float>> all;
  while (static_cast<int>(all.size()) < batches) {
    headrace_batch batch{};
    const int got = wait_for(loader, batch);
    if (got == HEADRACE_END) continue;
    if (got != HEADRACE_BATCH) return all;
    std::vector<float>& some = all.emplace_back();
    for (std::int64_t row = 0; row < batch.rows[0]; ++row) {
      some.push_back(static_cast<const float*>(batch.data[0])[64 * row]);
      EXPECT_EQ(some.back(), static_cast<float>(batch.items[0][row]));
    }
    headrace_release(batch.slot);
  }
  return all;
}

TEST(Door, delivers_epochs_and_says_what_they_are) {
  const Opened loader = opened(kSleeping);
  ASSERT_NE(loader, nullptr) << headrace_error();
  const Json described = Json::parse(headrace_describe(loader.get()));
  EXPECT_EQ(described["batches"], 5);
  EXPECT_EQ(described["groups"][0]["fields"][0], (Json{{"name", "x"}, {"dtype", "f32"}, {"shape", {64}}}));
  const auto first = numbers(loader.get(), 5);
  headrace_batch batch{};
  EXPECT_EQ(wait_for(loader.get(), batch), HEADRACE_END);
  EXPECT_NE(numbers(loader.get(), 5), first);  // the next epoch has another order
  EXPECT_EQ(Json::parse(headrace_counters(loader.get()))["samples"], 40);
  EXPECT_EQ(Json::parse(headrace_plan(loader.get()))["readers"], 2);
  ASSERT_EQ(headrace_restart(loader.get(), 0), 0);
  EXPECT_EQ(numbers(loader.get(), 5), first);
}

TEST(Door, goes_on_at_the_batch_of_a_state_with_any_number_of_readers) {
  const auto expected = numbers(opened(kSleeping).get(), 12);
  for (const int before : {0, 1, 3, 5, 6, 8}) {
    const Opened some = opened(kSleeping);
    (void)numbers(some.get(), before);
    const std::string state = headrace_state(some.get());
    std::string other = kSleeping;
    other.replace(other.find("\"readers\": 2"), 12, "\"readers\": 1");
    const Opened rest = opened(other);
    ASSERT_EQ(headrace_load_state(rest.get(), state.c_str()), 0) << headrace_error();
    headrace_batch batch{};
    if (before == 5) {  // the end of an epoch is the beginning of the next
      ASSERT_EQ(wait_for(rest.get(), batch), HEADRACE_BATCH);
      EXPECT_EQ(batch.epoch, 1U);
      EXPECT_EQ(batch.index, 0U);
      headrace_release(batch.slot);
      ASSERT_EQ(headrace_load_state(rest.get(), state.c_str()), 0);
    }
    EXPECT_EQ(numbers(rest.get(), 12 - before), std::vector(expected.begin() + before, expected.end())) << before;
  }
}

TEST(Door, a_wait_that_is_over_changes_nothing) {
  const Opened loader = opened(R"({"data": {"kind": "sleeping", "samples": 8, "sleep_ms": 60}, "batch_size": 1, "readers": 1, )"
                               R"("shuffle": false})");
  headrace_batch batch{};
  int not_yet = 0;
  int got = HEADRACE_NOT_YET;
  while ((got = headrace_next(loader.get(), 1, &batch)) == HEADRACE_NOT_YET) ++not_yet;
  EXPECT_EQ(got, HEADRACE_BATCH);
  EXPECT_GT(not_yet, 0);
  EXPECT_EQ(batch.index, 0U);
  headrace_release(batch.slot);
}

TEST(Door, maps_by_a_function_of_the_caller) {
  const headrace_map doubled{.call =
                                 [](const void* const* from, void* const* to, std::uint64_t, void* context) {
                                   const float value = *static_cast<const float*>(from[0]);
                                   *static_cast<float*>(to[0]) = 2 * value + *static_cast<float*>(context);
                                   return value == 5 ? 7 : 0;
                                 },
                             .describe = nullptr,
                             .context = nullptr};
  float added = 1;
  headrace_map maps[] = {doubled};
  maps[0].context = &added;
  const std::string map =
      R"({"data": {"kind": "map", "name": "doubled", "function": 0, "makes": {"y": {"dtype": "f32"}}, "of": )"
      R"({"kind": "sleeping", "samples": 8, "sleep_ms": 0, "slow_ms": 0}}, "batch_size": 8, "shuffle": false, )";
  const Opened loader(headrace_open((map + R"("bad_samples": "skip"})").c_str(), maps, 1, nullptr));
  ASSERT_NE(loader, nullptr) << headrace_error();
  headrace_batch batch{};
  ASSERT_EQ(wait_for(loader.get(), batch), HEADRACE_BATCH) << headrace_error();
  ASSERT_EQ(batch.rows[0], 7);
  EXPECT_EQ(batch.bad, 1U);
  EXPECT_EQ(static_cast<float*>(batch.data[1])[6], 15);
  headrace_release(batch.slot);
  EXPECT_THAT(headrace_messages(loader.get()), HasSubstr("failed with 7"));
  EXPECT_STREQ(headrace_messages(loader.get()), "[]");
  const Opened fails(headrace_open((map + R"("bad_samples": "fail"})").c_str(), maps, 1, nullptr));
  EXPECT_EQ(wait_for(fails.get(), batch), HEADRACE_FAILED);
  EXPECT_THAT(headrace_error(), HasSubstr("failed with 7"));
  EXPECT_EQ(headrace_open((map + R"("seed": 1})").c_str(), nullptr, 0, nullptr), nullptr);
  EXPECT_THAT(headrace_error(), HasSubstr("function 0 is not there"));
}

TEST(Door, the_memory_of_batches_is_announced_while_it_lives) {
  std::map<const char*, std::size_t> pieces;  // without reader threads, all calls come on this thread
  const headrace_watch watch{
      .taken = [](void* memory, std::size_t bytes,
                  void* to) { static_cast<decltype(pieces)*>(to)->emplace(static_cast<const char*>(memory), bytes); },
      .given_back =
          [](void* memory, std::size_t, void* from) {
            EXPECT_EQ(static_cast<decltype(pieces)*>(from)->erase(static_cast<const char*>(memory)), 1U);
          },
      .context = &pieces};
  Opened loader(headrace_open(R"({"data": {"kind": "sleeping", "samples": 20, "sleep_ms": 0, "slow_ms": 0}, "readers": 0})",
                              nullptr, 0, &watch));
  ASSERT_NE(loader, nullptr) << headrace_error();
  headrace_batch batch{};
  ASSERT_EQ(wait_for(loader.get(), batch), HEADRACE_BATCH);
  const auto* const data = static_cast<const char*>(batch.data[0]);
  const std::size_t bytes = static_cast<std::size_t>(batch.rows[0]) * 64 * sizeof(float);
  EXPECT_THAT(pieces, testing::Contains(testing::Truly(
                          [&](const auto& piece) { return data >= piece.first && data + bytes <= piece.first + piece.second; })));
  loader.reset();
  EXPECT_TRUE(pieces.empty());  // the memory is given back although a batch is still held
  EXPECT_EQ(static_cast<const float*>(batch.data[0])[1], static_cast<float>(batch.items[0][0]));
  headrace_release(batch.slot);
}

TEST(Door, no_function_is_called_after_the_close) {
  struct Calls {
    std::atomic<int> begun = 0;
    std::atomic<int> inside = 0;
  } calls;
  const headrace_map slow{.call =
                              [](const void* const*, void* const* to, std::uint64_t, void* context) {
                                auto& counted = *static_cast<Calls*>(context);
                                ++counted.begun;
                                ++counted.inside;
                                std::this_thread::sleep_for(std::chrono::milliseconds(20));
                                *static_cast<float*>(to[0]) = 0;
                                --counted.inside;
                                return 0;
                              },
                          .describe = nullptr,
                          .context = &calls};
  // A batch takes longer than the close waits for readers.
  Opened loader(
      headrace_open(R"({"data": {"kind": "map", "name": "slow", "function": 0, "makes": {"y": {"dtype": "f32"}}, "of": )"
                    R"({"kind": "sleeping", "samples": 2000, "sleep_ms": 0, "slow_ms": 0}}, "batch_size": 1000, )"
                    R"("readers": 1})",
                    &slow, 1, nullptr));
  ASSERT_NE(loader, nullptr) << headrace_error();
  headrace_batch batch{};
  EXPECT_EQ(headrace_next(loader.get(), 50, &batch), HEADRACE_NOT_YET);
  loader.reset();
  EXPECT_EQ(calls.inside, 0);
  const int begun = calls.begun;
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  EXPECT_EQ(calls.begun, begun);
}

TEST(Door, says_mistakes_in_three_parts) {
  EXPECT_EQ(
      headrace_open(R"({"data": {"kind": "hdf5", "files": ["no-such-*.h5"], "datasets": {"x": "/x"}}})", nullptr, 0, nullptr),
      nullptr);
  const Json missing = Json::parse(headrace_error());
  EXPECT_EQ(missing["kind"], "DataError");
  EXPECT_THAT(missing["what"].get<std::string>(), HasSubstr("no file matches"));
  EXPECT_FALSE(missing["next"].get<std::string>().empty());
  EXPECT_EQ(headrace_open(R"({"data": {"kind": "npy"}, "bach_size": 2})", nullptr, 0, nullptr), nullptr);
  EXPECT_THAT(Json::parse(headrace_error())["next"].get<std::string>(), HasSubstr("batch_size"));
  EXPECT_EQ(headrace_open("{", nullptr, 0, nullptr), nullptr);
  EXPECT_EQ(headrace_describe(nullptr), nullptr);
  EXPECT_THAT(headrace_error(), HasSubstr("there is no loader"));
  const Opened loader = opened(kSleeping);
  EXPECT_EQ(headrace_load_state(loader.get(), "[]"), HEADRACE_FAILED);
  EXPECT_THAT(headrace_error(), HasSubstr("SnapshotError"));
}

TEST(Door, judges_a_script) {
  const char* const said = headrace_diagnose(
      R"({"cores": 2, "times": {"steps": 100, "wall": 10, "seconds": {"data_wait": 6.5, "forward": 3.5}},)"
      R"( "input": {"readers": 1, "read_seconds": 9.5}, "script": {"dialect": "trainer", "loader": {"workers": 1}}})");
  ASSERT_NE(said, nullptr) << headrace_error();
  const Json verdict = Json::parse(said);
  EXPECT_EQ(verdict["findings"][0]["id"], "few_readers");
  EXPECT_EQ(verdict["findings"][0]["call"], "TrainingArguments");
  EXPECT_EQ(verdict["accounts"][0]["phase"], "data_wait");
  EXPECT_EQ(headrace_diagnose(R"({"tims": {}})"), nullptr);
  EXPECT_EQ(Json::parse(headrace_error())["next"], "did you mean times?");
  EXPECT_EQ(headrace_diagnose(R"({"others": NaN})"), nullptr);
  EXPECT_THAT(headrace_error(), HasSubstr("texts"));
  EXPECT_EQ(headrace_diagnose(nullptr), nullptr);
  EXPECT_GE(Json::parse(headrace_machine())["cores"], 1);
}

TEST(Door, samples_the_machine) {
  headrace_sampler* const sampler = headrace_sampler_start(-1);
  ASSERT_NE(sampler, nullptr) << headrace_error();
  const Json evidence = Json::parse(headrace_sampler_read(sampler))["evidence"];
  EXPECT_NE(headrace_diagnose(evidence.dump().c_str()), nullptr) << headrace_error();
  const pid_t child = ::fork();
  if (child == 0) {
    const bool refused = headrace_sampler_read(sampler) == nullptr && headrace_sampler_stop(sampler) == nullptr &&
                         std::string(headrace_error()).find("is a fork") != std::string::npos;
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_NE(headrace_sampler_stop(sampler), nullptr);
  EXPECT_EQ(headrace_sampler_read(nullptr), nullptr);
}

TEST(Door, a_fork_is_noticed) {
  Opened loader = opened(kSleeping);
  headrace_batch batch{};
  ASSERT_EQ(wait_for(loader.get(), batch), HEADRACE_BATCH);
  const pid_t child = ::fork();
  if (child == 0) {
    headrace_batch other{};
    const bool refused = headrace_next(loader.get(), 10, &other) == HEADRACE_FAILED &&
                         std::string(headrace_error()).find("is a fork") != std::string::npos;
    headrace_release(batch.slot);
    headrace_close(loader.release());
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  loader.reset();
  EXPECT_EQ(static_cast<const float*>(batch.data[0])[1], static_cast<float>(batch.items[0][0]));  // valid after the close
  headrace_release(batch.slot);
}

}  // namespace
}  // namespace millrace
