// Tests the way from uvh5 files to the files of a run; tests/cosmology does the same with files that pyuvdata wrote.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "millrace/base/fs.h"
#include "recipes/cosmology/entry.h"
#include "recipes/cosmology/originals/uvh5_convert.h"
#include "recipes/cosmology/originals/uvh5_parts.h"
#include "recipes/cosmology/sky_problems.h"
#include "tests/support/refusal.h"

namespace millrace::recipes::cosmology::uvh5 {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace stdfs = std::filesystem;

// An observation whose values are a formula of baseline, time, frequency and polarisation.
struct Observation {
  std::vector<Baseline> baselines = {{0, 0}, {0, 1}, {0, 2}, {1, 2}};
  std::vector<double> times = {2459000.10, 2459000.11, 2459000.12};
  std::vector<double> freq_hz = {100e6, 101e6, 102e6, 103e6, 104e6};
  std::vector<std::int64_t> polarisations = {-5, -8};
  bool baseline_major = false, wide = false, spectral_axis = false;
  std::vector<Baseline> turned;  // rows of these baselines have their antennas in the other order

  static std::complex<float> value(const Baseline& baseline, double time, double hz, std::int64_t polarisation) {
    return {static_cast<float>(100 * baseline.first + 10 * baseline.second + (time - 2459000) * 1e2),
            static_cast<float>(hz / 1e6 - static_cast<double>(polarisation))};
  }
};

// Writes the observation to a file. `change` may change each value, its flag and its number of samples.
using Change =
    std::function<void(const Baseline&, double time, double hz, std::int64_t pol, std::complex<float>&, std::uint8_t&, float&)>;

stdfs::path write_file_of(const stdfs::path& path, const Observation& seen, const Change& change = {}) {
  std::vector<std::pair<Baseline, double>> rows;
  for (std::size_t i = 0; i < seen.baselines.size() * seen.times.size(); ++i) {
    const std::size_t b = seen.baseline_major ? i / seen.times.size() : i % seen.baselines.size();
    const std::size_t t = seen.baseline_major ? i % seen.times.size() : i / seen.baselines.size();
    rows.emplace_back(seen.baselines[b], seen.times[t]);
  }
  std::vector<std::int64_t> first;
  std::vector<std::int64_t> second;
  std::vector<double> times;
  std::vector<std::complex<float>> narrow;
  std::vector<std::uint8_t> flags;
  std::vector<float> samples;
  for (const auto& [baseline, time] : rows) {
    const bool turns = std::find(seen.turned.begin(), seen.turned.end(), baseline) != seen.turned.end();
    first.push_back(turns ? baseline.second : baseline.first);
    second.push_back(turns ? baseline.first : baseline.second);
    times.push_back(time);
    for (const double hz : seen.freq_hz) {
      for (const std::int64_t pol : seen.polarisations) {
        auto value = Observation::value(baseline, time, hz, turns ? exchanged(pol) : pol);
        if (turns) value = std::conj(value);
        flags.push_back(0);
        samples.push_back(1);
        if (change) change(baseline, time, hz, pol, value, flags.back(), samples.back());
        narrow.push_back(value);
      }
    }
  }
  const std::vector<std::complex<double>> wide(narrow.begin(), narrow.end());
  const auto size = [](const auto& values) { return static_cast<std::int64_t>(values.size()); };
  Shape shape{size(rows), size(seen.freq_hz), size(seen.polarisations)};
  if (seen.spectral_axis) shape.insert(shape.begin() + 1, 1);
  const Shape freq_shape = seen.spectral_axis ? Shape{1, size(seen.freq_hz)} : Shape{size(seen.freq_hz)};
  const auto bytes = [](const auto& values) { return std::as_bytes(std::span(values)); };
  const std::vector<hdf5::Array> arrays = {
      {.name = "/Header/ant_1_array", .dtype = DType::i64, .shape = {size(rows)}, .bytes = bytes(first)},
      {.name = "/Header/ant_2_array", .dtype = DType::i64, .shape = {size(rows)}, .bytes = bytes(second)},
      {.name = "/Header/time_array", .dtype = DType::f64, .shape = {size(rows)}, .bytes = bytes(times)},
      {.name = "/Header/freq_array", .dtype = DType::f64, .shape = freq_shape, .bytes = bytes(seen.freq_hz)},
      {.name = "/Header/polarization_array",
       .dtype = DType::i64,
       .shape = {size(seen.polarisations)},
       .bytes = bytes(seen.polarisations)},
      {.name = "/Data/visdata",
       .dtype = seen.wide ? DType::c128 : DType::c64,
       .shape = shape,
       .bytes = seen.wide ? bytes(wide) : bytes(narrow)},
      {.name = "/Data/flags", .dtype = DType::boolean, .shape = shape, .bytes = bytes(flags)},
      {.name = "/Data/nsamples", .dtype = DType::f32, .shape = shape, .bytes = bytes(samples)}};
  hdf5::write_file(path, arrays);
  return path;
}

std::vector<std::complex<float>> vis_of(const stdfs::path& path) {
  const SkyFile file = hdf5::File::open(path);
  const Shape shape = file->dataset("/vis").shape;
  std::vector<std::complex<float>> values(static_cast<std::size_t>(*element_count(shape)));
  if (file->dataset("/vis").dtype == DType::c128) {
    std::vector<std::complex<double>> wide(values.size());
    file->read("/vis", Shape(3, 0), shape, std::as_writable_bytes(std::span(wide)));
    return {wide.begin(), wide.end()};
  }
  file->read("/vis", Shape(3, 0), shape, std::as_writable_bytes(std::span(values)));
  return values;
}

class Uvh5 : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = stdfs::path(testing::TempDir()) /
              ("uvh5_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) + std::to_string(::getpid()));
    stdfs::remove_all(folder_);
    stdfs::create_directories(folder_);
  }
  void TearDown() override { stdfs::remove_all(folder_); }

