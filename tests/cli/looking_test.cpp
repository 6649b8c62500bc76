// Commands that only look never write: they change no file, no folder and no time of either, wherever a command may reach.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <map>
#include <utility>

#include "process.h"

namespace millrace::test {
namespace {

namespace stdfs = std::filesystem;

// Everything below a folder: what it is, its size, when it was written and what changed of it.
std::map<std::string, std::string> listing(const stdfs::path& folder) {
  std::map<std::string, std::string> all;
  const auto add = [&](const stdfs::path& path) {
    struct stat info {};
    ASSERT_EQ(::lstat(path.c_str(), &info), 0) << path;
    all[path.string()] = std::to_string(info.st_ino) + " mode " + std::to_string(info.st_mode) + " size " +
                         std::to_string(info.st_size) + " written " + std::to_string(info.st_mtim.tv_sec) + "." +
                         std::to_string(info.st_mtim.tv_nsec) + " changed " + std::to_string(info.st_ctim.tv_sec) + "." +
                         std::to_string(info.st_ctim.tv_nsec);
  };
  add(folder);
  for (const auto& entry : stdfs::recursive_directory_iterator(folder)) add(entry.path());
  return all;
}

std::string difference(const std::map<std::string, std::string>& before, const std::map<std::string, std::string>& after) {
  std::string text;
  for (const auto& [path, state] : before) {
    const auto now = after.find(path);
    if (now == after.end()) text += "gone: " + path + "\n";
    if (now != after.end() && now->second != state) text += "changed: " + path + "\n  " + state + "\n  " + now->second + "\n";
  }
  for (const auto& [path, state] : after) text += before.contains(path) ? "" : "new: " + path + "\n";
  return text;
}

class Looking : public testing::TestWithParam<std::string> {
 protected:
  Looking() {
    for (const char* name : {"work", "home", "cache", "temporary"}) stdfs::create_directories(tree_.path() / name);
  }
  [[nodiscard]] Result millrace(std::vector<std::string> words) const {
    words.insert(words.begin(), MILLRACE_PROGRAM);
    const auto place = [&](const char* name) { return (tree_.path() / name).string(); };
    return run(words,
               {.folder = tree_.path() / "work",
                .environment = {{"HOME", place("home")}, {"XDG_CACHE_HOME", place("cache")}, {"TMPDIR", place("temporary")}}});
  }
  // The folder for temporary files may be used on the way: only what stays there counts.
  void look(const std::vector<std::string>& words, bool uses_temporary_folder = false) const {
    auto before = listing(tree_.path());
    const Result result = millrace(words);
    EXPECT_EQ(result.exit_code, 0) << testing::PrintToString(words) << "\n" << result.err;
    auto after = listing(tree_.path());
    if (uses_temporary_folder) {
      for (auto* each : {&before, &after}) each->erase((tree_.path() / "temporary").string());
    }
    EXPECT_EQ(difference(before, after), "") << testing::PrintToString(words);
  }

  Scratch tree_;
};

TEST_P(Looking, NeverWrites) {
  const std::string& recipe = GetParam();
  const auto small = [&](std::vector<std::string> words) {
    if (recipe == "cosmology") words.emplace_back("--recipe.filters=2");
    return words;
  };
  // Nothing to try.
  const auto decided = [](std::vector<std::string> words) {
    for (const char* word : {"--precision.dtype=fp32", "--device.layout=contiguous", "--device.kernels=ours"})
      words.emplace_back(word);
    return words;
  };
  const auto look_all = [&](bool has_data) {
    const bool temporary = !has_data;
    const auto once = [&](std::vector<std::string> words) { return has_data ? std::move(words) : decided(std::move(words)); };
    look({"config", "explain", recipe, "--preset=smoke"}, temporary);
    look({"train", recipe, "--preset=smoke", "--dry-run", "--run=r", "--memory.budget=90%"}, temporary);
    look(small({"train", recipe, "--preset=smoke", "--rehearse", "--run=r", "--data.batch_size=1"}), temporary);
    look(small({"show", recipe, "--preset=smoke", "--data.batch_size=2", "--split=validation"}), temporary);
    look(once(small({"estimate", recipe, "--preset=smoke", "--data.batch_size=1"})), temporary);
    look(once(small({"max-batch", recipe, "--preset=smoke", "--most=1"})), temporary);
    look({"runs"});
  };
  look_all(/*has_data=*/false);
  look({"config", "explain", recipe, "--preset=smoke", "--json"});
  ASSERT_EQ(millrace({"make-data", recipe, "--preset=smoke"}).exit_code, 0);
  look_all(/*has_data=*/true);
  const Result trained = millrace(decided({"train", recipe, "--preset=smoke", "--run=r", "--train.max_steps=1",
                                           "--data.batch_size=1", "--train.validate_batches=1"}));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  look({"train", recipe, "--run=r", "--dry-run"});
  look({"train", recipe, "--run=r", "--dry-run", "--fresh", "--preset=smoke"});
  look({"estimate", recipe, "--run=r"});
  look({"runs", "--root=.", "--sort=-step_ms", "--columns=run,step_ms"});
  look({"doctor", "r"});
  look({"compare", "r", "r"});
  look({"show", "--from=r", "--json"});
  look({"inspect", "r"});
  look({"inspect", "r/snapshots/step-00000001"});
  look({"inspect", "r/snapshots/step-00000001", "--values"});
}

INSTANTIATE_TEST_SUITE_P(Recipes, Looking, testing::Values("cosmology", "language_model"),
                         [](const auto& recipe) { return recipe.param; });

}  // namespace
}  // namespace millrace::test
