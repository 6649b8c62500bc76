// Resuming a run by its folder alone: its values, its paths, and the refusals.
#include <gmock/gmock.h>

#include "millrace/base/json.h"
#include "process.h"

namespace millrace::test {
namespace {

namespace stdfs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class GoOn : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"here", "there", "home"}) stdfs::create_directories(root_.path() / name);
  }
  [[nodiscard]] stdfs::path here() const { return root_.path() / "here"; }
  [[nodiscard]] stdfs::path there() const { return root_.path() / "there"; }
  [[nodiscard]] Result millrace(const stdfs::path& folder, std::vector<std::string> words) const {
    words.insert(words.begin(), MILLRACE_PROGRAM);
    return run(words, {.folder = folder, .environment = {{"XDG_CACHE_HOME", (root_.path() / "home").string()}}});
  }
  // A short run of the smallest preset, in a folder that the words name.
  [[nodiscard]] Result train(const stdfs::path& folder, const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"train", "language_model", "--log.tensorboard=false", "--train.validate_batches=1"};
    words.insert(words.end(), more.begin(), more.end());
    words.emplace_back("--precision.dtype=fp32");  // no format to try
    return millrace(folder, words);
  }
  static Json json(const stdfs::path& file) { return Json::parse(read_text(file), nullptr, /*allow_exceptions=*/false); }

  Scratch root_;
};

