// The search for faster settings, and the gain of a remedy next to its prediction.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <future>

#include "millrace/base/json.h"
#include "process.h"

namespace millrace::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using Words = std::vector<std::string>;

class Tune : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(root_.path() / "home"); }
  [[nodiscard]] Words command(const Words& more) const {
    Words words = {MILLRACE_PROGRAM};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  [[nodiscard]] Result call(const Words& words) const {
    return run(words, {.folder = root_.path(), .environment = {{"XDG_CACHE_HOME", (root_.path() / "home").string()}}});
  }
  [[nodiscard]] Result millrace(const Words& more) const { return call(command(more)); }
  [[nodiscard]] Json json(const fs::path& file) const {
    return fs::exists(root_.path() / file) ? Json::parse(read_text(root_.path() / file), nullptr, /*allow_exceptions=*/false)
                                           : Json();
  }

  Scratch root_;
};

// A snapshot each step costs far more than a step of the smallest preset with few rows, on any disk, so that one run decides.
const Words kOften = {"tune",
                      "language_model",
                      "--preset=smoke",
                      "--data.batch_size=8",
                      "--snapshot.every_steps=1",
                      "--snapshot.every_epochs=0",
                      "--optim.learning_rate=.002",
                      "--seconds=2"};

TEST_F(Tune, KilledItGoesOnAndWritesAConfigWithWhatPays) {
  const std::string progress = "tuned.yaml.progress.json";
  // Killed as soon as the search is written down: at least one trial, of a second or more, is still to come.
  Words words = {"/bin/sh", "-c", R"("$@" & while [ ! -e stop ] && kill -0 $!; do sleep .02; done; kill -KILL $!; wait)", "sh"};
  for (const std::string& word : command(kOften)) words.push_back(word);
  auto killed = std::async(std::launch::async, [&] { return call(words); });
  while (!fs::exists(root_.path() / progress) && killed.wait_for(std::chrono::milliseconds(10)) == std::future_status::timeout) {
  }
  test::write_text(root_.path() / "stop", "");
  const Result broken_off = killed.get();
  ASSERT_TRUE(fs::exists(root_.path() / progress)) << broken_off.out << broken_off.err;
  const std::size_t before = json(progress)["search"]["state"]["trials"].size();
  const Result result = millrace(kOften);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("resuming after " + std::to_string(before) + " trials"));
  if (result.out.find("other programs use the cores") != std::string::npos)
    GTEST_SKIP() << "other programs used the cores: such trials are not taken";
  EXPECT_THAT(result.out, AllOf(HasSubstr("snapshot.every_steps="), HasSubstr("kept"),
                                HasSubstr("  next  millrace train language_model --preset smoke tuned.yaml")));
  EXPECT_FALSE(fs::exists(root_.path() / progress));

  const std::string file = read_text(root_.path() / "tuned.yaml");
  EXPECT_THAT(file, AllOf(HasSubstr("times as fast"), HasSubstr("learning_rate: 0.002")));
  const Json config =
      Json::parse(millrace({"config", "explain", "language_model", "--preset=smoke", "tuned.yaml", "--json"}).out);
  EXPECT_GT(config["values"]["snapshot"]["every_steps"].get<int>(), 1);
  EXPECT_THAT(config["origins"]["snapshot.every_steps"].get<std::string>(), HasSubstr("file tuned.yaml:"));
  EXPECT_EQ(config["values"]["optim"]["learning_rate"], .002);

  const Json ledger = Json::parse(millrace({"doctor", "--self", "--json"}).out);
  ASSERT_FALSE(ledger["lines"].empty());
  EXPECT_EQ(ledger["lines"][0]["source"], "tune");
  EXPECT_THAT(millrace({"doctor", "--self"}).out, AllOf(HasSubstr("expected"), HasSubstr("measured")));
}