  stdfs::path made(const std::string& name, const Observation& seen, const Change& change = {}) {
    return write_file_of(folder_ / name, seen, change);
  }
  stdfs::path out() {
    const stdfs::path path = folder_ / ("out" + std::to_string(outs_++));
    stdfs::create_directories(path);
    return path;
  }
  stdfs::path converted(const Wish& wish) {
    const stdfs::path to = out();
    told_.clear();
    for (const auto& [word, line] : convert(wish, to).notices) told_ += word + ": " + line + "\n";
    return to;
  }
  std::string refused(const Wish& wish) {
    return refusal<DataError>([&] { (void)convert(wish, out()); });
  }

  stdfs::path folder_;
  std::string told_;
  int outs_ = 0;
};

TEST_F(Uvh5, AnyOrderOfRowsAndAntennasGivesTheSameValues) {
  Observation plain;
  plain.polarisations = {-5, -7, -8};
  Observation other = plain;
  other.baseline_major = other.spectral_axis = true;
  other.turned = {{0, 2}, {1, 2}};
  std::reverse(other.freq_hz.begin(), other.freq_hz.end());
  std::reverse(other.times.begin(), other.times.end());
  const stdfs::path a = converted({.foreground = {made("a.uvh5", plain)}});
  EXPECT_THAT(told_, HasSubstr("split: each polarisation becomes separate files of the same sky and times"));
  const stdfs::path b = converted({.foreground = {made("b.uvh5", other)}});
  for (const std::int64_t pol : {-5, -7, -8}) {
    const std::string name = "foreground/" + polarisation_name(pol) + "-t0000.h5";
    std::vector<std::complex<float>> expected;
    std::vector<std::complex<float>> turned;
    for (const Baseline& baseline : {Baseline{0, 1}, Baseline{0, 2}, Baseline{1, 2}}) {
      for (const double hz : plain.freq_hz) {
        for (const double time : plain.times) {
          expected.push_back(Observation::value(baseline, time, hz, pol));
          const bool turns = baseline.second == 2;  // the file's first row is (2,0), which sets the direction of the baseline
          turned.push_back(turns ? std::conj(Observation::value(baseline, time, hz, exchanged(pol))) : expected.back());
        }
      }
    }
    EXPECT_EQ(vis_of(a / name), expected) << name;
    EXPECT_EQ(vis_of(b / name), turned) << name;
  }
  // Both observations in one conversion: a row with another direction than the first row of its baseline must be reversed.
  Observation late = other;
  for (double& time : late.times) time += 1;
  const stdfs::path both = converted({.foreground = {folder_ / "a.uvh5", made("late.uvh5", late)}, .times_per_file = -1});
  const auto values = vis_of(both / "foreground/xy-t0000.h5");
  for (std::size_t t = 0; t < 6; ++t) {
    const double time = t < 3 ? plain.times[t] : plain.times[t - 3] + 1;
    EXPECT_EQ(values[5 * 6 + t], Observation::value({0, 2}, time, 100e6, -7)) << t;
  }
}

