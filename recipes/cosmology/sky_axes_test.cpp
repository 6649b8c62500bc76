#include "recipes/cosmology/sky_axes.h"

#include <gmock/gmock.h>

#include <cstring>
#include <map>
#include <numbers>

namespace millrace::recipes::cosmology {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pointwise;

// A file in memory with any data sets and attributes.
class SaidSky final : public hdf5::File {
 public:
  explicit SaidSky(const std::string& name) : path_("sky/signal/" + name) {}

  template <class Number>
  SaidSky& with(const std::string& name, DType dtype, const std::vector<Number>& values, Shape shape = {}) {
    if (shape.empty()) shape = {static_cast<std::int64_t>(values.size())};
    sets_.push_back({name, dtype, shape, {}, false, ""});
    const auto bytes = std::as_bytes(std::span(values));
    bytes_[name].assign(bytes.begin(), bytes.end());
    return *this;
  }
  SaidSky& with_freq(const std::vector<double>& values) { return with("/index_map/freq", DType::f64, values); }
  SaidSky& saying(const std::string& object, const std::string& name, const std::string& value) {
    attributes_[object].all.push_back({.name = name, .value = value});
    return *this;
  }
  SaidSky& unread(const std::string& name, const std::string& reason, const std::string& text = "") {
    unreadable_.push_back({name, reason, text});
    return *this;
  }

  const std::filesystem::path& path() const override { return path_; }
  std::span<const hdf5::Dataset> datasets() const override { return sets_; }
  std::span<const hdf5::Unreadable> unreadable() const override { return unreadable_; }
  const hdf5::Attributes& attributes(std::string_view object) const override { return attributes_[std::string(object)]; }
  const hdf5::Dataset& dataset(std::string_view) const override { return sets_.front(); }
  void read(std::string_view name, std::span<const std::int64_t>, std::span<const std::int64_t>,
            std::span<std::byte> out) const override {
    std::memcpy(out.data(), bytes_.at(std::string(name)).data(), out.size());
  }
  void will_need(std::string_view, std::span<const std::int64_t>, std::span<const std::int64_t>) const override {}

