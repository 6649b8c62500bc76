#include "millrace/data/workload/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/base/error.h"

namespace millrace::data {
namespace {

OpenWorkload opened(const std::string& json) { return open_workload(parse_workload(json, "w.json"), "."); }

TEST(Workload, delivers_the_same_bytes_whatever_the_order_and_the_readers) {
  const std::string memory = R"({"kind": "memory", "samples": 50, "shapes": {"x": [20], "y": [5]}})";
  const std::string groups = R"({"kind": "groups", "of": {"a": )" + memory + R"(, "b": )" + memory + R"(, "c": )" + memory + "}}";
  for (const std::string& data :
       {memory, groups, std::string(R"({"kind": "sleeping", "samples": 50, "sleep_ms": 0, "slow_ms": 1})")}) {
    const auto digest = [&](const std::string& more) {
      OpenWorkload open = opened("{\"data\": " + data + more + "}");
      Loader loader(open.pipeline, open.options);
      const StreamDigest stream = digest_epoch(loader);
      EXPECT_EQ(stream.samples, data == groups ? 150 : 50);
      return stream.digest;
    };
    const std::string expected = digest("");
    EXPECT_EQ(digest(", \"shuffle\": false"), expected);
    EXPECT_EQ(digest(", \"readers\": 2, \"seed\": 9, \"batch_size\": 7"), expected);
  }
}

TEST(Workload, measures_whole_epochs_and_their_ends) {
  OpenWorkload open =
      opened(R"({"data": {"kind": "sleeping", "samples": 20, "sleep_ms": 0.1, "slow_ms": 0.2}, "batch_size": 4})");
  Loader loader(open.pipeline, open.options);
  std::int64_t consumed = 0;
  const LoaderRates rates = measure_loader(loader, 0.05, [&](const HostBatch&) { ++consumed; });
  EXPECT_EQ(consumed, rates.batches);
  EXPECT_EQ(rates.samples, 4 * rates.batches);
  EXPECT_EQ(rates.turn_rounds.size(), static_cast<std::size_t>((rates.batches - 1) / 5));
  EXPECT_GE(rates.wait_p99, rates.wait_p50);
  const Json json = rates.to_json();
  for (const char* key : {"samples_per_s", "first_batch_ms", "turn_round_ms_p50", "cpu_s_per_1000", "wait_ms_p99"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
}

TEST(Workload, mistakes_are_named) {
  const auto what = [](const std::string& json) -> std::string {
    try {
      (void)opened(json);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(what("{"), testing::HasSubstr("this is not JSON"));
  EXPECT_THAT(what(R"({"batch_size": 1})"), testing::HasSubstr("the description has no data"));
  EXPECT_THAT(what(R"({"data": {"kind": "tape"}})"), testing::HasSubstr("there is no kind \"tape\""));
  EXPECT_THAT(what(R"({"data": {"kind": "sleeping"}, "bach_size": 1})"), testing::HasSubstr("batch_size"));
  EXPECT_THAT(what(R"({"data": {"kind": "memory", "arrays": {"x": "x.bin"}}})"), testing::HasSubstr("array \"x\" has no shape"));
  EXPECT_THAT(what(R"({"data": {"kind": "sleeping"}, "rank": 2, "ranks": 2})"), testing::HasSubstr("rank 2, ranks 2"));
  EXPECT_THAT(what(R"({"data": {"kind": "sleeping"}, "ranks": 4294967297})"), testing::HasSubstr("rank 0, ranks 4294967297"));
}

}  // namespace
}  // namespace millrace::data
