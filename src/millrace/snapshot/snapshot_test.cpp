#include "millrace/snapshot/snapshot.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "millrace/base/error.h"
#include "millrace/base/hash.h"
#include "millrace/base/philox.h"
#include "millrace/snapshot/detail/manifest.h"
#include "millrace/snapshot/detail/test_run.h"

namespace millrace::snapshot {
namespace {

namespace stdfs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

using detail::expect_equal;
using detail::scratch;
using detail::small;

class SnapshotTest : public detail::RunTest {};

TEST_F(SnapshotTest, EverythingComesBackBitForBit) {
  Content content;
  content.step = 123456789;
  const std::uint32_t odd_nan = 0x7FC12345U;
  at::Tensor nan = at::zeros({2});
  std::memcpy(nan.data_ptr(), &odd_nan, 4);
  Tensors& model = content.models["model.first"];
  model = {{"nan", nan}, {"scalar", at::tensor(2.5)}, {"empty", at::empty({0, 7})}, {"none", at::zeros({0}, at::kLong)}};
  for (const at::ScalarType type : {at::kBool, at::kByte, at::kChar, at::kShort, at::kUInt16, at::kInt, at::kUInt32, at::kLong,
                                    at::kUInt64, at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kComplexFloat}) {
    model.emplace(c10::toString(type), at::arange(6).to(type).reshape({2, 3}));
  }
  model.emplace("transposed", at::arange(6).reshape({2, 3}).t());
  model.emplace("conjugated", at::complex(at::ones({2}), at::ones({2})).conj());
  model.emplace("needs grad", at::randn({3}).requires_grad_());
  content.models["model.second"] = {};
  const double infinity = std::numeric_limits<double>::infinity();
  content.parts["schedule"].json = {{"best", infinity}, {"worst", {-infinity, 0.1, -0.0}}, {"big", 18446744073709551615U}};
  content.parts["loader"] = {{{"order", at::arange(3)}}, Json::array()};
  content.parts["empty"] = {};
  content.config = {{"a", {{"b", nullptr}}}};

  const stdfs::path path = save_real(content);
  EXPECT_EQ(path, run_ / "snapshots" / "step-123456789");
  EXPECT_THAT(Fs::real().list(path), ElementsAre("loader.safetensors", "manifest.json", "model.first.safetensors",
                                                 "model.second.safetensors", "state.json"));
  const Content loaded = load(Fs::real(), path);
  expect_equal(content, loaded);
  EXPECT_TRUE(at::equal(loaded.models.at("model.first").at("transposed"), at::arange(6).reshape({2, 3}).t()));
  EXPECT_FALSE(loaded.models.at("model.first").at("conjugated").is_conj());
  EXPECT_EQ(detail::text_of(loaded.models.at("model.first").at("nan")).substr(0, 4), std::string("\x45\x23\xC1\x7F"));
}

TEST_F(SnapshotTest, NotANumberComesBackToo) {
  Content content = small(1);
  content.parts["schedule"].json = {{"best", std::nan("")}};
  const Content loaded = load(Fs::real(), save_real(content));
  EXPECT_TRUE(std::isnan(loaded.parts.at("schedule").json.at("best").get<double>()));
}

TEST_F(SnapshotTest, EqualContentsAreEqualFilesAndDigests) {
  const stdfs::path path = save_real(small(7));
  std::map<std::string, std::string> before;
  for (const std::string& name : Fs::real().list(path)) before[name] = text_of(path / name);
  save_real(small(7));
  for (const auto& [name, text] : before) EXPECT_EQ(text_of(path / name), text) << name;
  EXPECT_THAT(names(), ElementsAre("step-00000007"));
}

TEST_F(SnapshotTest, TheDigestSeesEveryChangeThatMatters) {
  const std::string base = digest(small(7));
  EXPECT_EQ(base.size(), 64U);
  const auto changed = [](const std::function<void(Content&)>& change) {
    Content content = small(7);
    change(content);
    return digest(content);
  };
  EXPECT_EQ(base, changed([](Content& c) { c.config = {{"data", {{"readers", 8}}}}; }));
  EXPECT_EQ(base, changed([](Content& c) { c.models["model"]["weight"] = c.models["model"]["weight"].t().contiguous().t(); }));
  EXPECT_NE(base, changed([](Content& c) { c.models["model"]["weight"][0][0] += 1e-3; }));
  EXPECT_NE(base, changed([](Content& c) { c.models["model"]["weight"] = c.models["model"]["weight"].reshape({3, 5}); }));
  EXPECT_NE(base, changed([](Content& c) { c.models["model"]["bias"] = c.models["model"]["bias"].view(at::kHalf); }));
  EXPECT_NE(base, changed([](Content& c) { c.parts["loader"].json["next"] = 18; }));
  EXPECT_NE(base, changed([](Content& c) {
              auto node = c.models["model"].extract("bias");
              node.key() = "bia";
              c.models["model"].insert(std::move(node));
            }));
}

TEST_F(SnapshotTest, AFlippedBitIsAlwaysFoundAndNamed) {
  const stdfs::path path = save_real(small(3));
  const std::vector<std::string> files = Fs::real().list(path);
  constexpr int kFlips = 10'000;
  Philox random(kFlips);
  int tensors_named = 0;
  for (int i = 0; i < kFlips; ++i) {
    const std::string& file = files[static_cast<std::size_t>(i) % files.size()];
    std::fstream bytes(path / file, std::ios::in | std::ios::out | std::ios::binary);
    const auto at = static_cast<std::streamoff>(random.below(stdfs::file_size(path / file)));
    const auto good = static_cast<char>(bytes.seekg(at).get());
    bytes.seekp(at).put(static_cast<char>(good ^ static_cast<char>(1U << random.below(8)))).flush();
    const std::string reason = refusal(path);
    ASSERT_THAT(reason, testing::StartsWith("step-00000003 can't be used: " + file + " is damaged: ")) << "byte " << at;
    tensors_named += reason.find("bytes of tensor \"") != std::string::npos ? 1 : 0;
    bytes.seekp(at).put(good).flush();
  }
  EXPECT_GT(tensors_named, kFlips / 15);
  EXPECT_EQ(refusal(path), "accepted");
}

TEST_F(SnapshotTest, TheDamagedTensorIsNamedAndTheSnapshotBeforeIsUsed) {
  save_real(small(3));
  const stdfs::path path = save_real(small(4));
  std::string text = text_of(path / "model.safetensors");
  text.back() = static_cast<char>(text.back() ^ 1);  // changes the bias: the smallest elements come last
  put(path / "model.safetensors", text);
  const std::optional<Content> content = newest();
  ASSERT_TRUE(content.has_value());
  expect_equal(small(3), *content);
  EXPECT_THAT(passed_, ElementsAre("step-00000004: step-00000004 can't be used: model.safetensors is damaged: bytes of tensor "
                                   "\"bias\" changed after they were written"));
}

TEST_F(SnapshotTest, CutGrownMissingAndExchangedFilesAreRefused) {
  const stdfs::path path = save_real(small(3));
  const stdfs::path other = save_real(small(4));
  for (const std::string& file : Fs::real().list(path)) {
    const std::string good = text_of(path / file);
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, good.size() / 2, good.size() - 1}) {
      put(path / file, good.substr(0, size));
      EXPECT_THAT(refusal(path), HasSubstr(file)) << size;
    }
    put(path / file, good + "x");
    EXPECT_THAT(refusal(path), HasSubstr(file)) << "grown";
    put(path / file, text_of(other / file));
    if (file != "optimizer.safetensors") {  // this file is the same in both snapshots
      EXPECT_THAT(refusal(path), HasSubstr("is damaged")) << "exchanged " << file;
    }
    stdfs::remove(path / file);
    EXPECT_THAT(refusal(path), HasSubstr(file)) << "missing";
    stdfs::create_directory(path / file);
    EXPECT_THAT(refusal(path), HasSubstr(file)) << "folder";
    stdfs::remove(path / file);
    put(path / file, good);
  }
  EXPECT_EQ(refusal(path), "accepted");
  EXPECT_THAT(refusal(run_ / "none"), HasSubstr("manifest.json can't be read"));
}

