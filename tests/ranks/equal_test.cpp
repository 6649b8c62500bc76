// Several processes give the result of one: with each recipe, from each launcher's environment, and when a run is resumed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "rank_program.h"

namespace millrace::test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int kSteps = 20;
// Adam's first steps are of the size of the learning rate whatever the gradient's: where a gradient is zero but for rounding, as
// that of a bias before a batch norm, the order of a sum would decide where the weight goes.
const std::vector<std::string> kLinear = {"--optim.name=sgd", "--optim.learning_rate=0.01", "--optim.lr_scaling=none"};

// The program of a recipe, with the runs that several tests read.
RankProgram& shared_program(const std::string& recipe) {
  static std::map<std::string, RankProgram> programs;
  return programs.try_emplace(recipe, recipe).first->second;
}

bool has_run(const RankProgram& program, const char* run) {
  return std::filesystem::exists(program.folder() / run / "summary.json");
}

// Cosmology's steps take far longer than others'; its epochs have six.
int steps_of(const std::string& recipe) { return recipe == "cosmology" ? 10 : kSteps; }

// The run "one", of one process.
void make_one(RankProgram& program, const std::string& recipe) {
  if (has_run(program, "one")) return;
  ASSERT_EQ(program.run(program.words("one", 1, steps_of(recipe), kLinear)), 0) << program.output();
}

// The discriminator of autoencoder_3d joins after four epochs of at most two steps each.
constexpr int kBitSteps = 12;
const std::vector<std::string> kPlain = {"--optim.schedule=constant"};

// The run "whole", whose optimiser is whole and whose gradients leave in buckets of the default size.
void make_whole(RankProgram& program, int ranks) {
  if (has_run(program, "whole")) return;
  ASSERT_EQ(program.run(program.launched(ranks, program.words("whole", ranks, kBitSteps, kPlain))), 0) << program.output();
}

// The loss of a validation.
std::string judged(const std::string& recipe) { return recipe == "autoencoder_3d" ? "val_autoencoder" : "val_loss"; }

class EqualRanks : public testing::TestWithParam<std::pair<const char*, int>> {};
INSTANTIATE_TEST_SUITE_P(Recipes, EqualRanks,
                         testing::Values(std::pair("language_model", 4), std::pair("cosmology", 2),
                                         std::pair("neural_response", 2), std::pair("autoencoder_3d", 2),
                                         std::pair("image_pairs", 2)),
                         [](const auto& row) { return row.param.first + std::string("_") + std::to_string(row.param.second); });

TEST_P(EqualRanks, TheWeightsAreThoseOfOneProcessOnTheSameGlobalBatch) {
  const auto [recipe, ranks] = GetParam();
  RankProgram& program = shared_program(recipe);
  ASSERT_NO_FATAL_FAILURE(make_one(program, recipe));
  ASSERT_EQ(program.run(program.launched(ranks, program.words("ranks", ranks, steps_of(recipe), kLinear))), 0)
      << program.output();
  EXPECT_LT(difference(program.saved("one"), program.saved("ranks")), 1e-6);
  EXPECT_EQ(program.summary("one").at("samples"), program.summary("ranks").at("samples"));
  const auto last_of = [&](const char* run) {
    return program.summary(run).at("metrics").at(judged(recipe)).at("last").get<double>();
  };
  EXPECT_NEAR(last_of("ranks"), last_of("one"), 1e-5 * std::max(1.0, std::abs(last_of("one"))));
}

// A row for each rank: of two sessions, one is on one rank and the other on the other, or both are of one.
TEST(Ranks, ASessionThatIsOnOneRankOnlyIsLearnedAsByOneProcess) {
  RankProgram program("neural_response");
  const auto with_batch = [](const char* rows) {
    std::vector<std::string> words = kLinear;
    words.insert(words.end(), {std::string("--data.batch_size=") + rows, "--log.every=1", "--log.train_metrics=true"});
    return words;
  };
  ASSERT_EQ(program.run(program.words("one", 1, kSteps, with_batch("2"))), 0) << program.output();
  ASSERT_EQ(program.run(program.launched(2, program.words("ranks", 2, kSteps, with_batch("1")))), 0) << program.output();
  EXPECT_LT(difference(program.saved("one"), program.saved("ranks")), 1e-6);
  EXPECT_THAT(program.output("one/log.jsonl"), HasSubstr(R"("train/groups_per_step":2)"));
  EXPECT_THAT(program.output("ranks/log.jsonl"), Not(HasSubstr(R"("train/groups_per_step":2)")));
}

