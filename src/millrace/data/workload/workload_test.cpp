#include "millrace/data/workload/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/base/error.h"

namespace millrace::data {
namespace {

OpenWorkload opened(const std::string& json) { return open_workload(parse_workload(json, "w.json"), "."); }

TEST(Workload, every_kind_delivers_the_same_bytes_whatever_the_order_and_the_readers) {
  for (const std::string kind : {"memory", "grouped", "sleeping"}) {
    const auto digest = [&](const std::string& more) {
      OpenWorkload open =
          opened("{\"kind\": \"" + kind + "\", \"samples\": 50, \"datasets\": 3, \"sleep_ms\": 0, \"slow_ms\": 1" + more + "}");
      Loader loader(open.pipeline, open.options);
      const StreamDigest stream = digest_epoch(loader);
      EXPECT_EQ(stream.samples, kind == "grouped" ? 150 : 50);
      return stream.digest;
    };
    const std::string expected = digest("");
    EXPECT_EQ(digest(", \"shuffle\": false"), expected);
    EXPECT_EQ(digest(", \"readers\": 2, \"seed\": 9, \"batch_size\": 7"), expected);
  }
}

TEST(Workload, measures_whole_epochs_and_their_ends) {
  OpenWorkload open = opened("{\"kind\": \"sleeping\", \"samples\": 20, \"batch_size\": 4, \"sleep_ms\": 0.1, \"slow_ms\": 0.2}");
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
  EXPECT_THAT(what("{\"kind\": \"tape\"}"), testing::HasSubstr("there is no kind \"tape\""));
  EXPECT_THAT(what("{\"bach_size\": 1}"), testing::HasSubstr("batch_size"));
  EXPECT_THAT(what("{\"kind\": \"tokens\"}"), testing::HasSubstr("kind \"tokens\" needs files, and there are none"));
  EXPECT_THAT(what("{\"arrays\": {\"x\": \"x.bin\"}}"), testing::HasSubstr("array \"x\" has no shape"));
}

}  // namespace
}  // namespace millrace::data