// Checksums detect accidents, but not manipulation: senseless values with correct checksums must be rejected too.
TEST_F(SnapshotTest, CraftedManifestsAndStatesAreRefused) {
  const stdfs::path path = save_real(small(3));
  const auto signed_text = [](const std::string& rest) {
    return "{\n \"crc32c\": \"" + detail::hex(crc32c(std::as_bytes(std::span(rest)))) + rest;
  };
  const std::string good = text_of(path / "manifest.json");
  const std::string deep = "\", \"x\": " + std::string(1000000, '[');
  for (const std::string& rest : std::initializer_list<std::string>{
           "", "\"}", "\", \"format\": 2}", "\", \"format\": 1}", "\", \"format\": 1, \"step\": \"x\"}",
           "\", \"format\": 1, \"step\": 3, \"files\": []}", "\", \"format\": 1, \"step\": 3, \"files\": {\"../x\": {}}}",
           "\", \"format\": 1, \"step\": 3, \"files\": {\"x\": 5}}",
           "\", \"format\": 1, \"step\": 3, \"files\": {\"x\": {\"bytes\": -1, \"crc32c\": \"0000000g\"}}}", deep, deep + "}"}) {
    put(path / "manifest.json", signed_text(rest));
    EXPECT_THAT(refusal(path), HasSubstr("manifest.json is damaged: ")) << rest.substr(0, 100);
  }
  put(path / "manifest.json", signed_text("\", \"format\": 1, \"step\": 3, \"files\": {}}"));
  EXPECT_THAT(refusal(path), HasSubstr("manifest.json does not mention state.json"));

  for (const std::string& state : std::initializer_list<std::string>{
           "", "[]", "{}", R"({"step":3})", R"({"step":4,"config":{},"models":[],"parts":{}})",
           R"({"step":3,"config":{},"models":["../../etc"],"parts":{}})", R"({"step":3,"config":{},"models":[5],"parts":{}})",
           R"({"step":3,"config":{},"models":[],"parts":{"a":1}})", std::string(1000000, '{'), std::string(1000000, '[')}) {
    put(path / "state.json", state);
    detail::Manifest manifest = detail::parse_manifest(good).manifest;
    manifest.files["state.json"] = {state.size(), crc32c(std::as_bytes(std::span(state))), std::nullopt, {}};
    put(path / "manifest.json", detail::to_text(manifest));
    EXPECT_THAT(refusal(path), HasSubstr("step-00000003 can't be used: ")) << state.substr(0, 100);
  }
}