TEST(Ranks, OverNcclTheWeightsAreThoseOverGlooAndARunGoesOnToTheBit) {
  RankProgram program("language_model");
  const auto on_gpus = [](const char* transport) {
    std::vector<std::string> words = kLinear;
    words.insert(words.end(), {"--device.name=cuda", std::string("--distributed.transport=") + transport});
    return words;
  };
  if (program.run(program.words("none", 1, 1, {"--device.name=cuda:1", "--dry-run"})) != 0) GTEST_SKIP() << "no second GPU";
  const auto run = [&](const char* name, int steps, const char* transport) {
    ASSERT_EQ(program.run(program.launched(2, program.words(name, 2, steps, on_gpus(transport)))), 0) << program.output();
  };
  run("gloo", kSteps, "gloo");
  run("nccl", kSteps, "nccl");
  run("halves", kSteps / 2, "nccl");
  run("halves", kSteps, "nccl");
  EXPECT_THAT(program.output("nccl/plan.json"), HasSubstr("a GPU for each rank"));
  EXPECT_LT(difference(program.saved("gloo"), program.saved("nccl")), 1e-6);
  EXPECT_EQ(program.summary("halves").at("state_sha256"), program.summary("nccl").at("state_sha256"));
}

TEST(Ranks, AccumulatedBatchesAreAddedUpOnceAStep) {
  RankProgram& program = shared_program("language_model");
  ASSERT_NO_FATAL_FAILURE(make_one(program, "language_model"));
  std::vector<std::string> words = kLinear;
  words.insert(words.end(), {"--data.batch_size=2", "--optim.accumulate=2"});
  ASSERT_EQ(program.run(program.launched(2, program.words("accumulated", 2, kSteps, words))), 0) << program.output();
  EXPECT_LT(difference(program.saved("one"), program.saved("accumulated")), 1e-6);
}

TEST(Ranks, GradientsThatLeaveEarlyEndInTheBitsOfOneSumAfterThePass) {
  for (const auto& [recipe, ranks] : {std::pair("language_model", 4), std::pair("autoencoder_3d", 2)}) {
    RankProgram& program = shared_program(recipe);
    ASSERT_NO_FATAL_FAILURE(make_whole(program, ranks));
    EXPECT_EQ(Json::parse(program.output("whole/config.json"))["values"]["distributed"]["bucket_bytes"], 26214400);
    for (const std::string bytes : {"0", "4096"}) {
      std::vector<std::string> words = kPlain;
      words.push_back("--distributed.bucket_bytes=" + bytes);
      ASSERT_EQ(program.run(program.launched(ranks, program.words(bytes, ranks, kBitSteps, words))), 0) << program.output();
      EXPECT_EQ(program.summary(bytes).at("state_sha256"), program.summary("whole").at("state_sha256")) << recipe << " " << bytes;
    }
  }
}

// Whose state is saved whole: another number of ranks goes on from it, with shards or without.
TEST(Ranks, AnOptimiserInShardsMakesTheBitsOfAWholeOne) {
  std::vector<std::string> shards = kPlain;
  shards.emplace_back("--distributed.shard_optimizer=true");
  for (const auto& [recipe, ranks] : {std::pair("language_model", 4), std::pair("autoencoder_3d", 2)}) {
    RankProgram& program = shared_program(recipe);
    ASSERT_NO_FATAL_FAILURE(make_whole(program, ranks));
    ASSERT_EQ(program.run(program.launched(ranks, program.words("parts", ranks, kBitSteps, shards))), 0) << program.output();
    const Json whole = program.summary("whole"), parts = program.summary("parts");
    EXPECT_EQ(whole.at("state_sha256"), parts.at("state_sha256")) << recipe;
    const auto bytes = [](const Json& summary) { return summary.at("memory").at("account").at("optimizer").get<double>(); };
    EXPECT_LT(bytes(parts), bytes(whole) * 1.4 / ranks) << recipe;
    if (std::string(recipe) == "autoencoder_3d") {  // its rate grows with the square root of the global batch
      EXPECT_THAT(program.output("whole/plan.json"), HasSubstr(" x sqrt(8 / 4)"));
    }

    ASSERT_EQ(program.run(program.launched(ranks, program.words("mixed", ranks, kBitSteps / 2, shards))), 0) << program.output();
    ASSERT_EQ(program.run(program.launched(ranks, program.words("mixed", ranks, kBitSteps - 2, kPlain))), 0) << program.output();
    ASSERT_EQ(program.run(program.launched(ranks, program.words("mixed", ranks, kBitSteps, shards))), 0) << program.output();
    EXPECT_EQ(whole.at("state_sha256"), program.summary("mixed").at("state_sha256")) << recipe;
  }
}

