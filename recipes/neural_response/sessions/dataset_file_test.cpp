#include "recipes/neural_response/sessions/dataset_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "recipes/neural_response/detail/test_sessions.h"

namespace millrace::recipes::neural_response {
namespace {

using namespace test;
using testing::ElementsAre;
using testing::HasSubstr;

// A file with the keys of VisionCore's files, and with their notes about units.
constexpr auto kParent = R"(types: [backimage]
session_dir: ./sessions
sessions: [a,  b]
sampling:
  source_rate: 240
  target_rate: 120
keys_lags:
  robs: 0
  stim: [0, 1, 2, 3, 4]
  behavior: 0 # a comment
  dfs: 0

transforms:
  stim:
    source: stim
    ops:
      - pixelnorm: {}
      - unsqueeze: 1
    expose_as: stim
  eye_vel:
    source: eyepos
    ops:
      - diff: {axis: 0}
      - maxnorm: {}
      - symlog: {}
      - temporal_basis:
          num_delta_funcs: 0
          num_cosine_funcs: 10
          history_bins: 50
          causal: false
          log_spacing: false
          peak_range_ms: [30, 200]
          normalize: true
      - splitrelu:
          split_dim: 1
          trainable_gain: false
    expose_as: behavior 
    concatenate: true 
  eye_pos:
    source: eyepos
    ops: []
    expose_as: behavior
    concatenate: true

datafilters:
  dfs:
    ops: [{valid_nlags: {n_lags: 32}}, {missing_pct: {THRESHOLD: 45}}]
    expose_as: dfs
    
train_val_split: 0.8
seed: 1002
)";

std::string with_threshold(const std::string& name) {
  std::string text = kParent;
  return text.replace(text.find("THRESHOLD"), 9, name);
}

class DatasetFileTest : public SessionTest {
 protected:
  void SetUp() override {
    SessionTest::SetUp();
    write("dataset.yaml", with_threshold("threshold"));
    write("sessions/a.yaml",
          "session: a\nlab: yates\neye: right\ncids: [1, 4,\n  5]\nvisual: [1]\nqcmissing: [3, 8]\nqccontam: [3]\n"
          "snr: 2\nmissingth: 45\ncontamth: 50\ncidsqc: [1]\ndirectory: /elsewhere\n");
    write("sessions/b.yaml", "cids: [0]\nseed: 7\nkeys_lags: {stim: [0, 1]}\n");
  }
  DatasetFile read(std::int64_t most = 30) { return read_dataset_file(folder_ / "dataset.yaml", most); }
  std::string refused_file(const std::string& text) {
    write("dataset.yaml", text);
    return refusal([this] { (void)read(); });
  }
  std::string at(int line) const {
    return "\n  where    " + (folder_ / "dataset.yaml").string() + ":" + std::to_string(line) + "\n  next     ";
  }
};

TEST_F(DatasetFileTest, FilesOfTheOriginalAreReadAsTheyAre) {
  const DatasetFile file = read();
  ASSERT_EQ(file.sessions.size(), 2U);
  const SessionFile& a = file.sessions[0];
  EXPECT_EQ(a.name, "a");
  EXPECT_THAT(a.cids, ElementsAre(1, 4, 5));
  EXPECT_THAT(a.types, ElementsAre("backimage"));
  EXPECT_EQ(a.ratio, 2);
  EXPECT_EQ(a.lags, 5);
  EXPECT_EQ(a.seed, 1002U);
  EXPECT_EQ(a.train_share, 0.8);
  EXPECT_EQ(a.filters.n_lags, 32);
  EXPECT_TRUE(a.filters.has_missing_pct);
  EXPECT_EQ(a.filters.missing_threshold, 45);
  ASSERT_EQ(a.transforms.size(), 3U);
  EXPECT_EQ(a.transforms[1].name, "eye_vel") << "in the order of the file, not of the alphabet";
  EXPECT_EQ(a.transforms[1].operations.size(), 5U);
  const auto& basis = std::get<op::TemporalBasis>(a.transforms[1].operations[3]);
  EXPECT_EQ(basis.history_bins, 50);
  EXPECT_FALSE(basis.causal || basis.log_spacing);
  EXPECT_THAT(basis.peak_range_ms, ElementsAre(30, 200));
  EXPECT_EQ(a.transforms[2].name, "eye_pos");
  const SessionFile& b = file.sessions[1];
  EXPECT_EQ(b.name, "b") << "from the file's name";
  EXPECT_EQ(b.seed, 7U) << "a session's keys stand above the parent's";
  EXPECT_EQ(b.lags, 2);
  EXPECT_THAT(file.notices, testing::SizeIs(2));
  EXPECT_EQ(read(1).sessions.size(), 1U);
  EXPECT_THAT(read(1).notices, testing::Contains("the first 1 of 2 sessions are used: recipe.max_datasets"));
}

TEST_F(DatasetFileTest, AnAxisOfZeroAndAListOfArgumentsMeanWhatTheOriginalsFilesMean) {
  std::string text = with_threshold("threshold");
  text.replace(text.find("- unsqueeze: 1"), 14, "- unsqueeze: 0");
  const auto with_smooth = [&text](const std::string& arguments) {
    std::string whole = text;
    return whole.replace(whole.find("  eye_vel:"), 0,
                         "  robs:\n    source: robs\n    ops:\n      - smooth: " + arguments + "\n    expose_as: robs\n");
  };
  for (const char* arguments : {"\n         - type: gaussian\n         - params: 1.5", "{type: gaussian, params: 1.5}", "1.5"}) {
    write("dataset.yaml", with_smooth(arguments));
    const DatasetFile file = read();
    const std::vector<Transform>& transforms = file.sessions[0].transforms;
    ASSERT_EQ(transforms.size(), 4U) << arguments;
    EXPECT_EQ(std::get<op::Unsqueeze>(transforms[0].operations.at(1)).axis, 0);
    EXPECT_EQ(transforms[1].expose_as, "robs");
    EXPECT_EQ(std::get<op::Smooth>(transforms[1].operations.at(0)).sigma, 1.5) << arguments;
    EXPECT_THAT(file.notices, testing::Contains("unsqueeze: 0 makes the channel of the stimulus, as unsqueeze: 1 does"));
  }
  EXPECT_THAT(refused_file(with_smooth("[{typ: gaussian}]")), HasSubstr("unknown argument \"typ\" of operation smooth"));
  EXPECT_THAT(refused_file(with_smooth("[{type: box}]")), HasSubstr("smooth is not supported with type \"box\""));
  EXPECT_THAT(refused_file(with_smooth("[1.5]")), HasSubstr("expected keys with values"));
  text.replace(text.find("- unsqueeze: 0"), 14, "- unsqueeze: 2");
  EXPECT_THAT(refused_file(text),
              HasSubstr("unsqueeze of the stimulus makes the axis of channels: write 1, or 0 as in the original's files"));
}

TEST_F(DatasetFileTest, ASlipOfTheOriginalIsReported) {
  EXPECT_EQ(refused_file(with_threshold("theshold")),
            "ConfigError  unknown argument \"theshold\" of filter missing_pct" + at(47) + "did you mean \"threshold\"?");
}

TEST_F(DatasetFileTest, WithoutATreeOfItsOwnTheOriginalsIsTaken) {
  write("dataset.yaml", "sessions: [a]\n");
  const SessionFile session = read().sessions[0];
  EXPECT_EQ(session.lags, 25);
  EXPECT_EQ(session.transforms.size(), 3U);
  EXPECT_EQ(session.filters.n_lags, 32);
}

TEST_F(DatasetFileTest, JsonAndTomlSayTheSame) {
  write("dataset.json", R"({"sessions": [{"session": "a", "cids": [3, 1], "types": ["rsvp"]}], "keys_lags": {"stim": [0, 1]}})");
  const SessionFile json = read_dataset_file(folder_ / "dataset.json", 9).sessions[0];
  EXPECT_EQ(json.name, "a");
  EXPECT_THAT(json.cids, ElementsAre(3, 1));
  EXPECT_THAT(json.types, ElementsAre("rsvp"));
  EXPECT_EQ(json.lags, 2);
  write("dataset.toml", "sessions = [\"a\"]\nseed = 5\n[sampling]\nsource_rate = 240.0\ntarget_rate = 60\n");
  const SessionFile toml = read_dataset_file(folder_ / "dataset.toml", 9).sessions[0];
  EXPECT_EQ(toml.seed, 5U);
  EXPECT_EQ(toml.ratio, 4);
}

TEST_F(DatasetFileTest, WhatNobodyReadsIsLeftOutWithANotice) {
  std::string text = with_threshold("threshold");
  text.replace(text.find("  eye_vel:"), 0,
               "  history:\n    source: robs\n    ops: [{select_units: {indices: \"cids\"}}]\n    expose_as: history\n");
  text.replace(text.find("  dfs: 0"), 0, "  history: [1, 2, 3]\n");
  write("dataset.yaml", text);
  const DatasetFile file = read();
  EXPECT_EQ(file.sessions[0].transforms.size(), 3U);
  EXPECT_THAT(file.notices,
              testing::IsSupersetOf({"result \"history\" of transform \"history\" is left out: no model here reads it",
                                     "key \"history\" of keys_lags is left out: no model here reads it"}));
}

TEST_F(DatasetFileTest, FaultsHaveTheirTexts) {
  struct Fault {
    std::string text;
    std::string what;
    int line;
    std::string next;
  };
  const std::string ops = "transforms:\n  stim: {ops: [";
  for (const Fault& fault : std::vector<Fault>{
           {"train_val_spilt: 0.8\n", "unknown key \"train_val_spilt\"", 2, "did you mean \"train_val_split\"?"},
           {"datafilters:\n  dfs:\n    ops: [{valid_lags: 32}]\n", "unknown filter \"valid_lags\"", 4,
            "did you mean \"valid_nlags\"?"},
           {"keys_lags: {stim: [0, 1, 2]}\ndatafilters: {dfs: {ops: [{valid_nlags: 2}]}}\n",
            "the stimulus has 3 lags, but filter valid_nlags looks back only 2 bins", 2,
            "raise datafilters' valid_nlags.n_lags, because otherwise a window would reach into the trial before"},
           {"transforms: {s: {source: stim, expose_as: stim}, b: {source: eyepos, expose_as: behavior, concatenate: true}, c: "
            "{source: eyepos, expose_as: behavior, concatenate: true}}\n",
            "transforms \"b\" and \"c\" are on the same line", 2, "write each on a separate line, because their order counts"},
           {"transforms:\n  stim: {source: stim}\n  b: {source: eyepos, expose_as: behavior}\n  c: {source: eyepos, expose_as: "
            "behavior}\n",
            "transforms \"b\" and \"c\" are both exposed as behavior", 5, "write concatenate: true in both"},
           {ops + "pixelnom: {}]}\n", "unknown operation \"pixelnom\"", 3, "did you mean \"pixelnorm\"?"},
           {ops + "mul: {factr: 2}]}\n", "unknown argument \"factr\" of operation mul", 3, "did you mean \"factor\"?"},
           {ops + "pixelnorm: {}, temporal_basis: {}]}\n", "transform \"stim\": temporal_basis is only for behavior", 3,
            "remove the operation"},
           {"keys_lags: {stim: [0, 2]}\n", "keys_lags.stim is not 0, 1, 2, ...", 2, "write all lags from 0 on, in order"},
           {"keys_lags: {behaviour: 0}\n", "unknown key \"behaviour\" of keys_lags", 2, "did you mean \"behavior\"?"},
           {"transforms:\n  e: {source: eyepos, expose_as: behavior}\n", "no transform is exposed as stim", 2,
            "add stim: {source: stim, ops: [pixelnorm: {}, unsqueeze: 1], expose_as: stim}"},
           {"seed: many\n", "seed is \"many\", expected a whole number of 0 or more", 2, "correct the value"}}) {
    EXPECT_EQ(refused_file("sessions: [a]\n" + fault.text), "ConfigError  " + fault.what + at(fault.line) + fault.next);
  }
  EXPECT_EQ(refused_file("sessions: [a]\nsampling: {source_rate: 240, target_rate: 100}\n"),
            "DataError  source_rate 240 is not a whole multiple of target_rate 100" + at(2) +
                "choose a target_rate that divides the source_rate");
}

TEST_F(DatasetFileTest, MissingThingsHaveTheirTexts) {
  const std::string a = (folder_ / "sessions" / "a.yaml").string();
  EXPECT_EQ(refused_file("sessions: [a, a]\n"),
            "ConfigError  session \"a\" appears twice\n  where    " + a + ":1\n  next     remove one of them");
  EXPECT_EQ(refused_file("sessions: [c]\n"), "ConfigError  session \"c\" has no file in \"" + (folder_ / "sessions").string() +
                                                 "\"" + at(1) + "write c.yaml with its cids there, or correct session_dir");
  EXPECT_EQ(refused_file("sessions: []\n"), "ConfigError  the file names no sessions\n  where    " +
                                                (folder_ / "dataset.yaml").string() + "\n  next     write sessions: [NAME, ...]");
  write("sessions/a.yaml", "session: a\n");
  EXPECT_EQ(refused_file("sessions: [a]\n"),
            "ConfigError  session \"a\" has no cids\n  where    " + a +
                "\n  next     write cids: [0, 1, ...], the columns of /robs that the model predicts");
  EXPECT_THAT(refusal([this] { (void)read_dataset_file(folder_ / "none.yaml", 1); }),
              HasSubstr("ConfigError  can't read the dataset file \"none.yaml\""));
  EXPECT_EQ(refusal([this] { (void)read_dataset_file(folder_ / "all.dset", 1); }),
            "DataError  all.dset is a Python pickle\n  where    " + (folder_ / "all.dset").string() +
                "\n  next     run tools/dset_to_h5.py on it, and only if you trust it: a pickle can run any program");
}

TEST_F(DatasetFileTest, AnyBytesAreReadOrRefused) {
  for (const char* text :
       {"", "sessions", "[1, 2]", "sessions: {a: 1}\n", "sessions: [[a]]\n", "sessions: [a]\ntransforms: [1]\n",
        "sessions: [a]\ntransforms: {stim: 3}\n", "sessions: [a]\nkeys_lags: 5\n", "sessions: [a]\nsampling: []\n",
        "sessions: [a]\ntransforms: {stim: {ops: [[1], {a: 1, b: 2}, {diff: [1]}, {mul: x}]}}\n",
        "sessions: [a]\ndatafilters: {dfs: {ops: 7}}\n", "sessions: [a]\nseed: -1\ntypes: {a: 1}\n",
        "sessions: [a]\ntransforms: {stim: {ops: [pixelnorm: 3, unsqueeze: {}]}}\n", "sessions: ['../a', '']\n"}) {
    write("dataset.yaml", text);
    EXPECT_THROW((void)read(), ConfigError) << text;
  }
}

}  // namespace
}  // namespace millrace::recipes::neural_response
