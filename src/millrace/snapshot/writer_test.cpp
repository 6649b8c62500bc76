// Tests saves during training: what is written, which failures are reported, and who waits.
#include "millrace/snapshot/writer.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <mutex>

#include "millrace/snapshot/detail/test_content.h"
#include "tests/support/fault_fs.h"

namespace millrace::snapshot {
namespace {

namespace stdfs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

// A file system that blocks every create() until the gate is opened.
class Gate final : public FaultFs {
 public:
  using FaultFs::FaultFs;
  std::unique_ptr<WritableFile> create(const stdfs::path& path) override {
    {
      std::unique_lock lock(mutex_);
      ++waiting_;
      changed_.notify_all();
      changed_.wait(lock, [&] { return open_; });
    }
    return FaultFs::create(path);
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void until_somebody_waits() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ > 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int waiting_ = 0;
};

// A file system that is full while the snapshot of one step is saved.
class FullAt final : public FaultFs {
 public:
  explicit FullAt(std::int64_t step) : FaultFs(Fs::real()), step_("step-0000000" + std::to_string(step)) {}
  std::unique_ptr<WritableFile> create(const stdfs::path& path) override {
    if (path.string().find(step_) != std::string::npos) throw FsError("open", path, ENOSPC);
    return FaultFs::create(path);
  }

 private:
  std::string step_;
};

class WriterTest : public testing::Test {
 protected:
  WriterTest() : root_(detail::scratch() / ("millrace-writer-" + std::to_string(::getpid()))) {
    stdfs::remove_all(root_);
    stdfs::create_directories(root_ / "a");
    stdfs::create_directories(root_ / "b");
  }
  ~WriterTest() override { stdfs::remove_all(root_); }

  // Tensors of a training run. They are changed in place from step to step, and one of them is not contiguous.
  struct Training {
    at::Tensor weight = at::full({40, 30}, 0.5);
    at::Tensor turned = at::arange(12).to(at::kFloat).reshape({3, 4}).t();
    at::Tensor count = at::full({}, 0, at::kLong);
    std::int64_t step = 0;
    void go_on() {
      ++step;
      weight.mul_(1.25).add_(static_cast<double>(step));
      turned.add_(1);
      count.add_(1);
    }
    [[nodiscard]] Content content() const {
      Content content;
      content.step = step;
      content.models["model"] = {{"weight", weight}, {"turned", turned}};
      content.parts["optimizer"] = {{{"count", count}, {"none", at::full({0, 3}, 1.0)}}, {{"step", step}}};
      return content;
    }
  };
  static std::map<std::string, std::string> files(const stdfs::path& run) {
    std::map<std::string, std::string> all;
    for (const auto& entry : stdfs::recursive_directory_iterator(run)) {
      if (entry.is_regular_file()) all[stdfs::relative(entry.path(), run).string()] = Fs::real().read_file(entry.path());
    }
    return all;
  }