// Part of the state went with the rank: the last snapshot is what a run goes on from.
TEST(Ranks, ARankThatDiesTakesItsShardAndTheRunGoesOnFromTheLastSnapshot) {
  RankProgram program("language_model");
  const std::vector<std::string> words = {"--distributed.shard_optimizer=true", "--snapshot.every_steps=5"};
  ASSERT_EQ(program.run(program.launched(2, program.words("straight", 2, 200, words))), 0) << program.output();
  const pid_t launcher = program.start(program.launched(2, program.words("killed", 2, 200, words), {"--max-restarts", "1"}));
  program.wait_for_step(launcher, "killed");
  if (const pid_t rank = program.rank_process(launcher, 1); rank > 0) ::kill(rank, SIGKILL);
  EXPECT_EQ(program.finish(launcher), 0) << program.output();
  EXPECT_EQ(program.summary("straight").at("state_sha256"), program.summary("killed").at("state_sha256"));
}

TEST(Ranks, CompressedGradientsDifferInTheirLastDigitsOnly) {
  RankProgram& program = shared_program("language_model");
  ASSERT_NO_FATAL_FAILURE(make_one(program, "language_model"));
  std::vector<std::string> words = kLinear;
  words.emplace_back("--distributed.compress=true");
  ASSERT_EQ(program.run(program.launched(2, program.words("compressed", 2, kSteps, words))), 0) << program.output();
  const double apart = difference(program.saved("one"), program.saved("compressed"));
  EXPECT_GT(apart, 1e-9);
  EXPECT_LT(apart, 1e-4);
}

TEST(Ranks, AnotherNumberOfProcessesGoesOnInTheSameOrder) {
  RankProgram& program = shared_program("language_model");
  ASSERT_NO_FATAL_FAILURE(make_one(program, "language_model"));
  int reached = 0;
  for (const int ranks : {1, 2, 4, 2}) {
    reached += kSteps / 4;
    ASSERT_EQ(program.run(program.launched(ranks, program.words("renumbered", ranks, reached, kLinear))), 0) << program.output();
  }
  EXPECT_LT(difference(program.saved("one"), program.saved("renumbered")), 1e-6);
}

TEST(Ranks, ARunThatIsCompleteIsSoForAllOfThem) {
  RankProgram program("language_model");
  const auto words = program.launched(2, program.words("run", 2, 6));
  ASSERT_EQ(program.run(words), 0) << program.output();
  const Json before = program.summary("run");
  EXPECT_EQ(program.run(words), 0) << program.output();
  EXPECT_THAT(program.output(), HasSubstr("already complete at step 6"));
  EXPECT_EQ(program.summary("run"), before);
}

TEST(Ranks, EachKeepsTheAccountsOfItsTime) {
  RankProgram& program = shared_program("language_model");
  ASSERT_NO_FATAL_FAILURE(make_one(program, "language_model"));
  EXPECT_FALSE(program.summary("one").contains("ranks"));
  ASSERT_EQ(program.run(program.launched(2, program.words("accounts", 2, kSteps))), 0) << program.output();
  const Json summary = program.summary("accounts");
  const Json& ranks = summary.at("ranks");
  ASSERT_EQ(ranks.size(), 2U) << summary;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    EXPECT_EQ(ranks[i].at("rank"), i);
    const auto wall = ranks[i].at("wall_s").get<double>();
    double sum = 0;
    for (const auto& [name, seconds] : ranks[i].at("accounts").items()) sum += seconds.get<double>();
    EXPECT_GT(wall, 0);
    EXPECT_NEAR(sum, wall, 0.01 * wall) << ranks[i];
    EXPECT_GT(ranks[i].at("accounts").at("reduction").get<double>(), 0);
  }
  // Rank 0's are those of the summary, but for the wait for rank 1 at the end.
  EXPECT_LE(ranks[0].at("wall_s").get<double>(), summary.at("wall_s").get<double>());
  EXPECT_NEAR(ranks[0].at("accounts").at("backward").get<double>(), summary.at("accounts").at("backward").get<double>(),
              0.01 * summary.at("wall_s").get<double>());
  EXPECT_EQ(program.run({"doctor", (program.folder() / "accounts").string()}), 0);
  EXPECT_THAT(program.output(), testing::AllOf(HasSubstr("\nrank 0  "), HasSubstr("\nrank 1  "), HasSubstr(", longest in ")));
}

