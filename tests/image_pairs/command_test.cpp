// The program's commands on image_pairs as a user types them: tables of pairs, a run on them, and the messages on a machine
// without a GPU.
#include <gmock/gmock.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "../cli/process.h"
#include "millrace/base/json.h"

namespace millrace::test {
namespace {

namespace stdfs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class PairCommands : public testing::Test {
 protected:
  [[nodiscard]] Result millrace(std::vector<std::string> words) const {
    words.insert(words.begin(), MILLRACE_PROGRAM);
    return run(words, {.folder = root_.path(),
                       .environment = {{"XDG_CACHE_HOME", root_.path().string()}, {"CUDA_VISIBLE_DEVICES", ""}}});
  }
  void make_pictures() const {
    const Result made = millrace({"make-data", "image_pairs", "--preset=smoke", "--out=pictures"});
    ASSERT_EQ(made.exit_code, 0) << made.err;
  }
  [[nodiscard]] bool there(const std::string& file) const { return stdfs::exists(root_.path() / file); }
  // First and last loss of a run of two steps, which is the words and what they need.
  [[nodiscard]] Json losses(std::vector<std::string> words, const std::string& name) const {
    for (const char* more : {"--max_steps=2", "--log.every=1", "--train.validate_batches=1", "--precision.dtype=fp32",
                             "--device.kernels=ours", "--device.threads=1", "--log.tensorboard=false"})
      words.emplace_back(more);
    words.push_back("--run=" + name);
    const Result trained = millrace(words);
    EXPECT_EQ(trained.exit_code, 0) << trained.err;
    if (trained.exit_code != 0) return {};
    return Json::parse(read_text(root_.path() / name / "summary.json")).at("loss");
  }
  Scratch root_;
};

// The command that make-data prints trains on what a run of these values would have drawn by itself.
TEST_F(PairCommands, TablesOfPairsAreThoseThatARunDraws) {
  make_pictures();
  const Result made = millrace({"make-data", "image_pairs", "--pairs-from=pictures/labels.txt", "--out=tables", "--folds=4",
                                "--per-class=40", "--theta=6", "--near-band=5", "--near-ratio=0.25"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, testing::StartsWith("tables of pairs of image_pairs, seed 42, in tables\n"));
  for (int fold = 1; fold <= 4; ++fold) EXPECT_TRUE(there("tables/train_fold" + std::to_string(fold) + "_120.csv")) << fold;
  const std::size_t next = made.out.find("next: millrace ");
  ASSERT_NE(next, std::string::npos) << made.out;
  EXPECT_THAT(made.out.substr(next),
              AllOf(HasSubstr(" --data pictures --recipe.train_pairs=tables/train_fold1_120.csv"),
                    HasSubstr(" --recipe.val_pairs=tables/eval_fold1_"), HasSubstr(" --recipe.theta=6\n")));
  std::istringstream text(made.out.substr(next + std::string("next: millrace ").size()));
  std::vector<std::string> words;
  for (std::string word; text >> word;) words.push_back(word);
  const Json of_tables = losses(words, "of_tables");
  EXPECT_TRUE(of_tables.is_object());
  EXPECT_EQ(losses({"train", "image_pairs", "--preset=smoke", "--data=pictures", "--recipe.folds=4", "--recipe.per_class=40",
                    "--recipe.theta=6", "--recipe.near_band=5", "--recipe.near_ratio=0.25"},
                   "drawn"),
            of_tables);
}

TEST_F(PairCommands, TablesOfPairsHaveThePublishedSizeOrThatOfThePreset) {
  make_pictures();
  ASSERT_EQ(millrace({"make-data", "image_pairs", "--pairs-from=pictures/labels.txt"}).exit_code, 0);
  EXPECT_TRUE(there("runs/data/image_pairs-tables/train_fold5_45000.csv"));
  EXPECT_TRUE(there("runs/data/image_pairs-tables/eval_fold5_21945.csv")) << "all pairs of 210 images";
  ASSERT_EQ(millrace({"make-data", "image_pairs", "--pairs-from=pictures/labels.txt", "--preset=smoke", "--out=small"}).exit_code,
            0);
  EXPECT_TRUE(there("small/train_fold5_3000.csv"));
}

TEST_F(PairCommands, TablesOfPairsLookAtTheGroupsAsARunDoes) {
  std::string labels;
  for (char name = 'a'; name <= 'p'; ++name) labels += std::string(1, name) + ".png " + std::to_string((name - 'a') % 4) + "\n";
  write_text(root_.path() / "labels.txt", labels);
  const auto make = [&](const std::string& groups, const std::string& out) {
    write_text(root_.path() / "groups.txt", groups);
    return millrace({"make-data", "image_pairs", "--pairs-from=labels.txt", "--folds=2", "--per-class=2", "--out=" + out});
  };
  const Result refused = make("images/a.png\tx\nimages/b.png\tx\n", "no");
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.err, HasSubstr("the file of groups names none of the 16 labelled images"));
  EXPECT_FALSE(there("no"));
  const Result made = make("a.png\tx\nb.png\tx\n", "tables");
  EXPECT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.err, HasSubstr("groups.txt names no group for 14 of 16 images"));
}

TEST_F(PairCommands, OptionsOfTablesAreCheckedAsTheKeysOfARun) {
  const auto refused = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"make-data", "image_pairs", "--out=tables"};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = millrace(words);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_FALSE(there("tables"));
    return result.err;
  };
  EXPECT_THAT(refused({"--pairs-from=labels.txt", "--theta=x"}), AllOf(HasSubstr("recipe.theta"), HasSubstr("flag --theta=x")));
  EXPECT_THAT(refused({"--pairs-from=labels.txt", "--folds=1", "--near-ratio=2"}),
              AllOf(HasSubstr("flag --folds=1"), HasSubstr("flag --near-ratio=2")));
  EXPECT_THAT(refused({"--per-class=5"}), HasSubstr("--per-class has an effect only with --pairs-from"));
  EXPECT_THAT(refused({"--clean=photographs", "--pairs-from=labels.txt"}), HasSubstr("--clean makes images"));
}

