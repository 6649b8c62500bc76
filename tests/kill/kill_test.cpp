// kill -9 at random moments, resumed with the same command each time: the end is bit-equal to that of an uninterrupted run.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/base/philox.h"
#include "small_runs.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

class Kill : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("millrace-kill-" + GetParam() + "-" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    words_ = test::small_run(GetParam(), folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Child process in a quiet terminal-less world; its output goes to a file that a failure shows.
  pid_t start(const std::string& run) const {
    std::vector<std::string> words = {MILLRACE_PROGRAM,
                                      "train",
                                      GetParam(),
                                      "--run",
                                      (folder_ / run).string(),
                                      "--train.epochs=0",
                                      "--snapshot.every_steps=5",
                                      "--snapshot.keep_last=2",
                                      "--train.validate_every=35",
                                      "--precision.dtype=fp32",
                                      "--device.threads=1",
                                      "--device.kernels=ours"};
    words.insert(words.end(), words_.begin(), words_.end());
    words.push_back("--data.batch_size=" + std::to_string(test::small_batch(GetParam())));
    words.push_back(GetParam() == "language_model" ? "--train.max_steps=420" : "--train.max_steps=140");
    const pid_t child = ::fork();
    if (child == 0) {
      ::setenv("XDG_CACHE_HOME", (folder_ / "cache").c_str(), 1);
      const int out = ::open((folder_ / "output.txt").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
      ::dup2(out, 1);
      ::dup2(out, 2);
      std::vector<char*> arguments;
      for (std::string& word : words) arguments.push_back(word.data());
      arguments.push_back(nullptr);
      ::execv(MILLRACE_PROGRAM, arguments.data());
      ::_exit(127);
    }
    return child;
  }

  std::string output() const {
    std::ifstream file(folder_ / "output.txt");
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string digest(const std::string& run) const {
    std::ifstream file(folder_ / run / "summary.json");
    return Json::parse(file).at("state_sha256").get<std::string>();
  }

  // A run that nothing stops, once for each recipe.
  void train_straight() {
    if (!straight_[GetParam()].empty()) return;
    int status = 0;
    ::waitpid(start("straight"), &status, 0);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << output();
    straight_[GetParam()] = digest("straight");
  }

  fs::path folder_;
  std::vector<std::string> words_;
  static std::map<std::string, std::string> straight_;  // its state by recipe
};

std::map<std::string, std::string> Kill::straight_;

TEST_P(Kill, AtRandomMomentsLosesNothing) {
  const char* wish = std::getenv("MILLRACE_KILLS");
  const int wanted = wish == nullptr ? 10 : std::atoi(wish);
  int status = 0;
  ASSERT_NO_FATAL_FAILURE(train_straight());
  const std::string expected = straight_[GetParam()];

  Philox random(make_key(17));
  int kills = 0;
  int rounds = 0;
  while (kills < wanted) {
    const std::string run = "round" + std::to_string(rounds++);
    int killed_here = 0;
    while (true) {
      const pid_t child = start(run);
      // Short lives first, so that the start and the first save are hit; longer ones as a run that is killed often must get on.
      const auto life = std::chrono::milliseconds(100 + random.below(600 + 150 * static_cast<std::uint64_t>(killed_here)));
      const bool kill_this = kills < wanted;
      if (kill_this) {
        std::this_thread::sleep_for(life);
        ::kill(child, SIGKILL);
      }
      ::waitpid(child, &status, 0);
      if (WIFSIGNALED(status)) {
        ++kills;
        ++killed_here;
        continue;
      }
      ASSERT_EQ(WEXITSTATUS(status), 0) << "round " << rounds << " after " << killed_here << " kills:\n" << output();
      break;
    }
    EXPECT_EQ(digest(run), expected) << "round " << rounds << " with " << killed_here << " kills";
    fs::remove_all(folder_ / run);
  }
  RecordProperty("kills", kills);
  RecordProperty("rounds", rounds);
}

TEST_P(Kill, SigtermSavesExits143AndTheSameCommandGoesOnExactly) {
  int status = 0;
  ASSERT_NO_FATAL_FAILURE(train_straight());
  int stopped = 0;
  for (int i = 0; i < 40 && stopped < 3; ++i) {
    fs::remove(folder_ / "output.txt");
    const pid_t child = start("stopped");
    // Before the plan is printed nothing is trained yet, and the handlers may not be there.
    while (output().find("plan\n") == std::string::npos && ::kill(child, 0) == 0 && ::waitpid(child, &status, WNOHANG) == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ::kill(child, SIGTERM);
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status)) << "a signal that is handled must not kill\n" << output();
    if (WEXITSTATUS(status) == 0) break;
    EXPECT_EQ(WEXITSTATUS(status), 143) << output();
    ++stopped;
  }
  EXPECT_GT(stopped, 0);
  ::waitpid(start("stopped"), &status, 0);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << output();
  EXPECT_EQ(digest("stopped"), straight_[GetParam()]);
}

INSTANTIATE_TEST_SUITE_P(Recipes, Kill, testing::Values("language_model", "neural_response", "autoencoder_3d", "image_pairs"),
                         [](const auto& recipe) { return std::string(recipe.param); });

}  // namespace
}  // namespace millrace
