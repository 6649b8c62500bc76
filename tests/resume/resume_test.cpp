// Recipes x number formats x readers x places to stop: resumed = uninterrupted, to the bit.
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <map>

#include "millrace/base/error.h"
#include "recipes/registry.h"
#include "small_runs.h"
#include "toys.h"

namespace millrace {
namespace {

using small_runs::data_of;
using small_runs::entry_of;
using small_runs::small_config;

struct Stopped : std::exception {};

// Passes everything on; throws Stopped before the forward pass of training with this number. Notes the step of each pass.
class Interrupted final : public Recipe {
 public:
  Interrupted(std::unique_ptr<Recipe> inner, std::int64_t stop, std::vector<std::int64_t>* steps)
      : inner_(std::move(inner)), stop_(stop), steps_(steps) {}
  data::Pipeline data(Split split) override { return inner_->data(split); }
  Batch prepare(Batch batch) override { return inner_->prepare(std::move(batch)); }
  torch::nn::Module& model() override { return inner_->model(); }
  std::vector<Objective> objectives() override {
    std::vector<Objective> objectives = inner_->objectives();
    auto& first = objectives.front().loss;
    first = [this, loss = first](const Batch& batch, const StepContext& context) {
      if (context.training) {
        if (passes_++ == stop_) throw Stopped();
        if (steps_ != nullptr) steps_->push_back(context.step);
      }
      return loss(batch, context);
    };
    return objectives;
  }
  void begin_validation() override { inner_->begin_validation(); }
  void measure(const Batch& batch, const StepResult& result, metrics::Board& board) override {
    inner_->measure(batch, result, board);
  }
  void end_validation(metrics::Board& board) override { inner_->end_validation(board); }
  void before_training() override { inner_->before_training(); }
  State state() const override { return inner_->state(); }
  void load_state(const State& state) override { inner_->load_state(state); }
  Facts facts() const override { return inner_->facts(); }

 private:
  std::unique_ptr<Recipe> inner_;
  std::int64_t stop_;
  std::vector<std::int64_t>* steps_;
  std::int64_t passes_ = 0;
};

RunOutcome run(const std::string& recipe, const std::filesystem::path& folder, const std::string& precision, int readers,
               std::int64_t stop = -1, std::vector<std::int64_t>* steps = nullptr) {
  Entry entry = entry_of(recipe);
  entry.make = [make = entry.make, stop, steps](const Json& config, const Context& context) {
    return std::make_unique<Interrupted>(make(config, context), stop, steps);
  };
  Json config = small_config(recipe);
  config.update({{"data.dir", data_of(recipe).string()},
                 {"precision.dtype", precision},
                 {"data.workers", readers},
                 {"device.threads", 1},
                 {"optim.accumulate", 2},
                 {"train.epochs", 3},
                 {"train.max_steps", 7},  // the first of the third epoch
                 {"train.validate_every", 2},
                 {"train.validate_batches", 1},
                 {"snapshot.every_steps", 2},
                 {"snapshot.every_epochs", 0},
                 {"log.tensorboard", false},
                 {"log.images", false}});
  return toys::run(entry, folder, config);
}

struct Straight {
  std::string hash;
  std::vector<std::int64_t> step_of_pass;
};

const Straight& straight(const std::string& recipe, const std::string& precision) {
  static std::map<std::pair<std::string, std::string>, Straight> all;
  Straight& one = all[{recipe, precision}];
  if (one.hash.empty())
    one.hash = run(recipe, "", precision, 0, -1, &one.step_of_pass).summary["state_sha256"].get<std::string>();
  return one;
}

// Number of the forward pass before which a run stops.
std::int64_t pass_of(const std::string& place, const std::vector<std::int64_t>& steps) {
  const auto at = [&](std::int64_t step) { return std::find(steps.begin(), steps.end(), step) - steps.begin(); };
  std::int64_t partial = 0;  // the step that ends an epoch has one pass alone
  while (at(partial + 1) - at(partial) != 1) ++partial;
  if (place == "first_step") return at(1);
  if (place == "mid_accumulation") return at(1) + 1;
  if (place == "last_batch") return at(partial);
  if (place == "epoch_end") return at(partial + 1);
  return at(partial + 2);  // one after
}

class Resumed : public testing::TestWithParam<std::tuple<std::string, std::string, int, std::string>> {};

TEST_P(Resumed, EqualsTheUninterruptedRun) {
  const auto& [recipe, precision, readers, place] = GetParam();
  const Straight& whole = straight(recipe, precision);
  const toys::TemporaryFolder folder;
  const std::int64_t stop = pass_of(place, whole.step_of_pass);
  ASSERT_LT(stop, static_cast<std::int64_t>(whole.step_of_pass.size()));
  EXPECT_THROW((void)run(recipe, folder.path(), precision, readers, stop), RecipeError);
  EXPECT_EQ(run(recipe, folder.path(), precision, readers).summary["state_sha256"], whole.hash);
}

INSTANTIATE_TEST_SUITE_P(
    Everywhere, Resumed,
    testing::Combine(testing::Values("language_model", "cosmology", "neural_response", "autoencoder_3d", "image_pairs"),
                     testing::Values("fp32", "bf16"), testing::Values(0, 2, 4),
                     testing::Values("first_step", "mid_accumulation", "last_batch", "epoch_end", "one_after")),
    [](const auto& param_info) {
      return std::get<0>(param_info.param) + "_" + std::get<1>(param_info.param) + "_readers" +
             std::to_string(std::get<2>(param_info.param)) + "_" + std::get<3>(param_info.param);
    });

class Chain : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(Chain, OfThreeResumesWithOtherReadersEachTime) {
  const auto& [recipe, precision] = GetParam();
  const Straight& whole = straight(recipe, precision);
  const toys::TemporaryFolder folder;
  for (const int readers : {2, 0, 4}) {  // each life is cut off in its third pass, after one step or two
    EXPECT_THROW((void)run(recipe, folder.path(), precision, readers, 2), RecipeError);
  }
  EXPECT_EQ(run(recipe, folder.path(), precision, 2).summary["state_sha256"], whole.hash);
}

INSTANTIATE_TEST_SUITE_P(
    Recipes, Chain,
    testing::Combine(testing::Values("language_model", "cosmology", "neural_response", "autoencoder_3d", "image_pairs"),
                     testing::Values("fp32", "bf16")),
    [](const auto& param_info) { return std::get<0>(param_info.param) + "_" + std::get<1>(param_info.param); });

// What is fitted before the first step is read from its file then.
TEST(Cosmology, KilledBetweenTheFitAndTheFirstSnapshotItIsTheSameRun) {
  const toys::TemporaryFolder folder;
  EXPECT_THROW((void)run("cosmology", folder.path(), "fp32", 0, 0), RecipeError);
  ASSERT_TRUE(std::filesystem::exists(folder.path() / "pca_components_nfg2.safetensors"));
  ASSERT_FALSE(std::filesystem::exists(folder.path() / "snapshots" / "step-00000000"));
  EXPECT_EQ(run("cosmology", folder.path(), "fp32", 0).summary["state_sha256"], straight("cosmology", "fp32").hash);
}

TEST(Recipes, AllAreAmongThose) { EXPECT_EQ(recipes::all().size(), 5U) << "add the new one to this file's lists"; }

}  // namespace
}  // namespace millrace