TEST_F(Uvh5, FilesJoinAlongEveryAxis) {
  const Observation whole;
  std::vector<stdfs::path> parts;
  for (int i = 0; i < 16; ++i) {
    Observation part;
    part.times = (i & 1) != 0 ? std::vector<double>{whole.times[0]} : std::vector<double>{whole.times[1], whole.times[2]};
    part.freq_hz = (i & 2) != 0 ? std::vector<double>{100e6, 103e6} : std::vector<double>{101e6, 102e6, 104e6};
    part.polarisations = {(i & 4) != 0 ? -5 : -8};
    part.baselines = (i & 8) != 0 ? std::vector<Baseline>{{0, 1}} : std::vector<Baseline>{{1, 2}, {0, 2}, {0, 0}};
    parts.push_back(made("part" + std::to_string(i) + ".uvh5", part));
  }
  const stdfs::path one = converted({.foreground = {made("whole.uvh5", whole)}});
  const stdfs::path joined_up = converted({.foreground = parts});
  for (const char* name : {"foreground/xx-t0000.h5", "foreground/yx-t0000.h5"}) {
    const auto values = vis_of(one / name);
    EXPECT_EQ(values.size(), 3U * 5 * 3);
    EXPECT_EQ(vis_of(joined_up / name), values);
  }
  const std::string twice = refused({.foreground = {folder_ / "whole.uvh5", parts[0]}});
  EXPECT_THAT(twice, HasSubstr("part0.uvh5: 12 of its values of yx are also in an earlier file"));
  EXPECT_THAT(refused({.foreground = {parts.begin(), parts.end() - 1}}),
              HasSubstr("foreground xx: 2 of 45 values are in no file"));
}

TEST_F(Uvh5, AFewBaselinesAtATimeMakeTheSameFiles) {
  Observation night;
  night.wide = true;
  night.turned = {{1, 2}};
  const Change flag = [](const Baseline& baseline, double time, double hz, std::int64_t, auto&, std::uint8_t& flagged, float&) {
    flagged = (baseline == Baseline{0, 2} && time == 2459000.11) || (baseline == Baseline{1, 2} && hz == 102e6) ? 1 : 0;
  };
  const stdfs::path file = made("a.uvh5", night, flag);
  const Wish wish{.foreground = {file}, .signal = {file}, .times_per_file = 1, .selection = {.autos = true}};
  const stdfs::path at_once = converted(wish);
  const std::string told = told_;
  for (const std::uint64_t baselines : {1, 3}) {  // with 3 the last block has fewer baselines
    Wish little = wish;
    little.memory = baselines * 5 * 3 * static_cast<std::uint64_t>(kBytesOfAValue);
    const stdfs::path piece_by_piece = converted(little);
    const std::string passes = baselines == 1 ? "4 times for each polarisation, 1" : "2 times for each polarisation, 3";
    EXPECT_THAT(
        told_, HasSubstr("memory: the foreground is read " + passes + " baselines at a time, because all baselines take 2.0 kB"));
    EXPECT_THAT(told_, HasSubstr("memory: the signal is read "));
    std::string others;  // all other lines
    std::istringstream lines(told_);
    for (std::string line; std::getline(lines, line);) others += line.starts_with("memory") ? "" : line + "\n";
    EXPECT_EQ(others, told);
    std::size_t files = 0;
    for (const char* role : {"foreground", "signal"}) {
      for (const auto& entry : stdfs::directory_iterator(piece_by_piece / role)) {
        EXPECT_EQ(vis_of(entry.path()), vis_of(at_once / role / entry.path().filename())) << entry.path();
        ++files;
      }
    }
    EXPECT_EQ(files, 12U);  // so no temporary file is left
  }
  const auto refusals = [&](std::uint64_t memory) {
    const stdfs::path nan =
        made("nan.uvh5", {}, [](const Baseline&, double, double hz, std::int64_t, auto& value, std::uint8_t& flagged, float&) {
          if (hz == 102e6) value = {std::nanf(""), 0};
          flagged = hz == 100e6 ? 1 : 0;
        });
    return refused({.foreground = {file, nan}, .signal = {nan, nan}, .flags = {.most = 0.1}, .memory = memory});
  };
  EXPECT_EQ(refusals(1), refusals(0));
  EXPECT_THAT(refusals(1), HasSubstr("nan.uvh5: 45 of its values of xx are also in an earlier file"));
  EXPECT_THAT(refusals(1), HasSubstr("signal yx: 6 of 45 values are not finite and not flagged"));
}

