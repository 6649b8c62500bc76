// Runs that really die, each of another cause, and the later report of `millrace doctor RUN` about each.
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "../cli/process.h"
#include "millrace/base/json.h"

namespace millrace::test {
namespace {

namespace stdfs = std::filesystem;
using testing::ContainsRegex;
using testing::HasSubstr;

using Words = std::vector<std::string>;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // a sanitizer takes faults and the address space for itself
#else
constexpr bool kSanitized = false;
#endif

Words training(const stdfs::path& folder, const Words& more = {}, int steps = 1'000'000) {
  Words words = {"train",
                 "grouped_regression",
                 "--run",
                 folder.string(),
                 "--off=rehearsal",
                 "--device.kernels=ours",
                 "--device.layout=contiguous",
                 "--device.threads=1",
                 "--data.cache=off",
                 "--train.epochs=0",
                 "--train.max_steps=" + std::to_string(steps),
                 "--train.validate_every=1000000",
                 "--snapshot.every_steps=5",
                 "--log.every=1",
                 "--log.doctor=false"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Words dying(Words words) {
  words.insert(words.begin(), DYING_PROGRAM);
  return words;
}

Words asking(const stdfs::path& folder) { return {MILLRACE_PROGRAM, "doctor", folder.string(), "--json"}; }

void leave_no_core() {
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
}

Options options_in(const stdfs::path& folder, const std::string& way, const stdfs::path& file) {
  return {.folder = folder,
          .environment = {{"DEATH", way}, {"DEATH_FILE", file.string()}, {"XDG_CACHE_HOME", (folder / "cache").string()}},
          .input = {},
          .out_file = {},
          .before = leave_no_core};
}

Json state_in(const Result& answer) {
  EXPECT_EQ(answer.exit_code, 0) << answer.err;
  const Json all = Json::parse(answer.out, nullptr, /*allow_exceptions=*/false);
  return all.is_object() ? all.value("state", Json::object()) : Json::object();
}

void expect_cause(const Json& state, const std::string& id, const std::string& pattern) {
  EXPECT_EQ(state.value("id", ""), id) << state;
  EXPECT_THAT(state.value("text", ""), ContainsRegex(pattern));
  EXPECT_TRUE(state.value("died", false)) << state;
  EXPECT_GT(state.value("step", 0), 10) << state;
}

struct Death {
  std::string name, way;
  Words words;
  int exit_code = 1;
  std::string id, pattern;
};

void PrintTo(const Death& death, std::ostream* out) { *out << death.name; }

std::vector<Death> deaths() {
  const Words impatient = {"--train.hang_limit=1"};
  const std::string still = R"re(the run has not moved for [0-9]+ s \(step [0-9]+, forward)re";
  std::vector<Death> all = {
      {"Killed", "kill", {}, 128 + SIGKILL, "killed", R"re(died after step [0-9]+: somebody killed it \(SIGKILL)re"},
      {"Quit", "quit", {}, 128 + SIGQUIT, "killed", R"re(of a request to quit \(SIGQUIT\) in step [0-9]+, forward)re"},
      {"TwoSignals",
       "two signals",
       {},
       128 + SIGTERM,
       "killed",
       R"re(of a second signal to stop \(SIGTERM\) in step [0-9]+, forward)re"},
      {"CpuTime", "cpu time", {}, 128 + SIGXCPU, "killed", R"re(of the limit on its CPU time \(SIGXCPU, ulimit -t\) in step)re"},
      {"BadData", "data", {}, 1, "failed", "died at step [0-9]+ of bad data: DataError"},
      {"Divergence",
       "",
       {"--toy.bad_from=20", "--toy.bad_steps=1000000"},
       1,
       "failed",
       "died at step [0-9]+ of divergence: TrainingDiverged"},
      {"HangKilled", "hang, SIGKILL", impatient, 128 + SIGKILL, "hung",
       "it had made no more progress, and somebody killed it: " + still},
      {"HangStopped", "hang, SIGTERM", impatient, 128 + SIGTERM, "hung",
       "it had made no more progress, and was stopped by SIGTERM: " + still},
      {"Device", "device", {}, 1, "failed", R"re(of an error: RecipeError  .* failed in loss\(\): the device is gone)re"}};
  if (kSanitized) return all;
  all.push_back(
      {"Fault", "fault", {}, 128 + SIGSEGV, "crashed", R"re(of a segmentation fault \(SIGSEGV\) in loss\(\) of recipe )re"});
  all.push_back({"Memory", "memory", {}, 1, "out_of_memory", "for lack of memory: DeviceError  out of memory with one sample"});
  return all;
}

class Deaths : public testing::TestWithParam<Death> {};
INSTANTIATE_TEST_SUITE_P(Ways, Deaths, testing::ValuesIn(deaths()), [](const auto& way) { return way.param.name; });

TEST_P(Deaths, AreNamed) {
  const Death& death = GetParam();
  const Scratch scratch;
  const stdfs::path folder = scratch.path() / "run";
  const Result died = run(dying(training(folder, death.words)), options_in(scratch.path(), death.way, folder / "log.jsonl"));
  ASSERT_EQ(died.exit_code, death.exit_code) << died.out << died.err;
  expect_cause(state_in(run(asking(folder))), death.id, death.pattern);
  // What went wrong on the way out is not what the user has to know.
  if (death.way == "device") {
    EXPECT_THAT(died.err, HasSubstr("the device is gone"));
    EXPECT_GT(died.err.rfind("the device is gone"), died.err.rfind("the device is still gone")) << died.err;
  }
}

constexpr int kNotAllowed = 77;

// A disk of four megabytes that this process and its children see, and nobody else.
void mount_small_disk(const stdfs::path& at) {
  const std::string user = std::to_string(::geteuid()), group = std::to_string(::getegid());
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) ::_exit(kNotAllowed);
  write_text("/proc/self/setgroups", "deny");
  write_text("/proc/self/uid_map", "0 " + user + " 1");
  write_text("/proc/self/gid_map", "0 " + group + " 1");
  if (::mount("tmpfs", at.c_str(), "tmpfs", 0, "size=4m") != 0) ::_exit(kNotAllowed);
}

std::string in_shell(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += "'" + word + "' ";
  return text;
}

TEST(Death, OfAFullDiskIsNamedThoughNothingElseCouldBeWritten) {
  const Scratch scratch;
  const stdfs::path disk = scratch.path() / "disk", folder = disk / "run";
  stdfs::create_directories(disk);
  const std::string script = in_shell(dying(training(folder, {"--snapshot.on_error=stop"}))) +
                             "> told 2>&1; echo $? > code; cp disk/run/log.jsonl log; exec " + in_shell(asking(folder));
  Options options = options_in(scratch.path(), "disk", disk / "filler");
  options.before = [disk] {
    leave_no_core();
    mount_small_disk(disk);
  };
  const Result answer = run({"/bin/sh", "-c", script}, options);
  if (answer.exit_code == kNotAllowed) GTEST_SKIP() << "no disk of its own can be mounted here";
  const std::string told = read_text(scratch.path() / "told");
  ASSERT_EQ(read_text(scratch.path() / "code"), "1\n") << told;
  EXPECT_THAT(told, HasSubstr("summary.json could not be written"));
  expect_cause(state_in(answer), "failed", "died at step [0-9]+ of a full disk: SnapshotError");
  std::istringstream log(read_text(scratch.path() / "log"));
  for (std::string line; std::getline(log, line);) EXPECT_TRUE(Json::accept(line)) << line;
}

TEST(Death, OfARankThatHangsIsInTheLogOfTheRun) {
  const Scratch scratch;
  const stdfs::path folder = scratch.path() / "run";
  Words words = {"launch", "--nproc", "2", "--hang-limit", "2", "--logs", (scratch.path() / "logs").string()};
  const Words of_rank = training(folder);
  words.insert(words.end(), of_rank.begin(), of_rank.end());
  Options options = options_in(scratch.path(), "hang", "");
  options.environment.emplace_back("DEATH_RANK", "1");
  const Result died = run(dying(words), options);
  ASSERT_NE(died.exit_code, 0) << died.out << died.err;
  expect_cause(state_in(run(asking(folder))), "hung",
               "the launcher ended all ranks, because rank 1 has not moved for [0-9]+ s, step [0-9]+");
}

// What changed in the code is not in the files of a run; that it changed is.
TEST(Build, AnotherOneIsSaidWhenRunsAreCompared) {
  const Scratch scratch;
  const stdfs::path one = scratch.path() / "one", other = scratch.path() / "other";
  ASSERT_EQ(run(dying(training(one, {}, 5)), options_in(scratch.path(), "", "")).exit_code, 0);
  stdfs::copy(one, other, stdfs::copy_options::recursive);
  const Words comparing = {MILLRACE_PROGRAM, "compare", one.string(), other.string()};
  EXPECT_THAT(run(comparing).out, testing::Not(HasSubstr("another build")));
  const std::string build = Json::parse(read_text(one / "summary.json")).at("versions").at("build").get<std::string>();
  for (const char* file : {"log.jsonl", "summary.json"}) {
    std::string text = read_text(other / file);
    for (std::size_t at = 0; (at = text.find(build, at)) != std::string::npos;) text.replace(at, build.size(), build.size(), '0');
    write_text(other / file, text);
  }
  EXPECT_THAT(run(comparing).out, HasSubstr("note: the program is another build"));
}

}  // namespace
}  // namespace millrace::test