TEST_F(SnapshotTest, NewestOfNoneIsNone) {
  EXPECT_FALSE(newest().has_value());
  EXPECT_THAT(list(Fs::real(), run_), ElementsAre());
  stdfs::create_directories(run_ / "snapshots" / "step-00000009");
  EXPECT_FALSE(newest().has_value());
  EXPECT_EQ(passed_.size(), 1U);
}

TEST_F(SnapshotTest, ListSortsByNumberAndLeavesStrangersAlone) {
  for (const std::int64_t step : std::vector<std::int64_t>{100, 20, 123456789012}) save_real(small(step));
  for (const char* name : {"step-1", "step-0000000x", "notes", ".tmp-step-00000001-1"}) {
    stdfs::create_directories(run_ / "snapshots" / name);
  }
  std::vector<std::int64_t> steps;
  for (const Found& found : list(Fs::real(), run_)) steps.push_back(found.step);
  EXPECT_THAT(steps, ElementsAre(20, 100, 123456789012));
}

TEST_F(SnapshotTest, WhatCannotBeStoredIsNamed) {
  Content content = small(1);
  content.models["model"]["weight"] = at::zeros({2}, at::kComplexDouble);
  EXPECT_EQ(save_refusal(content),
            "can't save the snapshot of step 1: tensor \"weight\" can't be stored in a safetensors file: the format has no dtype "
            "c128");
  content.models["model"]["weight"] = at::Tensor();
  EXPECT_THAT(save_refusal(content), HasSubstr("tensor \"weight\" of model.safetensors can't be stored: it is undefined"));
  content.models["model"]["weight"] = at::ones({2}).to_sparse();
  EXPECT_THAT(save_refusal(content), HasSubstr("it is not dense"));
  content.models["model"]["weight"] = at::empty({2}, at::TensorOptions().device(at::kMeta));
  EXPECT_THAT(save_refusal(content), HasSubstr("meta"));
  content = small(1);
  content.parts["model"].tensors["x"] = at::ones({1});
  EXPECT_THAT(save_refusal(content), HasSubstr("two parts have the name model"));
  content = small(1);
  content.models["../up"] = {};
  EXPECT_THAT(save_refusal(content), HasSubstr("can't be the name of a file"));
  content = small(1);
  content.parts["loader"].json["file"] = "\xFF";
  EXPECT_THAT(save_refusal(content), HasSubstr("not valid JSON"));
  EXPECT_THAT(save_refusal(small(-1)), HasSubstr("steps begin at 0"));
  EXPECT_THAT(names(), ElementsAre());
}