  stdfs::path root_;
};

TEST_F(WriterTest, BytesEqualThoseOfABlockingSaveWhileTrainingGoesOn) {
  Training training;
  Training twin;
  Writer background(Fs::real(), root_ / "a", true);
  Writer blocking(Fs::real(), root_ / "b", false);
  for (int i = 0; i < 60; ++i) {
    training.go_on();
    twin.go_on();
    background.begin(training.content(), {.keep_last = 100});
    training.weight.fill_(-1.0);  // as if the next step already changed it
    training.weight.copy_(twin.weight);
    blocking.begin(twin.content(), {.keep_last = 100});
    ASSERT_FALSE(blocking.take()->error.has_value());
  }
  background.wait();
  EXPECT_EQ(background.take()->step, 60);
  const auto expected = files(root_ / "b");
  EXPECT_EQ(expected.size(), 60U * 4);
  EXPECT_EQ(files(root_ / "a"), expected);
}

TEST_F(WriterTest, TheCallerGoesOnWhileItIsWrittenAndTheSecondSaveWaits) {
  Training training;
  Gate gate(Fs::real());
  {
    Writer writer(gate, root_ / "a", true);
    training.go_on();
    writer.begin(training.content(), {});
    gate.until_somebody_waits();
    EXPECT_FALSE(writer.take().has_value()) << "nothing is durable yet";
    EXPECT_THAT(list(gate, root_ / "a"), ElementsAre());
    training.go_on();
    gate.open();
    writer.begin(training.content(), {.keep_last = 2});
    EXPECT_TRUE(stdfs::exists(root_ / "a" / "snapshots" / "step-00000001")) << "one in flight: the first is done now";
  }  // the destructor waits
  const auto found = list(Fs::real(), root_ / "a");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(load(Fs::real(), found[1].path).parts.at("optimizer").json["step"], 2);
}

TEST_F(WriterTest, AFailedSaveIsToldAndTheNextOneWorks) {
  Training training;
  training.go_on();
  for (const bool in_background : {false, true}) {
    FaultFs fs(Fs::real(), {.fail_at = 6, .error_number = 28});
    Writer writer(fs, root_ / "a", in_background);
    writer.begin(training.content(), {});
    writer.wait();
    std::optional<Writer::Saved> saved = writer.take();
    ASSERT_TRUE(saved.has_value());
    ASSERT_TRUE(saved->error.has_value());
    EXPECT_THAT(saved->error->message().what, HasSubstr("can't save the snapshot of step 1: can't write "));
    EXPECT_THAT(saved->error->message().what, HasSubstr("No space left on device"));
    EXPECT_FALSE(writer.take().has_value()) << "told once";
    writer.begin(training.content(), {});
    writer.wait();
    EXPECT_FALSE(writer.take()->error.has_value());
    stdfs::remove_all(root_ / "a" / "snapshots");
  }
}

TEST_F(WriterTest, WhatCannotBeStoredIsToldToo) {
  Training training;
  Content content = training.content();
  content.models["model"]["weight"] = at::full({2}, 1.0).to_sparse();
  for (const bool in_background : {false, true}) {
    Writer writer(Fs::real(), root_ / "a", in_background);
    writer.begin(content, {});
    writer.wait();
    EXPECT_THAT(writer.take()->error->message().what,
                HasSubstr("tensor \"weight\" of model.safetensors can't be stored: it is not dense"));
  }
}

TEST_F(WriterTest, ABestOneThatCouldNotBeSavedDoesNotCostTheOneBeforeIt) {
  for (const bool in_background : {false, true}) {
    Training training;
    FullAt fs(3);
    Writer writer(fs, root_ / "a", in_background);
    const auto saved_with_best = [&](std::int64_t best) {
      training.go_on();
      writer.begin(training.content(), {.keep_last = 1, .keep_steps = {best}});
      writer.wait();
      std::vector<std::int64_t> steps;
      for (const Found& found : list(Fs::real(), root_ / "a")) steps.push_back(found.step);
      return steps;
    };
    saved_with_best(1);
    EXPECT_THAT(saved_with_best(1), ElementsAre(1, 2));
    EXPECT_THAT(saved_with_best(3), ElementsAre(1, 2)) << "the disk is full";
    EXPECT_TRUE(writer.take()->error.has_value());
    EXPECT_THAT(saved_with_best(3), ElementsAre(1, 4)) << "step 3 is the best, but only step 1 is there";
    EXPECT_THAT(saved_with_best(5), ElementsAre(5));
    stdfs::remove_all(root_ / "a" / "snapshots");
  }
}

TEST_F(WriterTest, OnlyWhatIsDurableRemovesOlderOnes) {
  Training training;
  Writer writer(Fs::real(), root_ / "a", true);
  for (int i = 0; i < 10; ++i) {
    training.go_on();
    writer.begin(training.content(), {.keep_last = 2, .keep_every = 4, .keep_steps = {3}});
  }
  writer.wait();
  std::vector<std::int64_t> steps;
  for (const Found& found : list(Fs::real(), root_ / "a")) steps.push_back(found.step);
  EXPECT_THAT(steps, ElementsAre(3, 4, 8, 9, 10));
  FaultFs broken(Fs::real(), {.fail_at = 8, .keeps_failing = true});
  Writer failing(broken, root_ / "a", true);
  training.go_on();
  failing.begin(training.content(), {.keep_last = 1});
  failing.wait();
  EXPECT_TRUE(failing.take()->error.has_value());
  EXPECT_EQ(list(Fs::real(), root_ / "a").size(), 5U) << "nothing is removed for a snapshot that is not there";
}

}  // namespace
}  // namespace millrace::snapshot
