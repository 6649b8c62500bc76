// Tests of sample sessions: their properties, and the best possible prediction of their counts.
#include "recipes/neural_response/make_data.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <numbers>

#include "millrace/base/error.h"
#include "millrace/base/json.h"
#include "millrace/base/philox.h"
#include "recipes/neural_response/sessions/session.h"
#include "recipes/neural_response/sessions/session_source.h"
#include "tests/support/refusal.h"

namespace millrace::recipes::neural_response {
namespace {

namespace stdfs = std::filesystem;

// The bits per spike that `rate` (t, u) gains over each unit's own mean count, as a mean over units.
template <class Rate>
double bits_per_spike(const SampleSessions& size, const SampleSession& made, const Rate& rate) {
  double all = 0;
  for (std::int64_t u = 0; u < size.units; ++u) {
    std::vector<double> counts;
    double spikes = 0;
    for (std::int64_t t = 0; t < size.bins; ++t) {
      double count = 0;
      for (std::int64_t half = 0; half < 2; ++half)
        count += made.counts[static_cast<std::size_t>((2 * t + half) * size.units + u)];
      counts.push_back(count);
      spikes += count;
    }
    const double mean = spikes / static_cast<double>(size.bins);
    double gain = 0;
    for (std::int64_t t = 0; t < size.bins; ++t) {
      const double r = rate(t, u, mean);
      const double y = counts[static_cast<std::size_t>(t)];
      gain += (y * std::log(r + 1e-8) - r) - (y * std::log(mean + 1e-8) - mean);
    }
    all += gain / (spikes * std::numbers::ln2);
  }
  return all / static_cast<double>(size.units);
}

TEST(SampleSessions, TrueRatesReachTheCeilingAndMeansReachNothing) {
  const SampleSessions size{.sessions = 1, .units = 6, .bins = 200000, .side = 9, .lags = 12};
  const SampleSession made = sample_session(size, 7, 0);
  const auto truth = [&](std::int64_t t, std::int64_t u) { return made.rates[static_cast<std::size_t>(t * size.units + u)]; };
  EXPECT_NEAR(ceiling_of(1.0), 0.7213, 1e-4);
  EXPECT_NEAR(ceiling_of(0.5), 0.1803, 1e-4);
  EXPECT_NEAR(ceiling_of(1.5), 1.6230, 1e-4);
  const double best = bits_per_spike(size, made, [&](auto t, auto u, double) { return truth(t, u); });
  EXPECT_NEAR(best, ceiling_of(1.0), 0.02);
  EXPECT_NEAR(bits_per_spike(size, made, [](auto, auto, double mean) { return mean; }), 0, 1e-6);
  Philox random(3);
  EXPECT_LT(bits_per_spike(size, made, [&](auto t, auto u, double) { return truth(t, u) * std::exp(0.5 * random.normal()); }),
            best - 0.05);
}

TEST(SampleSessions, AreWhatTheyClaim) {
  const SampleSessions size{.sessions = 1, .units = 5, .bins = 6000, .side = 15, .lags = 12};
  const SampleSession made = sample_session(size, 7, 0);
  double sum = 0;
  double squares = 0;
  for (const std::uint8_t level : made.frames) {
    sum += level;
    squares += static_cast<double>(level) * level;
  }
  const auto count = static_cast<double>(made.frames.size());
  EXPECT_NEAR(sum / count, 127, 0.5);
  EXPECT_NEAR(std::sqrt(squares / count - sum / count * (sum / count)), 40, 0.5);
  double rate = 0;
  for (const double value : made.rates) rate += value / static_cast<double>(made.rates.size());
  EXPECT_NEAR(rate, 0.2, 0.02);
  std::int64_t lost = 0;
  for (const std::uint8_t valid : made.valid) lost += valid == 0 ? 1 : 0;
  EXPECT_EQ(lost, 2 * 120);  // 2 % of 6,000 bins
  EXPECT_NE(sample_session(size, 8, 0).frames, made.frames);
  EXPECT_NE(sample_session(size, 7, 1).frames, made.frames);
  EXPECT_EQ(sample_session(size, 7, 0).counts, made.counts);
}

// The files describe themselves, so that reading them needs nothing else.
void expect_attributes(const Sessions& sessions, const stdfs::path& folder) {
  for (const std::string& text : sessions.notices) EXPECT_EQ(text.find(".h5"), std::string::npos) << text;
  for (const auto& session : sessions.all) {
    const hdf5::Attributes& attributes = session->parts()[0].file->attributes("/");
    const std::vector<hdf5::Attribute> expected = {
        {"session", session->name()}, {"source_rate", 240.0}, {"type", std::string("synthetic")}};
    EXPECT_TRUE(attributes.all == expected) << session->name();
  }
  std::ifstream in(folder / "dataset.yaml");
  std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::size_t at = text.find("source_rate: 240");
  ASSERT_NE(at, std::string::npos);
  std::ofstream(folder / "other.yaml") << text.replace(at, 16, "source_rate: 480");
  EXPECT_EQ(refusal_message<DataError>([&] { (void)open_sessions(RecipeConfig{}, folder / "other.yaml", {}); }).what,
            "synthetic_00/synthetic.h5 has bins at 240 Hz, as its attribute source_rate says; sampling.source_rate is 480");
}

TEST(SampleSessions, AFolderIsAllThatARunNeedsAndTheSameEachTime) {
  const stdfs::path folder = stdfs::current_path() / ("sample_sessions_" + std::to_string(::getpid()));
  const SampleSessions size{.sessions = 2, .units = 4, .bins = 1200, .side = 9, .lags = 6};
  std::vector<std::map<std::string, std::string>> all;
  for (const char* name : {"one", "two"}) {
    write_sample_sessions(size, folder / name, 5);
    auto& files = all.emplace_back();
    for (const auto& entry : stdfs::recursive_directory_iterator(folder / name)) {
      std::ifstream in(entry.path(), std::ios::binary);
      if (entry.is_regular_file())
        files[stdfs::relative(entry.path(), folder / name).string()] = {std::istreambuf_iterator<char>(in), {}};
    }
  }
  EXPECT_EQ(all[0].size(), 7U);
  EXPECT_TRUE(all[0] == all[1]);
  EXPECT_EQ(Json::parse(all[0].at("truth.json")).at("units"), 4);

  const Sessions sessions = open_sessions(RecipeConfig{}, folder / "one" / "dataset.yaml", {});
  ASSERT_EQ(sessions.all.size(), 2U);
  expect_attributes(sessions, folder / "one");
  const Session& session = *sessions.all[1];
  EXPECT_EQ(session.name(), "synthetic_01");
  EXPECT_EQ(session.units(), 4);
  EXPECT_EQ(session.bins(), 1200);
  EXPECT_EQ(session.trials(), 5);
  EXPECT_EQ(session.behavior_dim(), 42);
  EXPECT_EQ(session.lags(), 6);
  const SampleSession made = sample_session(size, 5, 1);
  std::vector<float> counts(4);
  std::vector<std::uint8_t> frame(81);
  for (const std::int64_t bin : {0, 7, 1199}) {
    session.counts(bin, counts);
    for (std::size_t u = 0; u < 4; ++u) {
      const auto at = static_cast<std::size_t>(2 * bin) * 4 + u;
      EXPECT_EQ(counts[u], static_cast<float>(made.counts[at] + made.counts[at + 4]));
    }
    session.read_frames(bin, 1, frame);
    EXPECT_TRUE(std::equal(frame.begin(), frame.end(), made.frames.begin() + bin * 81));
  }
  stdfs::remove_all(folder);
}

TEST(SampleSessions, PresetsHaveTheirSizes) {
  EXPECT_EQ(sample_sessions_of("smoke")->bins, 7500);
  EXPECT_EQ(sample_sessions_of("small")->units, 32);
  EXPECT_EQ(sample_sessions_of("full")->side, 51);
  EXPECT_FALSE(sample_sessions_of("no such preset").has_value());
}

}  // namespace
}  // namespace millrace::recipes::neural_response