TEST_F(SnapshotTest, ANameThatSomethingElseHasIsLeftToIt) {
  const stdfs::path taken = run_ / "snapshots" / "step-00000004";
  stdfs::create_directories(taken);
  put(taken / "photo.jpg", "mine");
  for (const double value : {0.0, 0.5}) {
    EXPECT_EQ(save_real(small(4, value)).filename(), "step-00000004.2") << "and the second replaces the first";
    expect_equal(small(4, value), *newest());
  }
  save_real(small(5));
  EXPECT_EQ(text_of(taken / "photo.jpg"), "mine");
  EXPECT_EQ(list(Fs::real(), run_).size(), 3U);
  retain_real(1);
  EXPECT_THAT(names(), ElementsAre("step-00000004", "step-00000005"));
}

// A crash before, or after, the second of the two renames of a replacement.
TEST_F(SnapshotTest, AReplacementCutShortLosesNothing) {
  save_real(small(1));
  const stdfs::path path = save_real(small(2));
  const stdfs::path aside = run_ / "snapshots" / ".old-step-00000002-1";
  stdfs::rename(path, aside);
  ASSERT_EQ(list(Fs::real(), run_).size(), 2U);
  EXPECT_EQ(list(Fs::real(), run_).back().path, aside);
  expect_equal(small(2), *newest());
  save_real(small(2, 0.5));  // the next save of the same step
  expect_equal(small(2, 0.5), *newest());
  EXPECT_EQ(list(Fs::real(), run_).back().path, path);
  put(path / "state.json", "");
  expect_equal(small(2), *newest());
  stdfs::remove_all(path);
  retain_real(2);
  EXPECT_THAT(names(), ElementsAre("step-00000001", "step-00000002"));
  expect_equal(small(2), *newest());
}

// Makes every call of a save fail once: that call alone, or all calls from there on, as if the machine had stopped.
TEST_F(SnapshotTest, AFailureOfAnyCallLeavesAValidSnapshot) {
  for (const bool replaces : {false, true}) {
    const Content before = small(replaces ? 2 : 1);
    const Content after = small(2, 0.5);
    const std::int64_t calls = count_calls([&](Fs& fs) {
      save_real(before);
      save(fs, run_, after);
    });
    ASSERT_GT(calls, 20);
    for (std::int64_t k = 0; k < calls; ++k) {
      for (const bool dies : {false, true}) {
        stdfs::remove_all(run_ / "snapshots");
        save_real(before);
        FaultFs fs(Fs::real(), {.fail_at = k, .keeps_failing = dies, .tears_write = true});
        bool failed = false;
        try {
          save(fs, run_, after);
        } catch (const SnapshotError& error) {
          failed = true;
          EXPECT_THAT(error.message().what, HasSubstr("Input/output error"));
          EXPECT_THAT(error.message().what, HasSubstr("can't write "));
          EXPECT_EQ(error.message().where, (run_ / "snapshots").string());
        }
        if (dies) fs.drop_unsynced();
        passed_.clear();
        const std::optional<Content> content = newest();
        ASSERT_TRUE(content.has_value()) << fs.log().back();
        EXPECT_THAT(passed_, ElementsAre()) << "nothing half-written may look like a snapshot";
        if (!failed) expect_equal(after, *content);
        if (digest(*content) != digest(after)) expect_equal(before, *content);
        save_real(after);
        retain_real(1);
        // The name has the suffix if the failure prevented the save from recognising the present snapshot.
        EXPECT_THAT(names(), ElementsAre(testing::AnyOf("step-00000002", "step-00000002.2"))) << "nothing may be left over";
        expect_equal(after, *newest());
      }
    }
  }
}