TEST_F(Uvh5, TheSignalsBaselinesAreTurnedAsTheForegroundsAre) {
  Observation plain;
  plain.polarisations = {-5, -7, -8};
  Observation other = plain;
  other.turned = {{0, 2}, {1, 2}};
  const stdfs::path to = converted({.foreground = {made("a.uvh5", plain)}, .signal = {made("b.uvh5", other)}});
  for (const char* name : {"xx-t0000.h5", "xy-t0000.h5", "yx-t0000.h5"})
    EXPECT_EQ(vis_of(to / "signal" / name), vis_of(to / "foreground" / name)) << name;
  EXPECT_THAT(told_, testing::Not(HasSubstr("pairing")));
  other.turned = {};
  other.baselines = {{4, 5}, {4, 6}, {5, 6}};
  (void)converted({.foreground = {folder_ / "a.uvh5"}, .signal = {made("c.uvh5", other)}});
  EXPECT_THAT(told_, HasSubstr("pairing: signal and foreground have different antennas: baselines are paired in the order of "
                               "their antennas' numbers; the first pair is 4-5 with 0-1\n"));
}

TEST_F(Uvh5, ChoicesAreTakenAndSaid) {
  const stdfs::path file = made("a.uvh5", {.wide = true});
  const stdfs::path to = converted({.foreground = {file},
                                    .times_per_file = 1,
                                    .selection = {.polarisations = {-8},
                                                  .baselines = {{2, 0}, {0, 0}},
                                                  .channels = {1, 3},
                                                  .times = {1, -1},
                                                  .band_mhz = std::pair{100.5, 104.5}}});
  EXPECT_THAT(told_, HasSubstr("chosen: polarisations yx of xx, yx\n"));
  EXPECT_THAT(told_, testing::Not(HasSubstr("split: ")));
  EXPECT_THAT(told_, HasSubstr("taken: 2 baselines, 2 channels, 2 times, polarisations yx\n"));
  EXPECT_THAT(told_, HasSubstr("foreground: 2 files of [2,2,1] baselines, channels, times"));
  const auto file_of = hdf5::File::open(to / "foreground" / "yx-t0001.h5");
  EXPECT_EQ(file_of->dataset("/vis").dtype, DType::c128);
  std::vector<std::complex<float>> expected;
  for (const Baseline& baseline : {Baseline{0, 0}, Baseline{0, 2}}) {
    for (const double hz : {102e6, 103e6}) expected.push_back(Observation::value(baseline, 2459000.12, hz, -8));
  }
  EXPECT_EQ(vis_of(to / "foreground" / "yx-t0001.h5"), expected);
  EXPECT_FALSE(stdfs::exists(to / "foreground" / "xx-t0000.h5"));
  (void)converted({.foreground = {file}, .selection = {.autos = true}});
  EXPECT_THAT(told_, HasSubstr("taken: 4 baselines"));
  (void)converted({.foreground = {file}});
  EXPECT_THAT(told_, HasSubstr("chosen: 1 auto-correlation is left out; --autos keeps them"));
  EXPECT_THAT(told_, HasSubstr("taken: 3 baselines"));
}

