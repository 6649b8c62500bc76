// Tests of `show` in this process, with a batch that has values which are not finite.
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <filesystem>

#include "millrace/base/error.h"
#include "millrace/cli/shared/command.h"
#include "millrace/data/sources/memory_source.h"
#include "millrace/train/run/run.h"

namespace millrace::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

struct LogConfig {
  bool training_only = false;
  static consteval auto fields() { return std::tuple{config::field<&LogConfig::training_only>("Leaves validation away.")}; }
};
struct LogSections {
  LogConfig recipe;
  static consteval auto fields() { return std::tuple{config::field<&LogSections::recipe>("The recipe's.")}; }
};

class Shelf final : public data::Source {
 public:
  explicit Shelf(data::MemorySource rows) : rows_(std::move(rows)) {}
  [[nodiscard]] std::span<const Field> fields() const override { return rows_.fields(); }
  [[nodiscard]] std::int64_t size() const override { return rows_.size(); }
  void read(std::span<const std::int64_t> indices, data::Rows rows, const data::ReadRandom& random) const override {
    rows_.read(indices, rows, random);
  }
  [[nodiscard]] std::string fingerprint() const override { return rows_.fingerprint(); }
  [[nodiscard]] std::string describe(std::int64_t index) const override { return "shelf " + std::to_string(100 + index); }
  [[nodiscard]] std::vector<std::string> value_names(std::string_view field) const override {
    return field == "zone" ? std::vector<std::string>{"field", "wood"} : std::vector<std::string>();
  }

 private:
  data::MemorySource rows_;
};

// A recipe whose sample 2 is infinite; the logarithm in prepare() turns sample 3 into NaN.
class LogRecipe final : public Recipe {
 public:
  LogRecipe(const LogSections& sections, const Context&) : training_only_(sections.recipe.training_only) {}
  data::Pipeline data(Split split) override {
    if (split == Split::validation && training_only_) return {};
    const std::vector<float> values = {1, 2, HUGE_VALF, -1, 3, 4};
    const std::vector<std::int64_t> zones = {0, 1, 0, 1, 2, 1};
    auto pipeline = data::single(std::make_shared<Shelf>(
        data::MemorySource({data::memory_array("x", {1}, values), data::memory_array("zone", {}, zones)})));
    pipeline.shuffle = false;
    return pipeline;
  }
  Batch prepare(Batch batch) override {
    batch.set("log", batch["x"].log());
    return batch;
  }
  torch::nn::Module& model() override { return net_; }
  std::vector<Objective> objectives() override {
    ADD_FAILURE() << "nothing is to be trained";
    return {};
  }

 private:
  bool training_only_;
  torch::nn::LinearImpl net_{1, 1};
};

struct Said {
  std::string out, err;
};

Said show(std::vector<std::string> words) {
  const std::vector<Entry> recipes = {entry_of<LogRecipe, LogSections>("logs", "Logarithms.")};
  words.insert(words.begin(), "logs");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  EXPECT_EQ(kShow.run({.recipes = recipes, .words = words}), 0);
  std::fflush(stdout);
  return {testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
}

TEST(Show, AFieldThatIsNoNumberIsNamedWithItsSample) {
  const Said said = show({"--data.batch_size=4", "--batches=9"});
  EXPECT_THAT(said.err, HasSubstr("field \"log\" of training batch 0 of epoch 0 has 1 NaN and 1 infinite of 4 values, "
                                  "the first in row 2: sample 2 (shelf 102)"));
  EXPECT_THAT(said.err, HasSubstr("field \"x\" of training batch 0 of epoch 0 has 1 infinite of 4 values"));
  EXPECT_THAT(said.err, Not(HasSubstr("training batch 1")));
  EXPECT_THAT(said.out, HasSubstr("training batch 0 of epoch 0: 4 rows\n"));
  EXPECT_THAT(said.out, HasSubstr("training batch 1 of epoch 0: 2 rows\n")) << "and no more: the epoch ends";
  EXPECT_THAT(said.out, Not(HasSubstr("training batch 2")));
  EXPECT_THAT(said.out, HasSubstr("  row 3  sample 3 (shelf 103), zone wood\n"));
  EXPECT_THAT(said.out, HasSubstr("  row 0  sample 4 (shelf 104)\n")) << "2 has no name";
}

TEST(Show, JsonHasTheValues) {
  const Json all = Json::parse(show({"--json", "--split=validation", "--data.batch_size=6"}).out);
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0]["split"], "validation");
  EXPECT_EQ(all[0]["indices"], Json({0, 1, 2, 3, 4, 5}));
  const Json& log = all[0]["fields"][0];
  EXPECT_EQ(log["name"], "log");
  EXPECT_EQ(log["nan"], 1);
  EXPECT_EQ(log["infinite"], 1);
  EXPECT_EQ(log["least"], 0);
  EXPECT_EQ(log["count"], 6);
}

TEST(Show, ASplitWithoutDataIsSaid) {
  const std::vector<Entry> recipes = {entry_of<LogRecipe, LogSections>("logs", "Logarithms.")};
  try {
    static_cast<void>(kShow.run({.recipes = recipes, .words = {"logs", "--split=validation", "--recipe.training_only"}}));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("recipe logs has no validation data"));
  }
}

}  // namespace
}  // namespace millrace::cli