// Rank 0 leaves with the code of a missed target: it came to its end, and nothing is started anew.
TEST(Ranks, AMissedTargetIsNoFailureOfARank) {
  RankProgram program("language_model");
  const auto words = program.words("strict", 2, 300, {"--targets.samples_per_s=1e9", "--strict"});
  const int code = program.run(program.launched(2, words, {"--max-restarts", "1"}));
  EXPECT_EQ(program.summary("strict").at("steps"), 300) << program.output();
  EXPECT_EQ(code, program.summary("strict").contains("targets") ? 4 : 0) << program.output();  // not of less than a second
  EXPECT_THAT(program.output(), Not(HasSubstr("restarting")));
  EXPECT_THAT(program.output(), Not(HasSubstr("failed")));
}

Environment torchrun(int rank, const std::string& port) {
  return {{"RANK", std::to_string(rank)}, {"WORLD_SIZE", "2"},          {"LOCAL_RANK", std::to_string(rank)},
          {"LOCAL_WORLD_SIZE", "2"},      {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}};
}

Environment slurm(int rank, const std::string& job) {
  return {{"SLURM_STEP_ID", "0"},
          {"SLURM_STEP_NUM_TASKS", "2"},
          {"SLURM_PROCID", std::to_string(rank)},
          {"SLURM_LOCALID", std::to_string(rank)},
          {"SLURM_STEP_NODELIST", "node7"},
          {"SLURM_STEP_TASKS_PER_NODE", "2"},
          {"SLURM_STEP_NUM_NODES", "1"},
          {"SLURM_JOB_ID", job}};
}

Environment open_mpi(int rank, const std::string& job) {
  return {{"OMPI_COMM_WORLD_SIZE", "2"},
          {"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(rank)},
          {"PMIX_NAMESPACE", job}};
}

TEST(Ranks, TheEnvironmentOfEachLauncherMakesOneRun) {
  RankProgram program("language_model");
  ASSERT_EQ(program.run(program.launched(2, program.words("launched", 2, 6))), 0) << program.output();
  const std::string own = std::to_string(::getpid());  // a port that another test at the same time does not take
  const std::string port = std::to_string(40000 + ::getpid() % 20000);
  const std::vector<std::pair<std::string, std::function<Environment(int)>>> launchers = {
      {"torchrun", [&](int rank) { return torchrun(rank, port); }},
      {"slurm", [&](int rank) { return slurm(rank, own); }},
      {"mpirun", [&](int rank) { return open_mpi(rank, own); }}};
  for (const auto& [name, environment] : launchers) {
    const auto words = program.words(name, 2, 6);
    const pid_t first = program.start(words, environment(0), "rank0.txt");
    const pid_t second = program.start(words, environment(1), "rank1.txt");
    EXPECT_EQ(program.finish(first), 0) << name << program.output("rank0.txt");
    EXPECT_EQ(program.finish(second), 0) << name << program.output("rank1.txt");
    EXPECT_EQ(program.summary(name).at("state_sha256"), program.summary("launched").at("state_sha256")) << name;
  }
}

TEST(Ranks, ThatDifferInTheirConfigAreNamedBeforeTheFirstStep) {
  RankProgram program("language_model");
  const std::string port = std::to_string(40000 + ::getpid() % 20000);
  const pid_t first = program.start(program.words("run", 2, 6), torchrun(0, port), "rank0.txt");
  const pid_t second = program.start(program.words("run", 2, 6, {"--optim.learning_rate=0.125"}), torchrun(1, port), "rank1.txt");
  EXPECT_EQ(program.finish(first), 1);
  EXPECT_EQ(program.finish(second), 1);
  for (const char* output : {"rank0.txt", "rank1.txt"})
    EXPECT_THAT(program.output(output), testing::AllOf(HasSubstr("rank 1 on "), HasSubstr("optim.learning_rate 0.125")))
        << output;
}

TEST(Ranks, AWordTooMuchIsAMistakeInTheUse) {
  RankProgram program("language_model");
  EXPECT_EQ(program.run({"launch", "train", "language_model"}), 2);
  EXPECT_THAT(program.output(), HasSubstr("--nproc"));
  EXPECT_EQ(program.run({"launch", "--nproc", "2", "eval", "language_model"}), 2);
  EXPECT_EQ(program.run({"launch", "--nproc", "2", "--nodes", "2", "train", "language_model"}), 2);
  EXPECT_THAT(program.output(), HasSubstr("--at HOST:PORT"));
}

}  // namespace
}  // namespace millrace::test