TEST_F(Uvh5, FlagsFollowTheRuleAndAreCounted) {
  const Change flag = [](const Baseline& baseline, double time, double hz, std::int64_t pol, std::complex<float>& value,
                         std::uint8_t& flagged, float& samples) {
    if (pol != -5 || baseline != Baseline{0, 1}) return;
    if (time == 2459000.10 && (hz == 100e6 || hz == 102e6 || hz == 103e6)) flagged = 1;
    if (time == 2459000.11) samples = 0;
    if (flagged != 0 || samples == 0) value = {std::nanf(""), 1e30F};
  };
  const stdfs::path file = made("a.uvh5", {}, flag);
  const stdfs::path to = converted({.foreground = {file}});
  EXPECT_THAT(
      told_, HasSubstr("flags: foreground xx: 17.78 % of the values (8) interpolated, among them 1 whole spectrum along time\n"));
  EXPECT_THAT(told_, HasSubstr("flags: foreground yx: none\n"));
  const auto values = vis_of(to / "foreground/xx-t0000.h5");
  const auto at = [&](std::size_t f, std::size_t t) { return values[f * 3 + t]; };
  const auto real = [](double hz, double time = 2459000.10) { return Observation::value({0, 1}, time, hz, -5); };
  EXPECT_EQ(at(0, 0), real(101e6));  // beyond the last unflagged value, that value is repeated
  EXPECT_EQ(at(1, 0), real(101e6));
  EXPECT_NEAR(std::abs(at(2, 0) - real(102e6)), 0, 1e-4);  // the values are linear in frequency, so interpolation is exact
  EXPECT_NEAR(std::abs(at(3, 0) - real(103e6)), 0, 1e-4);
  EXPECT_NEAR(std::abs(at(1, 1) - (at(1, 0) + at(1, 2)) * 0.5F), 0, 1e-4);  // the whole spectrum is flagged, so it is filled
                                                                            // along time
  const auto zeros = vis_of(converted({.foreground = {file}, .flags = {.rule = FlagRule::zero}}) / "foreground/xx-t0000.h5");
  EXPECT_EQ(zeros[0], std::complex<float>());
  EXPECT_EQ(zeros[1 * 3], real(101e6));
  EXPECT_THAT(
      refused({.foreground = {file}, .flags = {.most = 0.1}}),
      HasSubstr("foreground xx: 17.8 % of the values are flagged, more than 10.0 %\n  where    /Data/flags\n  next     "));
  EXPECT_THAT(refused({.foreground = {file}, .flags = {.rule = FlagRule::keep}}), HasSubstr("8 of 45 values are not finite"));
  const stdfs::path dead =
      made("dead.uvh5", {}, [](const Baseline& baseline, double, double, std::int64_t, auto&, std::uint8_t& f, float&) {
        f = baseline == Baseline{1, 2} ? 1 : 0;
      });
  EXPECT_THAT(refused({.foreground = {dead}}), HasSubstr("baseline 1-2 is flagged completely"));
}

TEST_F(Uvh5, EveryMistakeOfADataSetComesAtOnce) {
  const stdfs::path nan =
      made("nan.uvh5", {},
           [](const Baseline& b, double time, double hz, std::int64_t pol, std::complex<float>& value, std::uint8_t&, float&) {
             if (b == Baseline{0, 2} && time == 2459000.11 && hz == 102e6 && pol == -8) value = {HUGE_VALF, 0};
           });
  const std::string bad = refused({.foreground = {nan}});
  EXPECT_EQ(bad,
            "DataError  foreground yx: 1 of 45 values are not finite and not flagged\n"
            "  where    the first: baseline 0-2, channel 2 (102.000 MHz), time 1 (JD 2459000.11000)\n"
            "  next     choose baselines, channels or times without them, or give --fill-bad: then they count as flagged");
  EXPECT_EQ(refused({.foreground = {nan}, .flags = {.fill_bad = true}}), "accepted");
  std::ofstream(folder_ / "none.uvh5") << "no HDF5";
  const float zero = 0;
  const std::vector<hdf5::Array> alien = {
      {.name = "/vis", .dtype = DType::f32, .shape = {1}, .bytes = std::as_bytes(std::span(&zero, 1))}};
  hdf5::write_file(folder_ / "alien.uvh5", alien);
  const std::string all = refused({.foreground = {nan, folder_ / "none.uvh5", folder_ / "alien.uvh5", folder_ / "gone.uvh5"},
                                   .selection = {.polarisations = {-6}, .baselines = {{7, 8}}, .times = {2, 9}}});
  for (const char* part :
       {"problems of the data", "none.uvh5", "alien.uvh5: /Header/ant_1_array is missing", "gone.uvh5",
        "no file has the polarisation yy", "no file has the baseline 7-8", "there are 3 times, 2:9 is not among them"})
    EXPECT_THAT(all, HasSubstr(part));
  Observation other;
  other.freq_hz.pop_back();
  EXPECT_THAT(refused({.foreground = {made("a.uvh5", {})}, .signal = {made("b.uvh5", other)}}),
              HasSubstr("the signal has 4 channels from 100.000 MHz, the foreground 5 from 100.000 MHz"));
  Observation sparse;  // antennas and times that have nothing to do with each other
  std::vector<stdfs::path> files;
  for (int i = 0; i < 20; ++i) {
    sparse.baselines = {{i, i + 100}};
    sparse.times = {2459000.0 + i};
    files.push_back(made("sparse" + std::to_string(i) + ".uvh5", sparse));
  }
  EXPECT_THAT(refused({.foreground = files}),
              HasSubstr("the files have only 20 of the 400 rows for 20 baselines at each of 20 times"));
}