TEST_F(PairCommands, ARankingReplacesNothingThatItReads) {
  for (const char* name : {"a.png", "b.png", "labels.csv"}) write_text(root_.path() / name, "x");
  for (const char* out : {"--out=./b.png", "--out=labels.csv"}) {
    const Result result = millrace({"rank", "--run=none", "a.png", "b.png", "--labels=labels.csv", out});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr(" is an input file, which the output would replace\n  where    flag --out\n"));
  }
}

TEST_F(PairCommands, AnAdapterDoesNotReplaceTheOneThatTheRunBeganFrom) {
  make_pictures();
  const std::vector<std::string> words = {"train", "image_pairs", "--preset=smoke", "--data=pictures",
                                          "--recipe.freeze_base=true"};
  (void)losses(words, "first");
  const Result given = millrace({"adapter", "--run=first", "--out=given"});
  ASSERT_EQ(given.exit_code, 0) << given.err;
  const stdfs::path file = root_.path() / "given/adapter_model.safetensors";
  const std::string before = read_text(file);
  std::vector<std::string> more = words;
  more.emplace_back("--recipe.adapter=given");
  (void)losses(more, "second");
  const Result refused = millrace({"adapter", "--run=second", "--out=given"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("adapter_model.safetensors is an input file, which the output would replace"));
  EXPECT_TRUE(read_text(file) == before) << "the given adapter has other bytes";
  EXPECT_EQ(millrace({"adapter", "--run=second", "--out=other"}).exit_code, 0);
}

TEST_F(PairCommands, WithoutAGpuVerifyEndsWithThreeAndAPlainSentence) {
  const Result result = millrace({"doctor", "image_pairs", "--verify", "--preset=smoke"});
  EXPECT_EQ(result.exit_code, 3) << result.out << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("no GPU is used ("), HasSubstr("training uses the CPU"), HasSubstr("ready to train")));
}

}  // namespace
}  // namespace millrace::test