TEST_F(SnapshotTest, PowerLossKeepsWhatWasReportedSaved) {
  FaultFs fs(Fs::real());
  save(fs, run_, small(1));
  fs.drop_unsynced();
  expect_equal(small(1), *newest());
}

TEST_F(SnapshotTest, AFullDiskNamesTheFileAndItsSize) {
  save_real(small(1));
  for (std::uint64_t capacity = 0; capacity < 1200; capacity += 100) {
    FaultFs fs(Fs::real(), {.capacity = capacity});
    try {
      save(fs, run_, small(2));
      FAIL() << "saved on " << capacity << " bytes";
    } catch (const SnapshotError& error) {
      EXPECT_THAT(error.message().what, testing::AnyOf(HasSubstr("No space left on device"), HasSubstr("are free")));
      EXPECT_THAT(error.message().what, HasSubstr("the snapshot of step 2"));
      EXPECT_THAT(error.message().next, HasSubstr("free space there, or lower snapshot.keep_last"));
    }
    EXPECT_THAT(names(), ElementsAre("step-00000001"));
  }
}

class NearlyFull : public FaultFs {
 public:
  using FaultFs::FaultFs;
  std::uint64_t free_bytes(const stdfs::path&) override { return 1000; }
};

TEST_F(SnapshotTest, TooLittleSpaceIsSaidBeforeWriting) {
  NearlyFull fs(Fs::real());
  try {
    save(fs, run_, small(2));
    FAIL();
  } catch (const SnapshotError& error) {
    EXPECT_THAT(error.message().what,
                testing::MatchesRegex("can't save the snapshot of step 2: it needs [0-9,]+ bytes, but only 1,000 are free"));
  }
  EXPECT_THAT(names(), ElementsAre());
}

class WithoutASize : public FaultFs {
 public:
  using FaultFs::FaultFs;
  std::uint64_t free_bytes(const stdfs::path&) override { return 0; }
};

TEST_F(SnapshotTest, AFileSystemThatDoesNotKnowItsSizeTakesSnapshots) {
  WithoutASize fs(Fs::real());
  save(fs, run_, small(1));
  expect_equal(small(1), *newest());
}

TEST_F(SnapshotTest, AFileOfTensorsThatFailsLeavesNothing) {
  for (const char* name : {"a.safetensors", "a.pt"}) {
    FaultFs counting(Fs::real());
    write_tensors(counting, run_ / name, {{"w", at::ones({100})}});
    stdfs::remove(run_ / name);
    stdfs::create_symlink("victim", run_ / (name + std::string(".part")));
    for (std::int64_t k = 0; k < counting.calls() - 1; ++k) {  // the last call syncs the folder
      FaultFs fs(Fs::real(), {.fail_at = k, .error_number = EFBIG, .tears_write = true});
      try {
        write_tensors(fs, run_ / name, {{"w", at::ones({100})}});
        FAIL() << k;
      } catch (const DataError& error) {
        EXPECT_THAT(error.message().next, HasSubstr("ulimit -f")) << k;
      }
      EXPECT_EQ(Fs::real().list(run_), std::vector<std::string>{name + std::string(".part")}) << k;
    }
    stdfs::remove(run_ / (name + std::string(".part")));
  }
}

}  // namespace
}  // namespace millrace::snapshot