TEST_F(Uvh5, AFolderIsReadyToTrainOn) {
  const stdfs::path to = converted({.foreground = {made("a.uvh5", {})}, .made_signal_rms = 0.5, .made_signals = 6});
  EXPECT_THAT(told_, HasSubstr("signal: 6 generated files, rms 0.5"));
  EXPECT_THAT(told_,
              HasSubstr("padding: 3 baselines to 4, 5 channels to 8, 3 times to 4: the run pads by mirroring (recipe.pad)"));
  const Json config = Json::parse(Fs::real().read_file(to / "train.json"));
  EXPECT_EQ(config, Json::parse(R"({"data": {"batch_size": 4, "dir": "."},
    "recipe": {"add_noise": false, "n_fg": 2, "pad": "mirror", "ra_keep": 3, "scale": 2.0, "split": 1}})"));
  double sum = 0;
  const auto signal = vis_of(to / "signal" / "made-0003.h5");
  for (const auto& value : signal) sum += std::norm(value);
  EXPECT_NEAR(std::sqrt(sum / static_cast<double>(signal.size())), 0.5, 1e-4);
  const stdfs::path real = converted({.foreground = {folder_ / "a.uvh5"}, .signal = {folder_ / "a.uvh5"}});
  EXPECT_TRUE(stdfs::exists(real / "signal" / "yx-t0000.h5"));
  EXPECT_TRUE(stdfs::exists(real / "train.json"));
  EXPECT_TRUE(convert({.foreground = {folder_ / "a.uvh5"}}, out()).config.empty());
}

TEST_F(Uvh5, LengthsAreChosenSoThatTenFilesComeOfIt) {
  Observation night;
  night.times.clear();
  for (int i = 0; i < 60; ++i) night.times.push_back(2459000.0 + i * 1e-4);
  const stdfs::path file = made("a.uvh5", night);
  (void)converted({.foreground = {file}});
  EXPECT_THAT(told_, HasSubstr("foreground: 10 files of [3,5,12] baselines, channels, times"));
  (void)converted({.foreground = {file}, .times_per_file = 16});
  EXPECT_THAT(told_, HasSubstr("left out: the last 12 of 60 times of the foreground, too few for a file of 16"));
  EXPECT_THAT(told_, HasSubstr("foreground: 6 files of [3,5,16]"));
  EXPECT_THAT(refused({.foreground = {file}, .times_per_file = 61}),
              HasSubstr("the foreground has 60 times, but a file needs 61"));
}

TEST_F(Uvh5, TheCommandSaysWhatIsWrongWithItsWords) {
  const auto said = [](const std::vector<std::string>& words) { return refusal([&] { (void)uvh5_command(words); }); };
  const std::string all = said({"--pol=zz", "--baselines=1", "--channels=5", "--band=9", "--flags=guess", "--max-flagged=2",
                                "--make-signal=-1", "--times-per-file=0", "--antenas=1", (folder_ / "no").string()});
  for (const char* part : {"10 problems", "--pol is \"zz\", no polarisation", "--baselines is \"1\", no pair of antennas",
                           "--channels is \"5\", not BEGIN:END", "--band is \"9\"", "--flags is \"guess\", no rule",
                           "--max-flagged is \"2\", no share", "--make-signal is \"-1\"", "--times-per-file is \"0\"",
                           "--out is missing", "did you mean --antennas?"})
    EXPECT_THAT(all, HasSubstr(part));
  EXPECT_THAT(said({"--out=" + (folder_ / "o").string()}), HasSubstr("no file is named"));
  made("a.uvh5", {});
  EXPECT_THAT(said({folder_.string(), "--out=" + folder_.string()}), HasSubstr("the folder is not empty"));
  EXPECT_EQ(said({folder_.string(), "--make-signal=0.5", "--out", (folder_ / "o").string()}), "accepted");
  EXPECT_TRUE(stdfs::exists(folder_ / "o" / "train.json"));
}

}  // namespace
}  // namespace millrace::recipes::cosmology::uvh5
