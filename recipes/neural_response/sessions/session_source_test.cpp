// Tests of windows of a session as samples: what they hold, and that the result does not depend on how they are read.
#include "recipes/neural_response/sessions/session_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>

#include "millrace/data/cache/cached_source.h"
#include "millrace/data/loader/loader.h"
#include "recipes/neural_response/detail/test_sessions.h"

namespace millrace::recipes::neural_response {
namespace {

using namespace test;

template <class T>
std::vector<T> field_of(const data::Source& source, std::int64_t index, std::size_t field) {
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::byte*> rows;
  for (const Field& each : source.fields()) memory.emplace_back(each.bytes());
  for (auto& bytes : memory) rows.push_back(bytes.data());
  const std::int64_t zero = 0;
  source.read({&index, 1}, {rows}, data::ReadRandom(1, 0, {&zero, 1}));
  std::vector<T> values(memory[field].size() / sizeof(T));
  std::memcpy(values.data(), memory[field].data(), memory[field].size());
  return values;
}

class SessionSourceTest : public SessionTest {
 protected:
  std::shared_ptr<const data::Source> source(StimulusFormat format = StimulusFormat::u8, LagOrder order = LagOrder::oldest_first,
                                             Split split = Split::train) {
    return session_source(one(), split, format, order);
  }
  // The grey level of pixel p in bin t of tiny_file().
  static int grey(std::int64_t t, std::int64_t p) { return static_cast<int>((2 * t * 12 + p) * 7 % 251); }
};

TEST_F(SessionSourceTest, AWindowEndsAtItsBinOldestFirst) {
  const auto session = one();
  const auto plain = source();
  ASSERT_EQ(plain->fields().size(), 4U);
  EXPECT_EQ(plain->fields()[0], (Field{"stim", DType::u8, {1, 3, 4, 3}}));
  EXPECT_EQ(plain->fields()[1], (Field{"robs", DType::f32, {2}}));
  EXPECT_EQ(plain->fields()[2], (Field{"dfs", DType::f32, {2}}));
  EXPECT_EQ(plain->fields()[3], (Field{"behavior", DType::f32, {42}}));
  const auto newest = source(StimulusFormat::u8, LagOrder::newest_first);
  const auto wide = source(StimulusFormat::fp32);
  const auto half = source(StimulusFormat::bf16);
  EXPECT_EQ(half->fields()[0].dtype, DType::bf16);
  for (const std::int64_t i : {std::int64_t{0}, std::int64_t{7}, plain->size() - 1}) {
    const std::int64_t bin = session->samples(Split::train)[static_cast<std::size_t>(i)];
    const auto stim = field_of<std::uint8_t>(*plain, i, 0);
    const auto turned = field_of<std::uint8_t>(*newest, i, 0);
    const auto floats = field_of<float>(*wide, i, 0);
    const auto halves = field_of<std::uint16_t>(*half, i, 0);
    for (std::int64_t lag = 0; lag < 3; ++lag) {
      for (std::int64_t p = 0; p < 12; ++p) {
        const auto at = static_cast<std::size_t>(lag * 12 + p);
        const int level = grey(bin - 2 + lag, p);
        EXPECT_EQ(stim[at], level);
        EXPECT_EQ(turned[static_cast<std::size_t>((2 - lag) * 12 + p)], level);
        EXPECT_EQ(floats[at], (static_cast<float>(level) - 127.0F) / 255.0F);
        const std::uint32_t bits = std::uint32_t{halves[at]} << 16U;
        float rounded = 0;
        std::memcpy(&rounded, &bits, 4);
        EXPECT_NEAR(rounded, floats[at], std::abs(floats[at]) / 256);
      }
    }
    std::vector<float> counts(2);
    session->counts(bin, counts);
    EXPECT_EQ(field_of<float>(*plain, i, 1), counts);
    EXPECT_THAT(field_of<float>(*plain, i, 2), testing::Each(1.0F));
    const auto behavior = session->behavior(bin);
    EXPECT_EQ(field_of<float>(*plain, i, 3), std::vector<float>(behavior.begin(), behavior.end()));
    EXPECT_EQ(plain->describe(i), "a/backimage.h5 bin " + std::to_string(bin));
  }
}

TEST_F(SessionSourceTest, OtherTransformsTravelAsNumbers) {
  const std::string head = dataset_text();
  write("dataset.yaml", head + "transforms:\n  stim: {source: stim, ops: [unsqueeze: 1], expose_as: stim}\n");
  const auto grey_levels = source();
  EXPECT_EQ(grey_levels->fields().size(), 3U) << "no transform makes behavior";
  EXPECT_EQ(grey_levels->fields()[0].dtype, DType::f32) << "u8 means pixelnorm to the model";
  const std::int64_t bin = one()->samples(Split::train)[3];
  EXPECT_EQ(field_of<float>(*grey_levels, 3, 0)[35], static_cast<float>(grey(bin, 11)));

  write("dataset.yaml", head + "transforms:\n  stim: {source: stim, ops: [diff: {}, mul: 2, unsqueeze: 1], expose_as: stim}\n");
  const auto changed = source();
  EXPECT_EQ(changed->keeps(), data::Keeps::memory);
  EXPECT_EQ(field_of<float>(*changed, 3, 0)[35], 2.0F * static_cast<float>(grey(bin, 11) - grey(bin - 1, 11)));
  EXPECT_NE(changed->fingerprint(), grey_levels->fingerprint());
  EXPECT_EQ(source(StimulusFormat::bf16)->fields()[0].dtype, DType::bf16);
}

TEST_F(SessionSourceTest, TheFingerprintCoversOptionsUnitsAndSplit) {
  const std::string first = source()->fingerprint();
  EXPECT_EQ(source()->fingerprint(), first);
  EXPECT_NE(source(StimulusFormat::fp32)->fingerprint(), first);
  EXPECT_NE(source(StimulusFormat::u8, LagOrder::newest_first)->fingerprint(), first);
  EXPECT_NE(source(StimulusFormat::u8, LagOrder::oldest_first, Split::validation)->fingerprint(), first);
  write("sessions/a.yaml", "session: a\ncids: [0, 2]\n");
  EXPECT_NE(source()->fingerprint(), first);
}

// The number of rows of each group in a batch, and the bytes of all fields.
struct Seen {
  std::vector<std::size_t> rows;
  std::string bytes;
  bool operator==(const Seen&) const = default;
};

struct Way {
  std::uint64_t cache_bytes = 0;
  int readers = 0;
  bool curriculum = false;
};

std::unique_ptr<data::Loader> loader_of(const Sessions& sessions, const Way& way) {
  data::Pipeline pipeline;
  pipeline.grouping = data::Grouping::mix;
  const auto cache = std::make_shared<data::SampleCache>(way.cache_bytes);
  for (const auto& session : sessions.all) {
    auto source = session_source(session, Split::train, StimulusFormat::u8, LagOrder::oldest_first);
    if (way.cache_bytes > 0) source = std::make_shared<data::CachedSource>(source, cache, session->name());
    pipeline.datasets.push_back({.name = session->name(), .source = source});
    if (!way.curriculum) continue;
    pipeline.datasets.back().weights = [session, median = median_contrast(sessions)](std::uint64_t epoch) {
      return curriculum_weights(*session, median, 4000 * static_cast<std::int64_t>(epoch));
    };
  }
  data::LoaderOptions options;
  options.batch_size = 8;
  options.shuffle = true;
  options.seed = 3;
  options.readers = way.readers;
  return std::make_unique<data::Loader>(std::move(pipeline), options);
}

// The batches from here to the end of epoch 2, at most `most`.
std::vector<Seen> rest_of(data::Loader& loader, std::size_t most = 1000) {
  std::vector<Seen> stream;
  while (loader.epoch() < 3 && stream.size() < most) {
    const auto batch = loader.next();
    if (!batch) continue;
    Seen& seen = stream.emplace_back();
    for (const auto& group : batch->groups) {
      seen.rows.push_back(group.positions.size());
      for (std::size_t f = 0; f < group.fields.size(); ++f)
        seen.bytes.append(reinterpret_cast<const char*>(group.data[f]), group.fields[f].bytes() * group.positions.size());
    }
  }
  return stream;
}

TEST_F(SessionSourceTest, TheStreamIsTheSameHoweverItIsRead) {
  std::string text = dataset_text();
  text.replace(text.find("sessions: [a]"), 13, "sessions: [a, b]");
  write("dataset.yaml", text);
  write("sessions/b.yaml", "session: b\ncids: [1, 0, 2]\ntypes: [backimage, gaborium]\n");
  write("b/backimage.h5", "");
  write("b/gaborium.h5", "");
  const Sessions sessions = open();
  for (const bool curriculum : {false, true}) {
    const std::vector<Seen> stream = rest_of(*loader_of(sessions, {.curriculum = curriculum}));
    std::array<std::size_t, 2> rows{};
    for (const Seen& seen : stream) {
      for (std::size_t group = 0; group < 2; ++group) rows[group] += seen.rows.at(group);
    }
    EXPECT_GT(rows[0], 50U);
    EXPECT_GT(rows[1], rows[0]) << "of two types";
    for (const std::uint64_t cache_bytes : {0, 900, 1 << 20}) {
      for (const int readers : {1, 2, 8}) {
        const Way way{.cache_bytes = cache_bytes, .readers = readers, .curriculum = curriculum};
        EXPECT_TRUE(rest_of(*loader_of(sessions, way)) == stream) << cache_bytes << " bytes, " << readers << " readers";
        const auto killed = loader_of(sessions, way);
        const std::size_t before = stream.size() / 3 + static_cast<std::size_t>(readers);
        (void)rest_of(*killed, before);
        const auto resumed = loader_of(sessions, way);
        resumed->load_state(killed->state());
        EXPECT_TRUE(rest_of(*resumed) == std::vector<Seen>(stream.begin() + static_cast<std::ptrdiff_t>(before), stream.end()));
      }
    }
  }
}

}  // namespace
}  // namespace millrace::recipes::neural_response
