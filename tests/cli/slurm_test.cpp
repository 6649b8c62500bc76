// The batch file of `millrace launch --slurm`, run by bash with stand-ins for Slurm's programs.
#include <gmock/gmock.h>

#include "millrace/base/json.h"
#include "process.h"

namespace millrace::test {
namespace {

namespace stdfs = std::filesystem;
using testing::HasSubstr;

constexpr const char* kScontrol = R"(#!/bin/bash
[[ $1 == show ]] && printf 'node-%s\n' a b
[[ $1 == requeue ]] && echo "$2" >>requeued
)";
// Signals the launcher after the first step that it logs.
constexpr const char* kSrunWithLittleTime = R"(#!/bin/bash
while [[ $1 == -* ]]; do shift; done
steps() { cat runs/*/*/log.jsonl 2>/dev/null | grep -c '"kind":"step"'; }
before=$(steps)
"$@" &
until (($(steps) > before)); do kill -0 $! || exit 9; sleep 0.05; done
kill -USR1 $!
wait $!
)";
constexpr const char* kSrunOfMachineOne = R"(#!/bin/bash
while [[ $1 == -* ]]; do shift; done
SLURM_NODEID=1 exec "$@"
)";

class Slurm : public testing::Test {
 protected:
  void program(const std::string& name, const std::string& text) const {
    write_text(bin() / name, text);
    stdfs::permissions(bin() / name, stdfs::perms::owner_all);
  }
  void SetUp() override {
    stdfs::create_directory(bin());
    program("scontrol", kScontrol);
  }
  [[nodiscard]] stdfs::path bin() const { return root_.path() / "bin"; }
  [[nodiscard]] Result here(const std::vector<std::string>& words) const {
    return run(words, {.folder = root_.path(),
                       .environment = {{"PATH", bin().string() + ":" + std::getenv("PATH")},
                                       {"SLURM_JOB_ID", "20007"},
                                       {"SLURM_JOB_NODELIST", "node-[a-b]"},
                                       {"XDG_CACHE_HOME", root_.path().string()}}});
  }
  [[nodiscard]] Json summary() const {
    return Json::parse(read_text(root_.path() / "runs/language_model/slurm-20007/summary.json"), nullptr,
                       /*allow_exceptions=*/false);
  }

  Scratch root_;
};

TEST_F(Slurm, AJobWhoseTimeIsUpIsQueuedAgainAndGoesOnInItsFolder) {
  stdfs::create_symlink(MILLRACE_PROGRAM, bin() / "millrace");
  program("srun", kSrunWithLittleTime);
  const Result written =
      here({MILLRACE_PROGRAM, "launch", "--slurm", "job.sbatch", "--nproc", "1", "train", "language_model", "--preset=smoke",
            "--train.max_steps=100000", "--log.tensorboard=false", "--precision.dtype=fp32"});
  ASSERT_EQ(written.exit_code, 0) << written.err;
  EXPECT_EQ(written.out, "wrote job.sbatch\nnext: sbatch job.sbatch\n");
  const Result first = here({"/bin/bash", "job.sbatch"});
  ASSERT_EQ(first.exit_code, 138) << first.out << first.err;
  const int steps = summary().value("steps", 0);
  EXPECT_GT(steps, 0);
  ASSERT_EQ(here({"/bin/bash", "job.sbatch"}).exit_code, 138);
  EXPECT_GT(summary().value("steps", 0), steps);
  EXPECT_EQ(read_text(root_.path() / "requeued"), "20007\n20007\n");
}

TEST_F(Slurm, AJobThatFailsIsNotQueuedAgain) {
  program("millrace", "#!/bin/bash\nprintf '%s\\n' \"$@\"\nexit 3\n");
  program("srun", kSrunOfMachineOne);
  const Result written = here({MILLRACE_PROGRAM, "launch", "--slurm=job.sbatch", "--sbatch=--time=1:00", "--nproc=4", "--nodes=2",
                               "--max-restarts=2", "train", "cosmology", "--data", "the sky"});
  ASSERT_EQ(written.exit_code, 0) << written.err;
  const Result ended = here({"/bin/bash", "job.sbatch"});
  EXPECT_EQ(ended.exit_code, 3);
  EXPECT_EQ(ended.out,
            "launch\n--nodes\n2\n--rank\n1\n--at\nnode-a:20007\n--nproc\n4\n--max-restarts=2\ntrain\ncosmology\n--data\nthe sky\n"
            "--run\nruns/cosmology/slurm-20007\n");
  EXPECT_FALSE(stdfs::exists(root_.path() / "requeued"));
}

