// A GPU that no longer answers: one message, and no further call to it. The errors are LibTorch's own, thrown by the recipe.
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/base/error.h"
#include "millrace/snapshot/snapshot.h"
#include "toys.h"

namespace millrace {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Json saving() { return {{"train.epochs", 0}, {"train.max_steps", 8}, {"snapshot.every_steps", 2}, {"log.every", 1}}; }

[[noreturn]] void illegal_access() {
  throw c10::AcceleratorError({__func__, __FILE__, 0}, 700,
                              "CUDA error: an illegal memory access was encountered\nSearch for `cudaErrorIllegalAddress'");
}

// The text of the error that a run in `folder` ends with; its own words to the terminal in `told`.
std::string end_of(const std::filesystem::path& folder, std::string& told) {
  std::string text;
  testing::internal::CaptureStderr();
  try {
    (void)toys::run(toys::grouped_regression(), folder, saving());
    ADD_FAILURE() << "the run went through";
  } catch (const DeviceError& error) {
    text = error.what();
  }
  told = testing::internal::GetCapturedStderr();
  toys::at_point = nullptr;
  return text;
}

TEST(LostDevice, EndsInOneMessageAndTheLastSnapshotStaysGood) {
  const toys::TemporaryFolder folder, straight;
  int steps = 0, asked = 0;
  toys::at_point = [&](const char* point) {
    const std::string_view at(point);
    if (at == "loss" && ++steps == 6) illegal_access();
    asked += static_cast<int>(steps >= 6 && at == "state");
  };
  std::string told;
  const std::string text = end_of(folder.path(), told);
  EXPECT_THAT(text, HasSubstr("the GPU no longer answers this program: CUDA error: an illegal memory access was encountered\n"));
  EXPECT_THAT(text, AllOf(HasSubstr("step 6;"), HasSubstr("CUDA_LAUNCH_BLOCKING=1"), Not(HasSubstr("recipe"))));
  EXPECT_THAT(text, HasSubstr("the last snapshot is " + (folder.path() / "snapshots/step-00000004").string()));
  EXPECT_EQ(asked, 0) << "the state went with the device";
  EXPECT_THAT(told, Not(HasSubstr("could not be saved")));

  const auto ends = toys::log_of(folder.path(), "end");
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_EQ(ends[0]["exit_reason"], "error");
  EXPECT_THAT(ends[0]["error"].get<std::string>(), HasSubstr("no longer answers"));
  EXPECT_EQ(Json::parse(Fs::real().read_file(folder.path() / "summary.json"))["exit_reason"], "error");

  const RunOutcome resumed = toys::run(toys::grouped_regression(), folder.path(), saving());
  const RunOutcome whole = toys::run(toys::grouped_regression(), straight.path(), saving());
  EXPECT_EQ(resumed.summary["state_sha256"], whole.summary["state_sha256"]);
}

TEST(LostDevice, WithoutASnapshotNamesNone) {
  const toys::TemporaryFolder folder;
  toys::at_point = [](const char* point) {
    if (std::string_view(point) == "loss") illegal_access();
  };
  std::string told;
  EXPECT_THAT(end_of(folder.path(), told), AllOf(HasSubstr("no longer answers"), Not(HasSubstr("last snapshot"))));
}

// What no GPU is to blame for is saved after, as ever.
TEST(LostDevice, IsNotWhatAnyErrorOfARecipeIsTakenFor) {
  const toys::TemporaryFolder folder;
  int steps = 0;
  toys::at_point = [&](const char* point) {
    if (std::string_view(point) == "loss" && ++steps == 6)
      throw c10::Error({__func__, __FILE__, 0}, "CUDA error: invalid argument");
  };
  EXPECT_THROW((void)toys::run(toys::grouped_regression(), folder.path(), saving()), RecipeError);
  toys::at_point = nullptr;
  const auto kept = snapshot::list(Fs::real(), folder.path());
  ASSERT_FALSE(kept.empty());
  EXPECT_EQ(kept.back().step, 5);
}

// Weights of half an update are no state to go on from.
TEST(OutOfMemory, InAnUpdateLeavesTheLastSnapshotTheNewest) {
  const toys::TemporaryFolder folder;
  int updates = 0;
  toys::at_point = [&](const char* point) {
    if (std::string_view(point) == "update" && ++updates == 6) throw c10::OutOfMemoryError({__func__, __FILE__, 0}, "no room");
  };
  Json config = saving();
  config["toy.clamp"] = 100.0;
  EXPECT_THROW((void)toys::run(toys::grouped_regression(), folder.path(), config), c10::OutOfMemoryError);
  toys::at_point = nullptr;
  const auto kept = snapshot::list(Fs::real(), folder.path());
  ASSERT_FALSE(kept.empty());
  EXPECT_EQ(kept.back().step, 4);
}

// cuBLAS, cuDNN and the driver have no type for it.
TEST(OutOfMemory, OfAnyFormIsRecoveredFrom) {
  for (const char* const text :
       {"CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", "CUDA error: out of memory"}) {
    int passes = 0;
    toys::at_point = [&](const char* point) {
      if (std::string_view(point) != "loss" || ++passes != 3) return;
      if (std::string_view(text) == "CUDA error: out of memory") throw c10::AcceleratorError({__func__, __FILE__, 0}, 2, text);
      throw c10::Error({__func__, __FILE__, 0}, text);
    };
    const RunOutcome run =
        toys::run(toys::grouped_regression(), "",
                  {{"data.batch_size", 8}, {"memory.recompute", Json::array({"none"})}, {"train.max_steps", 4}});
    toys::at_point = nullptr;
    EXPECT_EQ(run.summary["memory"]["micro_batches"], 2) << text;
    EXPECT_EQ(run.summary["steps"], 4) << text;
  }
}

}  // namespace
}  // namespace millrace
