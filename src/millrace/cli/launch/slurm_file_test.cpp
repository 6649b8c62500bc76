#include "millrace/cli/launch/slurm_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/base/error.h"

namespace millrace::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(SlurmFile, OneMachine) {
  EXPECT_EQ(slurm_text({.nproc = 4,
                        .sbatch = {"--time=8:00:00", "--cpus-per-task=32"},
                        .launch_options = {"--bind=none"},
                        .words = {"train", "cosmology", "--data", "the sky"}}),
            R"(#!/bin/bash
#SBATCH --job-name=cosmology
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=USR1@180
#SBATCH --time=8:00:00
#SBATCH --cpus-per-task=32

# 180 s before the time is up Slurm signals the launchers: all ranks finish their step, save, and leave with exit code 138.
# The job is then queued again, and continues from there in the same run folder, unless nothing new was saved.
newest() { ls runs/cosmology/slurm-"$SLURM_JOB_ID"/snapshots 2>/dev/null | tail -n 1; }
before=$(newest)
srun --ntasks=1 --kill-on-bad-exit=0 --cpu-bind=none ${SLURM_CPUS_PER_TASK:+--cpus-per-task="$SLURM_CPUS_PER_TASK"} \
  millrace launch --nproc 4 --bind=none train cosmology --data 'the sky' --run runs/cosmology/slurm-"$SLURM_JOB_ID"
code=$?
if [[ $code == 138 && $(newest) == "$before" ]]; then
  echo 'nothing new was saved in the time of this job, so it is not queued again: ask for more with --time' >&2
elif [[ $code == 138 ]]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit $code
)");
}

TEST(SlurmFile, SeveralMachinesMeetAtTheFirst) {
  const std::string text = slurm_text({.nproc = 8, .nodes = 2, .words = {"train", "cosmology", "--run", "here"}});
  EXPECT_THAT(text, HasSubstr("#SBATCH --exclusive\n"));
  EXPECT_THAT(text, HasSubstr(R"file(
machines=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
srun --ntasks=2 --kill-on-bad-exit=0 --cpu-bind=none ${SLURM_CPUS_PER_TASK:+--cpus-per-task="$SLURM_CPUS_PER_TASK"} \
  bash -c 'exec millrace launch --nodes 2 --rank "$SLURM_NODEID" --at "$0" "$@"' \
  "${machines[0]}:$((20000 + SLURM_JOB_ID % 20000))" --nproc 8 train cosmology --run here
)file"));
  EXPECT_THAT(text, HasSubstr("newest() { ls here/snapshots 2>/dev/null"));
  EXPECT_THAT(text, Not(HasSubstr("slurm-")));
}

TEST(SlurmFile, TheRunFolderIsThatOfTheWords) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"train", "cosmology", "--run=my run"},
                                                {"train", "cosmology", "--run.dir", "my run"},
                                                {"train", "cosmology", "--run.dir=my run"}})
    EXPECT_THAT(slurm_text({.words = words}), HasSubstr("ls 'my run'/snapshots")) << words.back();
}

TEST(SlurmFile, WordsThatCanNotGoOnAreRefused) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"train"},
                                                {"train", "--run=x"},
                                                {"doctor", "cosmology"},
                                                {"train", "cosmology", "--fresh"},
                                                {"train", "cosmology", "--train.resume=never"},
                                                {"train", "cosmology", "--train.resume", "never"}})
    EXPECT_THROW(static_cast<void>(slurm_text({.words = words})), UsageError);
  EXPECT_THROW(static_cast<void>(slurm_text({.sbatch = {"time=8"}, .words = {"train", "cosmology"}})), UsageError);
  EXPECT_THROW(static_cast<void>(slurm_text({.sbatch = {"--a\nrm"}, .words = {"train", "cosmology"}})), UsageError);
}

}  // namespace
}  // namespace millrace::cli
