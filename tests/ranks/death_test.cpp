// Ranks that end or freeze: the last line names the rank, no process is left behind, nothing is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rank_program.h"

namespace millrace::test {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

constexpr int kEndless = 1000000;
const std::vector<std::string> kSavesOften = {"--snapshot.every_steps=5"};

class Death : public testing::TestWithParam<int> {};  // the rank
INSTANTIATE_TEST_SUITE_P(Ranks, Death, testing::Values(0, 1));

TEST_P(Death, AKilledRankIsNamedWithItsStepAndNobodyStays) {
  RankProgram program("language_model");
  const pid_t launcher = program.start(program.launched(2, program.words("run", 2, kEndless, kSavesOften)));
  program.wait_for_step(launcher, "run");
  const pid_t rank = program.rank_process(launcher, GetParam());
  ASSERT_GT(rank, 0) << program.output();
  ::kill(rank, SIGKILL);
  EXPECT_EQ(program.finish(launcher), 128 + SIGKILL);
  const std::string killed = "rank " + std::to_string(GetParam()) + " was killed by SIGKILL, (the save of )?step [0-9]+";
  EXPECT_THAT(program.last_error(), ContainsRegex(killed)) << program.output();
  EXPECT_TRUE(processes_with(program.folder().string()).empty());
}

TEST_P(Death, AFrozenRankIsNamedAfterTheLimit) {
  RankProgram program("language_model");
  const auto words = program.words("run", 2, kEndless, kSavesOften);
  const pid_t launcher = program.start(program.launched(2, words, {"--hang-limit", "2"}));
  program.wait_for_step(launcher, "run");
  const pid_t rank = program.rank_process(launcher, GetParam());
  ASSERT_GT(rank, 0) << program.output();
  ::kill(rank, SIGSTOP);
  EXPECT_NE(program.finish(launcher), 0);
  EXPECT_THAT(program.last_error(), HasSubstr("rank " + std::to_string(GetParam()) + " is frozen (SIGSTOP)")) << program.output();
  EXPECT_TRUE(processes_with(program.folder().string()).empty());
}

TEST_P(Death, ASignalToOneRankStopsAllAndIsNoFailure) {
  RankProgram program("language_model");
  const auto words = program.words("run", 2, kEndless, kSavesOften);
  const pid_t launcher = program.start(program.launched(2, words, {"--max-restarts", "1"}));
  program.wait_for_step(launcher, "run");
  const pid_t rank = program.rank_process(launcher, GetParam());
  ASSERT_GT(rank, 0) << program.output();
  ::kill(rank, SIGTERM);
  EXPECT_EQ(program.finish(launcher), 128 + SIGTERM) << program.output();
  EXPECT_THAT(program.output(), HasSubstr("stopped by SIGTERM, saved at step"));
  EXPECT_THAT(program.output(), Not(HasSubstr("failed with exit code")));
  EXPECT_THAT(program.output(), Not(HasSubstr("restarting")));
}

// Ctrl-Z stops the launcher alone. While it is stopped it can't see that the ranks move.
TEST(Ranks, AStoppedLauncherDoesNotTakeItsOwnPauseForAHang) {
  RankProgram program("language_model");
  const auto words = program.words("run", 2, kEndless, kSavesOften);
  const pid_t launcher = program.start(program.launched(2, words, {"--hang-limit", "3"}));
  program.wait_for_step(launcher, "run");
  const std::vector<pid_t> ranks = {program.rank_process(launcher, 0), program.rank_process(launcher, 1)};
  ASSERT_GT(ranks[0], 0) << program.output();
  ASSERT_GT(ranks[1], 0) << program.output();
  ::kill(launcher, SIGSTOP);
  for (const pid_t rank : ranks) ::kill(rank, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(5));
  ::kill(launcher, SIGCONT);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  for (const pid_t rank : ranks) ::kill(rank, SIGCONT);
  ::kill(launcher, SIGTERM);
  EXPECT_EQ(program.finish(launcher), 128 + SIGTERM) << program.output();
  EXPECT_THAT(program.output(), Not(HasSubstr("is frozen")));
}

// A launcher waits minutes for the one that holds the meeting point; a signal ends the wait.
TEST(Ranks, ASignalEndsTheWaitForAnotherMachine) {
  RankProgram program("language_model");
  const std::string place = "127.0.0.1:" + std::to_string(40000 + ::getpid() % 20000);
  const std::vector<std::string> options = {"--nodes", "2", "--rank", "1", "--at", place};
  const pid_t launcher = program.start(program.launched(2, program.words("run", 4, 10), options));
  std::this_thread::sleep_for(std::chrono::seconds(2));
  ::kill(launcher, SIGINT);
  EXPECT_EQ(program.finish(launcher), 128 + SIGINT) << program.output();
}

TEST(Ranks, ALogOnAFullDiskIsTold) {
  RankProgram program("language_model");
  std::filesystem::create_directory(program.folder() / "logs");
  std::filesystem::create_symlink("/dev/full", program.folder() / "logs" / "rank-0.log");
  ASSERT_EQ(program.run(program.launched(2, program.words("run", 2, 3))), 0) << program.output();
  EXPECT_THAT(program.output(), ContainsRegex("output of rank 0 is not kept in .*: No space left on device"));
  EXPECT_THAT(program.output(), HasSubstr("[0] done at step 3"));
}

// How long ranks wait for absent ones is a setting of its own, and its error names them.
TEST(Ranks, RanksThatWaitForAnotherMachineDoNotHang) {
  RankProgram program("language_model");
  const auto words = program.words("run", 4, 10, {"--distributed.join_timeout=19"});
  const std::string place = "127.0.0.1:" + std::to_string(40000 + ::getpid() % 20000);
  const std::vector<std::string> options = {"--nodes", "2", "--rank", "0", "--at", place, "--hang-limit", "15"};
  EXPECT_NE(program.run(program.launched(2, words, options)), 0);
  EXPECT_THAT(program.output(), HasSubstr("ranks 2 and 3 of 4 did not join within 19 s"));
  EXPECT_THAT(program.output(), Not(HasSubstr("has not moved")));
}

TEST(Ranks, ASignalStopsAllAfterTheirStepAndTheRunGoesOn) {
  RankProgram program("language_model");
  ASSERT_EQ(program.run(program.launched(2, program.words("straight", 2, 200))), 0) << program.output();
  const pid_t launcher = program.start(program.launched(2, program.words("stopped", 2, 200, kSavesOften)));
  program.wait_for_step(launcher, "stopped");
  ::kill(launcher, SIGTERM);
  const int code = program.finish(launcher);
  EXPECT_TRUE(code == 128 + SIGTERM || code == 0) << code << program.output();
  ASSERT_EQ(program.run(program.launched(2, program.words("stopped", 2, 200, kSavesOften))), 0) << program.output();
  EXPECT_EQ(program.summary("straight").at("state_sha256"), program.summary("stopped").at("state_sha256"));
}

TEST(Ranks, AFailureStartsAllAnewAndTheEndIsThatOfAnUntouchedRun) {
  RankProgram program("language_model");
  ASSERT_EQ(program.run(program.launched(2, program.words("straight", 2, 400))), 0) << program.output();
  EXPECT_THAT(program.output(), HasSubstr("[0] done at step 400"));
  EXPECT_THAT(program.output(), Not(HasSubstr("[1] "))) << "rank 0 alone writes";
  const auto words = program.words("killed", 2, 400, kSavesOften);
  const pid_t launcher = program.start(program.launched(2, words, {"--max-restarts", "1"}));
  program.wait_for_step(launcher, "killed");
  const pid_t rank = program.rank_process(launcher, 1);
  ASSERT_GT(rank, 0) << program.output();
  ::kill(rank, SIGKILL);
  EXPECT_EQ(program.finish(launcher), 0) << program.output();
  EXPECT_THAT(program.output(), HasSubstr("restarting all ranks, restart 1 of 1"));
  EXPECT_EQ(program.summary("straight").at("state_sha256"), program.summary("killed").at("state_sha256"));
}

struct Ended {
  int code = 0;
  std::string last, output;
};

// A run of the toy in which one rank ends badly; false in `clean` when a process stays behind.
Ended run_faulty(int ranks, const std::string& fault, const std::vector<std::string>& options, bool& clean) {
  RankProgram program("grouped_regression", FAULTY_PROGRAM);
  const std::vector<std::string> words = {"--train.max_steps=60", "--train.validate_every=20", "--snapshot.every_steps=10"};
  const pid_t launcher =
      program.start(program.launched(ranks, program.words("run", ranks, 60, words), options), {{"FAULT", fault}});
  const int code = program.finish(launcher);
  clean = processes_with(program.folder().string()).empty();
  return {code, program.last_error(), program.output()};
}

// Each place with some way, each way at some place; MILLRACE_DEATHS=all takes every pair, with two ranks and with four.
std::vector<std::pair<int, std::string>> faults() {
  const std::vector<std::string> places = {"meeting", "step", "validation", "state", "end"};
  const std::vector<std::string> ways = {"kill", "stop", "throw", "exit", "loop"};
  const char* wish = std::getenv("MILLRACE_DEATHS");
  const bool all = wish != nullptr && std::string(wish) == "all";
  std::vector<std::pair<int, std::string>> some;
  for (const int ranks : {2, 4}) {
    for (std::size_t place = 0; place < places.size(); ++place) {
      for (std::size_t way = 0; way < ways.size(); ++way) {
        const bool taken = ranks == 2 && (place + 3 * way) % ways.size() == 0;
        if (all || taken) some.emplace_back(ranks, std::to_string(ranks - 1) + " " + places[place] + " " + ways[way]);
      }
    }
  }
  return some;
}

// How a run ends says the launcher's own error: a rank that ends, also one without an error, is named; a rank that hangs is
// ended.
TEST(Ranks, WhateverEndsARankAndWhereverItIsNamedAndNobodyStays) {
  for (const auto& [ranks, fault] : faults()) {
    bool clean = false;
    const Ended ended = run_faulty(ranks, fault, {"--hang-limit", "3"}, clean);
    EXPECT_NE(ended.code, 0) << fault << ended.output;
    EXPECT_THAT(ended.last, HasSubstr("rank " + std::to_string(ranks - 1) + " ")) << fault << ended.output;
    EXPECT_TRUE(clean) << fault;
  }
}

// MILLRACE_KILLS: how many. A save of each step; the run is started anew each time and ends in the bits of one never touched.
TEST(Ranks, KilledInItsSavesARunLosesNothing) {
  const char* wish = std::getenv("MILLRACE_KILLS");
  const std::string kills = wish == nullptr ? "4" : wish;
  const int steps = 60 + 4 * std::atoi(kills.c_str());  // an attempt gets three on at most
  RankProgram program("grouped_regression", FAULTY_PROGRAM);
  const std::vector<std::string> saves = {"--snapshot.every_steps=1", "--snapshot.max_lag=0", "--snapshot.keep_last=2"};
  ASSERT_EQ(program.run(program.launched(2, program.words("straight", 2, steps))), 0) << program.output();
  const auto words = program.words("killed", 2, steps, saves);
  const pid_t launcher = program.start(program.launched(2, words, {"--max-restarts", kills}), {{"SAVE_KILLS", kills}});
  ASSERT_EQ(program.finish(launcher), 0) << program.output();
  EXPECT_THAT(program.output(), HasSubstr("restarting all ranks, restart " + kills + " of " + kills));
  EXPECT_EQ(program.summary("killed").at("state_sha256"), program.summary("straight").at("state_sha256"));
  EXPECT_EQ(program.summary("killed").at("steps"), steps);
}

// What the others wait for it is on account, and the doctor says who it is.
TEST(Ranks, ASlowRankIsNamedAndTheWaitForItIsOnAccount) {
  RankProgram program("grouped_regression", FAULTY_PROGRAM);
  const auto words = [&](const char* run) {
    return program.words(run, 2, 80, {"--log.doctor=true", "--log.every=10", "--train.validate_every=40"});
  };
  for (const std::string slow : {"0", "1"}) {
    const pid_t launcher = program.start(program.launched(2, words(slow.c_str())), {{"FAULT", slow + " step slow"}});
    ASSERT_EQ(program.finish(launcher), 0) << program.output();
    const Json summary = program.summary(slow);
    std::string uneven;
    for (const Json& finding : summary.at("findings")) {
      EXPECT_NE(finding["id"], "unaccounted") << finding;
      if (finding["id"] == "uneven_ranks") uneven = finding["what"];
    }
    EXPECT_THAT(uneven, HasSubstr("of the time for rank " + slow + ", whose steps take longer")) << summary["findings"];
    const Json& accounts = summary.at("accounts");
    double sum = 0;
    for (const auto& [name, seconds] : accounts.items()) sum += seconds.get<double>();
    EXPECT_NEAR(sum, summary.at("wall_s").get<double>(), 1e-6);
    const auto waited = accounts.at("reduction").get<double>(), unnamed = accounts.at("rest").get<double>();
    if (slow == "1") {
      EXPECT_GT(waited, 10 * unnamed) << accounts;
    }
  }
}

}  // namespace
}  // namespace millrace::test
