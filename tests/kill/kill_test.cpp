// kill -9 at random moments, resumed with the same command each time: the end is bit-equal to that of a run never touched.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/base/philox.h"
#include "millrace/recipes/autoencoder_3d/make_data.h"
#include "millrace/recipes/image_pairs/make_data.h"
#include "millrace/recipes/neural_response/make_data.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

class Kill : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("millrace-kill-" + GetParam() + "-" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    if (GetParam() == "neural_response") {
      fs::create_directories(folder_ / "sessions");
      recipes::neural_response::write_sample_sessions({.sessions = 2, .units = 4, .bins = 1200, .side = 11, .lags = 6},
                                                      folder_ / "sessions", 0);
      return;
    }
    if (GetParam() == "autoencoder_3d") {
      fs::create_directories(folder_ / "volumes");
      recipes::autoencoder_3d::write_sample_volumes({.side = 14, .train = 10, .validation = 2, .patch = 12}, folder_ / "volumes",
                                                    0);
      return;
    }
    if (GetParam() == "image_pairs") {
      fs::create_directories(folder_ / "pairs");
      recipes::image_pairs::write_sample_images({.size = 16, .images = 28}, folder_ / "pairs", 0);
      return;
    }
    Philox random(make_key(3));
    std::ofstream text(folder_ / "text.txt");
    for (int i = 0; i < 6000; ++i) text << static_cast<char>('a' + random.below(9));
  }
  void TearDown() override { fs::remove_all(folder_); }

  // A small model on its data; weighted sampling and groups in neural_response, a second objective that joins later in
  // autoencoder_3d.
  std::vector<std::string> words_of_recipe() const {
    if (GetParam() == "neural_response") {
      return {"--data.dir=" + (folder_ / "sessions").string(),
              "--recipe.adapter.grid_size=9",
              "--recipe.frontend.kernel_size=3",
              "--recipe.frontend.num_channels=2",
              R"(--recipe.convnet.stages=[{"channels":4,"stride":2,"dropout":0.1}])",
              "--recipe.modulator.hidden_dim=4",
              "--recipe.modulator.beh_emb_dim=2",
              "--recipe.steps_per_epoch=11",
              "--recipe.enable_curriculum=true",
              "--device.layout=contiguous",
              "--log.images=false",
              "--data.batch_size=6",
              "--train.max_steps=140"};
    }
    if (GetParam() == "image_pairs") {  // a frozen base that snapshots leave out
      return {"--data.dir=" + (folder_ / "pairs").string(),
              "--recipe.image_size=16",
              "--recipe.patch_size=8",
              "--recipe.vision_width=8",
              "--recipe.vision_layers=1",
              "--recipe.vision_heads=2",
              "--recipe.vision_hidden=16",
              "--recipe.vision_feature_layer=-1",
              "--recipe.decoder_width=16",
              "--recipe.decoder_layers=2",
              "--recipe.decoder_heads=2",
              "--recipe.decoder_hidden=24",
              "--recipe.vocab_size=262",
              "--recipe.question=?",
              "--recipe.per_class=6",
              "--recipe.folds=2",
              "--recipe.val_samples=6",
              "--recipe.freeze_base=true",
              "--train.early_stop_patience=0",
              "--log.images=false",
              "--data.batch_size=2",
              "--train.max_steps=140"};
    }
    if (GetParam() == "autoencoder_3d") {
      return {"--data.dir=" + (folder_ / "volumes").string(),
              "--recipe.channels=[4,8]",
              "--recipe.attention_levels=[false,true]",
              "--recipe.latent_channels=2",
              "--recipe.num_res_blocks=1",
              "--recipe.norm_num_groups=2",
              "--recipe.with_decoder_nonlocal_attn=false",
              "--recipe.patch_size=[12,12,12]",
              "--recipe.disc_channels=2",
              "--recipe.disc_layers=2",
              "--recipe.adv_start_epoch=3",
              "--recipe.perceptual_weight=0",
              "--device.layout=contiguous",
              "--log.images=false",
              "--data.batch_size=2",
              "--train.max_steps=140"};
    }
    return {"--recipe.sources=" + (folder_ / "text.txt").string(),
            "--recipe.model_embd=16",
            "--recipe.model_layer=1",
            "--recipe.model_head=2",
            "--recipe.model_positions=16",
            "--recipe.seq_len=16",
            "--recipe.model_dropout=0.1",
            "--data.batch_size=8",
            "--train.max_steps=420"};
  }

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
                                      "--device.threads=1"};
    const std::vector<std::string> own = words_of_recipe();
    words.insert(words.end(), own.begin(), own.end());
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

  fs::path folder_;
};

TEST_P(Kill, AtRandomMomentsLosesNothing) {
  const char* wish = std::getenv("MILLRACE_KILLS");
  const int wanted = wish == nullptr ? 10 : std::atoi(wish);
  int status = 0;
  ::waitpid(start("straight"), &status, 0);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << output();
  const std::string expected = digest("straight");

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
  ::waitpid(start("straight"), &status, 0);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << output();
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
  EXPECT_EQ(digest("stopped"), digest("straight"));
}

INSTANTIATE_TEST_SUITE_P(Recipes, Kill, testing::Values("language_model", "neural_response", "autoencoder_3d", "image_pairs"),
                         [](const auto& recipe) { return std::string(recipe.param); });

}  // namespace
}  // namespace millrace