TEST_F(Tune, MistakesAreSaidBeforeAnythingRuns) {
  test::write_text(root_.path() / "mine.yaml", "train: {seed: 1}  # mine\n");
  for (const auto& [word, said] :
       std::vector<std::pair<std::string, std::string>>{{"--allow=precison", "did you mean \"precision\"?"},
                                                        {"--out=tuned.json", "let its name end in .yaml"},
                                                        {"--out=mine.yaml", "and the result would replace it"},
                                                        {"--minutes=0", "--minutes"}}) {
    const Result result = millrace({"tune", "language_model", "--preset=smoke", word});
    EXPECT_EQ(result.exit_code, 2) << word;
    EXPECT_THAT(result.err, HasSubstr(said));
  }
  const Result result = millrace({"tune", "language_model", "--preset=smoke", "--sources=nowhere.txt"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("nowhere.txt"));
  EXPECT_FALSE(fs::exists(root_.path() / "tuned.yaml"));
}

TEST_F(Tune, ARunThatFollowsTheDoctorSaysWhatThatGained) {
  const Words often = {"train",
                       "language_model",
                       "--preset=smoke",
                       "--log.every=20",
                       "--train.epochs=0",
                       "--data.batch_size=16",
                       "--precision.dtype=fp32",
                       "--train.validate_batches=1"};
  Words first = often, second = often;
  constexpr int kSteps = 300;
  first.insert(first.end(), {"--run=runs/a", "--train.max_steps=" + std::to_string(kSteps), "--snapshot.every_steps=1"});
  ASSERT_EQ(millrace(first).exit_code, 0);
  const Json summary = json("runs/a/summary.json");
  const Json& findings = summary.at("findings");
  const auto found =
      std::find_if(findings.begin(), findings.end(), [](const Json& each) { return each["id"] == "snapshot_often"; });
  ASSERT_NE(found, findings.end()) << findings.dump(1);
  // A run of less than a second is not judged, and without its snapshots this one may be as short.
  const Json& accounts = summary.at("accounts");
  const double seconds = accounts.at("forward").get<double>() + accounts.at("backward").get<double>();
  const int steps = std::max(kSteps, static_cast<int>(1.2 * kSteps / std::max(seconds, 0.01)));
  second.insert(second.end(), {"--run=runs/b", "--train.max_steps=" + std::to_string(steps),
                               "--snapshot.every_steps=" + (*found)["value"].get<std::string>(), "--targets.samples_per_s=1e9",
                               "--targets.gpu_busy=0.1", "--strict"});
  const Result result = millrace(second);
  ASSERT_EQ(result.exit_code, 4) << result.err;
  EXPECT_THAT(result.out, HasSubstr("doctor  target_missed: "));
  EXPECT_THAT(result.out, HasSubstr("not measured in this run, so not met: targets.gpu_busy\n"));
  if (json("runs/b/summary.json")["others"].get<double>() > .1 || json("runs/a/summary.json")["others"].get<double>() > .1)
    GTEST_SKIP() << "other programs used the cores: such runs are not compared";
  EXPECT_THAT(result.out, AllOf(HasSubstr("doctor snapshot.every_steps="), HasSubstr("was expected (snapshot_often)")));
  const Json line = Json::parse(millrace({"doctor", "--self", "--json"}).out)["lines"][0];
  EXPECT_EQ(line["finding"], "snapshot_often");
  EXPECT_THAT(line["source"].get<std::string>(), testing::EndsWith("runs/a -> runs/b"));
  EXPECT_GT(line["measured"].get<double>(), 0);
}

TEST_F(Tune, ADamagedProgressOrLedgerIsPassedOver) {
  fs::create_directories(root_.path() / "home/millrace/doctor");
  std::string deep(100'000, '[');
  write_text(root_.path() / "home/millrace/doctor/ledger.jsonl",
             deep +
                 "\n{\"setting\":7}\n\xff\xfe\n{\"setting\":\"a=1\",\"expected\":1e999,\"measured\":0}\n"
                 "{\"setting\":\"a=1\",\"expected\":0.5,\"measured\":0.4,\"finding\":\"x\\u0007\"}\n{\"setti");
  const Result result = millrace({"doctor", "--self"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("50 %"));
}

}  // namespace
}  // namespace millrace::test