 private:
  std::filesystem::path path_;
  std::vector<hdf5::Dataset> sets_;
  std::vector<hdf5::Unreadable> unreadable_;
  mutable std::map<std::string, hdf5::Attributes> attributes_;
  std::map<std::string, std::vector<std::byte>> bytes_;
};

const Shape kShape = {2, 4, 3};
const std::vector<double> kMhz = {100, 101, 102, 103};

struct Read {
  SkyWords words;
  std::vector<Problem> problems;
};
Read read(const SaidSky& file) {
  Read result;
  result.words = words_of(file, "/vis", kShape, result.problems);
  return result;
}

TEST(SkyWords, FrequenciesOfEachFormAreMegahertz) {
  const auto mhz = [](const SaidSky& file) {
    const Read found = read(file);
    EXPECT_THAT(found.problems, IsEmpty());
    EXPECT_THAT(found.words.unread, IsEmpty());
    return found.words.freq_mhz;
  };
  std::vector<double> hertz, giga, redshift;
  for (const double value : kMhz) {
    hertz.push_back(value * 1e6);
    giga.push_back(value / 1e3);
    redshift.push_back(1420.405751768 / value - 1);
  }
  const auto near = Pointwise(DoubleNear(1e-9), kMhz);
  EXPECT_THAT(mhz(SaidSky("a").with_freq(kMhz)), near);
  EXPECT_THAT(mhz(SaidSky("a").with_freq(hertz)), near) << "by their size";
  EXPECT_THAT(mhz(SaidSky("a").with_freq(hertz).saying("/index_map/freq", "units", "Hz")), near);
  EXPECT_THAT(mhz(SaidSky("a").with_freq(giga).saying("/index_map/freq", "unit", " GHz")), near);
  EXPECT_THAT(mhz(SaidSky("a").with<float>("/index_map/freq", DType::f32, {100, 101, 102, 103})), near);
  EXPECT_THAT(mhz(SaidSky("a").with<std::uint16_t>("/index_map/freq", DType::u16, {100, 101, 102, 103})), near);
  EXPECT_THAT(mhz(SaidSky("a").with("/index_map/redshift", DType::f64, redshift)), near);
  EXPECT_THAT(mhz(SaidSky("a")), IsEmpty());
}

TEST(SkyWords, WhatIsNoAxisIsAProblemOrTold) {
  Read found = read(SaidSky("a").with_freq({100, 101, 102}));
  ASSERT_EQ(found.problems.size(), 1U);
  EXPECT_EQ(found.problems[0].what, "signal/a: /index_map/freq has 3 numbers, but the cube has 4 frequencies");
  found = read(SaidSky("a").with_freq({100, std::numeric_limits<double>::infinity(), 102, 103}));
  ASSERT_EQ(found.problems.size(), 1U);
  EXPECT_THAT(found.problems[0].what, HasSubstr("not finite"));
  found = read(SaidSky("a").unread("/index_map/freq", "a compound"));
  EXPECT_THAT(found.words.unread, ElementsAre("/index_map/freq can't be read: a compound"));
  found = read(SaidSky("a").with<double>("/index_map/freq", DType::f64, {1, 2, 3, 4, 5, 6, 7, 8}, {4, 2}));
  EXPECT_THAT(found.words.unread, ElementsAre("/index_map/freq is f64 [4,2], not a list of numbers"));
  found = read(SaidSky("a").with_freq(kMhz).saying("/index_map/freq", "unit", "channels"));
  EXPECT_THAT(found.words.unread, ElementsAre("/index_map/freq is in \"channels\", an unknown unit: taken as MHz"));
  EXPECT_EQ(found.words.freq_mhz, kMhz);
}

TEST(SkyWords, RightAscensionIsInDegrees) {
  const auto ra = [](const std::string& unit) {
    SaidSky file("a");
    file.with<double>("/index_map/ra", DType::f64, {0, 1, 2});
    if (!unit.empty()) file.saying("/index_map/ra", "unit", unit);
    return read(file).words.ra;
  };
  const double radian = 180 / std::numbers::pi;
  EXPECT_THAT(ra(""), ElementsAre(0, 1, 2));
  EXPECT_THAT(ra("deg"), ElementsAre(0, 1, 2));
  EXPECT_THAT(ra("hours"), ElementsAre(0, 15, 30));
  EXPECT_THAT(ra("Radian"), ElementsAre(0, radian, 2 * radian));
}

TEST(SkyWords, TheUnitWhereverItStands) {
  const std::string padded("Jy\0\0", 4);
  const std::vector<char> bytes(padded.begin(), padded.end());
  EXPECT_EQ(read(SaidSky("a").with("/index_map/unit", DType::u8, bytes)).words.unit, "Jy");
  EXPECT_EQ(read(SaidSky("a").unread("/index_map/unit", "text", "kelvin ")).words.unit, "K");
  EXPECT_EQ(read(SaidSky("a").with<float>("/vis", DType::c64, {0, 0}).saying("/vis", "units", "JANSKY")).words.unit, "Jy");
  EXPECT_EQ(read(SaidSky("a").saying("/", "unit", "mK")).words.unit, "mK");
  EXPECT_EQ(read(SaidSky("a")).words.unit, "");
  const Read both = read(SaidSky("a").saying("/", "unit", "K").unread("/index_map/unit", "text", "Jy"));
  ASSERT_EQ(both.problems.size(), 1U);
  EXPECT_EQ(both.problems[0].what, "signal/a is in Jy by /index_map/unit, in K by the attribute of the file");
}

struct Compared {
  SkyAxes axes;
  std::vector<Problem> problems;
};
Compared compare(const std::vector<const SaidSky*>& files) {
  std::vector<NamedSky> named;
  for (const SaidSky* file : files) named.push_back({file, kShape});
  Compared result;
  result.axes = compared_axes(named, "/vis", "100 to 200 MHz", result.problems);
  return result;
}

TEST(ComparedAxes, TheSameInOtherFormsAgrees) {
  const SaidSky plain = SaidSky("a").with_freq(kMhz), silent("b");
  const SaidSky rounded = SaidSky("c").with_freq({100.0001, 101, 101.9999, 103}).saying("/", "unit", "K");
  const Compared found = compare({&silent, &plain, &rounded});
  EXPECT_THAT(found.problems, IsEmpty());
  EXPECT_EQ(found.axes.words.freq_mhz, kMhz) << "of the first file that says them";
  EXPECT_THAT(found.axes.notices, ElementsAre(HasSubstr("1 of 3 files state no frequencies")));
  EXPECT_THAT(compare({&silent, &silent}).axes.notices, IsEmpty());
}

TEST(ComparedAxes, EachContradictionIsNamedWithBothFiles) {
  const SaidSky plain = SaidSky("a").with_freq(kMhz).with<double>("/index_map/ra", DType::f64, {0, 1, 2});
  const auto against = [&plain](const SaidSky& other) {
    const Compared found = compare({&plain, &other});
    std::string all;
    for (const Problem& problem : found.problems) all += problem.what + "; " + problem.next + "\n";
    return all;
  };
  const std::string turned = against(SaidSky("b").with_freq({103, 102, 101, 100}));
  EXPECT_THAT(turned, HasSubstr("signal/b has channels from 103.000 to 100.000 MHz"));
  EXPECT_THAT(turned, HasSubstr("signal/a from 100.000 to 103.000 MHz"));
  EXPECT_THAT(turned, HasSubstr("the same channels in reverse order"));
  EXPECT_THAT(against(SaidSky("b").with_freq({101, 102, 103, 104})), HasSubstr("regrid or remove the file"));
  EXPECT_THAT(against(SaidSky("b").with<double>("/index_map/ra", DType::f64, {0, 2, 4})), HasSubstr("RA in steps of 2 degrees"));
  EXPECT_THAT(against(SaidSky("b").saying("/", "unit", "Jy")), HasSubstr("signal/b is in Jy, signal/a in kelvin"));
  EXPECT_THAT(against(SaidSky("b").with<double>("/index_map/ra", DType::f64, {359, 0, 1})), IsEmpty()) << "only the step counts";
}

}  // namespace
}  // namespace millrace::recipes::cosmology