TEST_F(Slurm, ADryRunOfRanksIsNoFailure) {
  const Result result = here({MILLRACE_PROGRAM, "launch", "--nproc=2", "train", "language_model", "--preset=smoke", "--dry-run"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, testing::AllOf(HasSubstr("[0] run.dir"), HasSubstr("[1] run.dir")));
}

// It would be queued again for ever.
TEST_F(Slurm, AJobInWhoseTimeNothingIsSavedIsNotQueuedAgain) {
  program("millrace", "#!/bin/bash\nexit 138\n");
  program("srun", kSrunOfMachineOne);
  const Result written =
      here({MILLRACE_PROGRAM, "launch", "--slurm=job.sbatch", "--nproc=1", "train", "cosmology", "--run=here"});
  ASSERT_EQ(written.exit_code, 0) << written.err;
  stdfs::create_directories(root_.path() / "here/snapshots/step-00000010");
  const Result ended = here({"/bin/bash", "job.sbatch"});
  EXPECT_EQ(ended.exit_code, 138);
  EXPECT_THAT(ended.err, HasSubstr("nothing new was saved"));
  EXPECT_FALSE(stdfs::exists(root_.path() / "requeued"));
  program("millrace", "#!/bin/bash\nmkdir here/snapshots/step-00000020\nexit 138\n");
  EXPECT_EQ(here({"/bin/bash", "job.sbatch"}).exit_code, 138);
  EXPECT_EQ(read_text(root_.path() / "requeued"), "20007\n");
}

TEST_F(Slurm, MistakesWriteNothing) {
  const auto refused = [&](std::vector<std::string> words, const std::string& what, const std::string& next) {
    words.insert(words.begin(), {MILLRACE_PROGRAM, "launch"});
    const Result result = here(words);
    EXPECT_EQ(result.exit_code, 2) << what;
    EXPECT_THAT(result.err, testing::AllOf(HasSubstr(what), HasSubstr(next)));
  };
  write_text(root_.path() / "there", "mine");
  refused({"--slurm=there", "--nproc=1", "train", "cosmology"}, "there is a file there already", "give another name");
  refused({"--slurm=job", "--nproc=1", "train", "cosmology", "--fresh"}, "--fresh would start over", "another folder");
  refused({"--slurm=job", "--nproc=1", "--nodes=2", "--at=a:1", "train", "cosmology"},
          "with --slurm the batch file sets --rank and --at itself", "leave the flag out");
  refused({"--slurm=gone/job", "--nproc=1", "train", "cosmology"}, "there is no folder gone", "name a file in another folder");
  refused({"--slurm=job", "--nproc=1", "--sbatch=time=1", "train", "cosmology"}, "is not an option of sbatch",
          "--sbatch=--time=8:00:00");
  refused({"--slurm=job", "--nproc=1", "train", "cosmolgy"}, "there is no recipe \"cosmolgy\"", "did you mean \"cosmology\"?");
  refused({"--nproc=1", "train", "cosmolgy"}, "there is no recipe \"cosmolgy\"", "did you mean \"cosmology\"?");
  refused({"--slurm=", "--nproc=1", "train", "cosmology"}, "--slurm= needs a value", "launch --help");
  refused({"--slurm=job", "--nproc=1", "doctor"}, "names its recipe", "train RECIPE");
  refused({"--sbatch=--time=1", "--nproc=1", "train", "cosmology"}, "--sbatch is for a batch file", "--slurm job.sbatch");
  refused({"-nproc=1", "--sbatch=--time=1", "train", "cosmology"}, "--sbatch is for a batch file", "--slurm job.sbatch");
  refused({"-", "train", "cosmology"}, "launch knows no option -", "come after its recipe");
  stdfs::create_directories(root_.path() / "logs/rank-0.log");
  refused({"--nproc=1", "--logs=logs", "train", "cosmology", "--dry-run"}, "the output of rank 0 can't be kept", "with --logs");
  refused({"--nproc=99999999", "train", "cosmology"}, "--nproc is \"99999999\", not a number from 1 to 4096", "launch --help");
  refused({"--nproc=1", "--nodes=2", "--at=localhost:0", "train", "cosmology"}, "--at is \"0\"", "millrace launch --help");
  refused({"--nproc=1", "--nodes=2", "--at=localhost:95047", "train", "cosmology"}, "port 95047", "--rank 0");
  EXPECT_EQ(read_text(root_.path() / "there"), "mine");
  EXPECT_FALSE(stdfs::exists(root_.path() / "job"));
}

}  // namespace
}  // namespace millrace::test