TEST_F(GoOn, WithoutTheOldCommandLine) {
  const Result first = train(here(), {"--preset=smoke", "--run=r", "--train.max_steps=2", "--optim.learning_rate=.002",
                                      "--device.threads=1", "--train.resume=never"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const Result again = millrace(here(), {"train", "language_model", "--run", "r", "--train.max_steps=3", "--device.threads=2"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("resumed from step 2 of r"));
  EXPECT_THAT(again.out, HasSubstr("preset smoke"));
  EXPECT_THAT(again.out, HasSubstr("device.threads is 2, but it was 1 so far: "));
  EXPECT_EQ(json(here() / "r/summary.json")["steps"], 3);
  EXPECT_THAT(read_text(here() / "r/log.jsonl"), HasSubstr("it was 1 so far")) << "recorded";
  const Json config = json(here() / "r/config.json");
  EXPECT_EQ(config["values"]["optim"]["learning_rate"], .002);
  EXPECT_EQ(config["origins"]["optim.learning_rate"], "run r");
  EXPECT_EQ(config["origins"]["train.max_steps"], "flag --train.max_steps");
  EXPECT_EQ(config["origins"]["optim.eps"], "default");

  // Elsewhere: the sample data of the first start is found, and none is made.
  const std::string folder = (here() / "r").string();
  const Result elsewhere = millrace(there(), {"train", "language_model", "--run", folder, "--train.max_steps=4"});
  EXPECT_EQ(elsewhere.exit_code, 0) << elsewhere.err;
  EXPECT_THAT(elsewhere.out, HasSubstr("resumed from step 3 of "));
  const Result explained = millrace(there(), {"config", "explain", "language_model", "--json", "--run", folder});
  EXPECT_EQ(Json::parse(explained.out)["origins"]["optim.learning_rate"], "run " + folder);
  EXPECT_EQ(millrace(there(), {"eval", "language_model", "--from", folder}).exit_code, 0);
  EXPECT_TRUE(stdfs::is_empty(there()));

  // Sample data that was deleted is made anew, to the same bytes.
  stdfs::remove_all(here() / "runs");
  const Result remade = train(here(), {"--run=r", "--train.max_steps=5"});
  EXPECT_EQ(remade.exit_code, 0) << remade.err;
}

TEST_F(GoOn, ARefusalShowsTheOldValueAndTheOldCommand) {
  ASSERT_EQ(train(here(), {"--preset=smoke", "--run=r", "--train.max_steps=1", "--optim.learning_rate=.002"}).exit_code, 0);
  const Result refused = millrace(here(), {"train", "language_model", "--run=r", "--optim.learning_rate=.1"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("optim.learning_rate is 0.1, but the run in this folder was started with 0.002"));
  EXPECT_THAT(refused.err, HasSubstr("flag --optim.learning_rate"));
  EXPECT_THAT(refused.err, HasSubstr("the run was begun by: millrace train language_model --log.tensorboard=false "
                                     "--train.validate_batches=1 --preset=smoke --run=r "));
  const Result other = millrace(here(), {"train", "cosmology", "--run=r"});
  EXPECT_THAT(other.err, HasSubstr("r is a run of recipe language_model, not of cosmology"));
  // --fresh knows this command line alone.
  const Result fresh = millrace(here(), {"train", "language_model", "--run=r", "--fresh"});
  EXPECT_EQ(fresh.exit_code, 2);
  EXPECT_THAT(fresh.err, HasSubstr("recipe language_model has no input"));
  EXPECT_TRUE(stdfs::exists(here() / "r/snapshots/step-00000001"));
  // Nor does a config that can't be read: said, and the command line counts.
  write_text(here() / "r/config.json", "{");
  const Result damaged = train(here(), {"--preset=smoke", "--run=r", "--train.max_steps=2", "--optim.learning_rate=.002"});
  EXPECT_EQ(damaged.exit_code, 0) << damaged.err;
  EXPECT_THAT(damaged.out, HasSubstr("can't read the config of the run in r: only the values of the command line are used"));
}

TEST_F(GoOn, PathsOfAConfigFileAreOfItsFolderForEveryCommand) {
  stdfs::create_directories(here() / "conf/text");
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the quick brown fox jumps over the lazy dog, " + std::to_string(i) + " times\n";
  write_text(here() / "conf/text/a.txt", text);
  write_text(here() / "conf/a.json", R"({"data": {"dir": "text"}})");
  ASSERT_EQ(train(here(), {"conf/a.json", "--preset=smoke", "--run=base", "--train.max_steps=1"}).exit_code, 0);
  EXPECT_EQ(json(here() / "base/config.json")["values"]["data"]["dir"], "conf/text");
  stdfs::rename(here() / "base", here() / "conf/base");
  write_text(here() / "conf/b.json", R"({"recipe": {"sources": ["text/a.txt"]}, "train": {"weights": "base"}})");
  const Result first = train(here(), {"conf/b.json", "--preset=smoke", "--run=r", "--train.max_steps=1"});
  ASSERT_EQ(first.exit_code, 0) << first.err;

  const std::string folder = (here() / "r").string();
  const std::string base = (here() / "conf/base").string();
  for (const stdfs::path& place : {here(), there()}) {
    EXPECT_EQ(millrace(place, {"eval", "language_model", "--from", base}).exit_code, 0) << place;
  }
  EXPECT_EQ(millrace(there(), {"eval", "language_model", "--from", folder}).exit_code, 0);
  EXPECT_EQ(millrace(there(), {"generate", "--from", folder, "--max_length=3", "the"}).exit_code, 0);
  const Result last = millrace(there(), {"eval", "--run-dir", folder, "--model-type", "last", "--json"});
  EXPECT_EQ(last.exit_code, 0) << last.err;
  EXPECT_THAT(last.out, HasSubstr("step-00000001"));
  EXPECT_THAT(millrace(there(), {"eval", "--run-dir", folder, "--model-type", "fold"}).err, HasSubstr("write best or last"));
  EXPECT_EQ(millrace(there(), {"export", "--from", folder, "--to", (root_.path() / "w.pt").string()}).exit_code, 0);
  // train.weights may not change on resume, but may be spelled in another way.
  const Result again = train(there(), {"--run", folder, "--train.max_steps=2"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  const Result by_file = train(there(), {(here() / "conf/b.json").string(), "--run", folder, "--train.max_steps=3"});
  EXPECT_EQ(by_file.exit_code, 0) << by_file.err;
  EXPECT_EQ(json(here() / "r/summary.json")["steps"], 3);
}

TEST_F(GoOn, MovedWithItsDataAndToldWhereThatIs) {
  stdfs::create_directories(here() / "text");
  write_text(here() / "text/a.txt", std::string(4000, 'a') + "b c d");
  ASSERT_EQ(train(here(), {"--data", (here() / "text").string(), "--preset=smoke", "--run=r", "--train.max_steps=1"}).exit_code,
            0);
  ASSERT_EQ(train(here(), {"--data=text", "--preset=smoke", "--run=q", "--train.max_steps=1"}).exit_code, 0);
  stdfs::rename(here(), there() / "moved");
  const stdfs::path moved = there() / "moved";
  const Result lost = millrace(moved, {"train", "language_model", "--run=r", "--train.max_steps=2"});
  EXPECT_EQ(lost.exit_code, 1);
  EXPECT_THAT(lost.err, HasSubstr("there is no .txt file in " + (here() / "text").string()));
  const Result told = millrace(moved, {"train", "language_model", "--run=r", "--train.max_steps=2", "--data=text"});
  EXPECT_EQ(told.exit_code, 0) << told.err;
  EXPECT_THAT(told.out, HasSubstr("resumed from step 1 of r"));
  const Result relative = millrace(moved, {"train", "language_model", "--run=q", "--train.max_steps=2"});
  EXPECT_EQ(relative.exit_code, 0) << relative.err;
}

TEST_F(GoOn, FromTheSnapshotItOnceBeganFromOnlyOnce) {
  ASSERT_EQ(train(here(), {"--preset=smoke", "--run=a", "--train.max_steps=1"}).exit_code, 0);
  ASSERT_EQ(train(here(), {"--preset=smoke", "--run=b", "--train.resume=a", "--train.max_steps=2"}).exit_code, 0);
  const Result again = millrace(there(), {"train", "language_model", "--run", (here() / "b").string(), "--train.max_steps=3"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("resumed from step 2 of "));
  EXPECT_FALSE(stdfs::exists(here() / "b/branches"));
}

TEST_F(GoOn, FreshLeavesNothingOfTheOldRun) {
  const std::vector<std::string> words = {"train",
                                          "cosmology",
                                          "--preset=smoke",
                                          "--run=r",
                                          "--train.max_steps=1",
                                          "--data.batch_size=1",
                                          "--precision.dtype=fp32",
                                          "--device.layout=contiguous",
                                          "--device.kernels=ours",
                                          "--train.validate_batches=1"};
  ASSERT_EQ(millrace(here(), words).exit_code, 0);
  const auto count = [&](const char* name) {
    const auto files = stdfs::recursive_directory_iterator(here() / "r");
    return std::count_if(begin(files), end(files),
                         [&](const auto& file) { return file.path().string().find(name) != std::string::npos; });
  };
  EXPECT_GT(count("pca_components"), 0);
  EXPECT_GT(count("pictures/"), 0);
  std::vector<std::string> fresh = words;
  for (const char* word : {"--fresh", "--log.images=false", "--recipe.pca=batch"}) fresh.emplace_back(word);
  const Result result = millrace(here(), fresh);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(count("pca_components"), 0);
  EXPECT_EQ(count("pictures"), 0);
  EXPECT_THAT(read_text(here() / "r/run.json"), Not(HasSubstr("pca_components")));
}

}  // namespace
}  // namespace millrace::test
