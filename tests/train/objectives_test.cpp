// Objectives in a run: absent ones, several in every output, a start from another run's weights, the best of several.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "millrace/base/error.h"
#include "millrace/snapshot/snapshot.h"
#include "toys.h"

namespace millrace {
namespace {

using testing::HasSubstr;

snapshot::Content newest(const std::filesystem::path& run) {
  return *snapshot::load_newest(Fs::real(), run, [](const auto&, const auto&) {});
}

// 256 points in batches of 64: four steps an epoch.
const Json kPair = {{"train.epochs", 0},         {"train.max_steps", 12},    {"toy.discriminator_from", 3}, {"log.every", 1},
                    {"snapshot.every_steps", 1}, {"snapshot.keep_last", 50}, {"optim.ema_decay", 0.9}};

Json pair(const Json& more = Json::object()) {
  Json config = kPair;
  config.update(more);
  return config;
}

TEST(Objectives, AnAbsentOneStaysWhatItWasToTheBit) {
  const toys::TemporaryFolder folder;
  (void)toys::run(toys::adversarial(), folder.path(), pair({{"optim.schedule", "cosine"}}));
  const auto at_step = [&](int step) {
    return snapshot::load(
        Fs::real(), folder.path() / "snapshots" / ("step-000000" + std::string(step < 10 ? "0" : "") + std::to_string(step)));
  };
  const snapshot::Content first = at_step(1);
  const snapshot::Content last = at_step(12);
  for (const auto& [name, tensor] : first.models.at("model.discriminator"))
    EXPECT_TRUE(at::equal(tensor, last.models.at("model.discriminator").at(name))) << name;
  std::size_t compared = 0;
  for (const auto& part : {"optimizer", "average"}) {
    for (const auto& [name, tensor] : first.parts.at(part).tensors) {
      if (name.find("discriminator") == std::string::npos) continue;
      ++compared;
      EXPECT_TRUE(at::equal(tensor, last.parts.at(part).tensors.at(name))) << name;
    }
  }
  EXPECT_GT(compared, 8U);
  EXPECT_EQ(last.parts.at("optimizer").json.at("objectives").at("discriminator").at("absent_steps"), 12);
  bool generator_moved = false;
  for (const auto& [name, tensor] : first.models.at("model.generator"))
    generator_moved = generator_moved || !at::equal(tensor, last.models.at("model.generator").at(name));
  EXPECT_TRUE(generator_moved);
}

TEST(Objectives, AnAbsentOneBeginsWithTheFirstRateOfItsSchedule) {
  const toys::TemporaryFolder folder;
  (void)toys::run(toys::adversarial(), folder.path(), pair({{"train.max_steps", 16}, {"optim.schedule", "cosine"}}));
  const std::vector<Json> steps = toys::log_of(folder.path(), "step");
  ASSERT_EQ(steps.size(), 16U);
  EXPECT_EQ(steps[0].at("discriminator.absent"), true);
  EXPECT_FALSE(steps[0].contains("discriminator"));
  EXPECT_FALSE(steps[12].contains("discriminator.absent"));
  EXPECT_TRUE(steps[12].contains("discriminator"));
  EXPECT_EQ(steps[12].at("discriminator.lr"), steps[0].at("generator.lr"));
  EXPECT_LT(steps[12].at("generator.lr").get<double>(), steps[0].at("generator.lr").get<double>());
}

TEST(Objectives, BothAreInPlanLogAndEventFiles) {
  const toys::TemporaryFolder folder;
  const RunOutcome run = toys::run(toys::adversarial(), folder.path(), pair({{"toy.discriminator_from", 0}}));
  std::string plan;
  for (const Json& choice : run.summary.at("choices")) plan += choice.at("option").get<std::string>() + " ";
  EXPECT_THAT(plan, HasSubstr("optim.learning_rate.generator"));
  EXPECT_THAT(plan, HasSubstr("optim.learning_rate.discriminator"));
  const Json step = toys::log_of(folder.path(), "step").back();
  for (const char* key :
       {"generator", "discriminator", "generator.lr", "discriminator.lr", "generator.grad_norm", "discriminator.grad_norm"})
    EXPECT_TRUE(step.contains(key)) << key;
  std::string events;
  for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
    if (file.path().filename().string().starts_with("events.")) events += Fs::real().read_file(file.path());
  }
  for (const char* tag : {"generator/train", "discriminator/train", "lr/discriminator", "grad_norm/discriminator"})
    EXPECT_THAT(events, HasSubstr(tag));
  EXPECT_EQ(run.summary.at("objectives").size(), 2U);
}

TEST(Objectives, ARunCutShortWhileOneIsAbsentGoesOnToTheBit) {
  const toys::TemporaryFolder straight, cut;
  const Json config = pair({{"train.max_steps", 20}, {"optim.schedule", "cosine"}, {"snapshot.every_steps", 7}});
  const RunOutcome whole = toys::run(toys::adversarial(), straight.path(), config);
  (void)toys::run(toys::adversarial(), cut.path(), config);
  for (const char* later : {"step-00000014", "step-00000020"}) std::filesystem::remove_all(cut.path() / "snapshots" / later);
  std::filesystem::remove(cut.path() / "summary.json");
  const RunOutcome resumed = toys::run(toys::adversarial(), cut.path(), config);
  EXPECT_EQ(resumed.summary.at("state_sha256"), whole.summary.at("state_sha256"));
}

TEST(TrainWeights, BeginANewRunWithAFreshOptimiserAndSchedule) {
  const toys::TemporaryFolder first, second;
  const Json config = {{"train.epochs", 0}, {"train.max_steps", 9}};
  (void)toys::run(toys::grouped_regression(), first.path(), config);
  Json from = {
      {"train.epochs", 0}, {"train.max_steps", 1}, {"optim.learning_rate", 1e-12}, {"train.weights", first.path().string()}};
  const RunOutcome run = toys::run(toys::grouped_regression(), second.path(), from);
  EXPECT_EQ(run.summary.at("steps"), 1);
  const snapshot::Content before = newest(first.path());
  const snapshot::Content after = newest(second.path());
  for (const auto& [name, tensor] : before.models.at("model"))
    EXPECT_LT((tensor - after.models.at("model").at(name)).abs().max().item<double>(), 1e-9) << name;
  EXPECT_EQ(after.parts.at("optimizer").tensors.at("trunk.weight.step").item<double>(), 1.0);
  bool told = false;
  for (const Json& choice : run.summary.at("choices")) told = told || choice.at("option") == "train.weights";
  EXPECT_TRUE(told);
  from["train.max_steps"] = 3;
  const RunOutcome again = toys::run(toys::grouped_regression(), second.path(), from);
  EXPECT_EQ(again.summary.at("steps"), 3) << "a run that has saved goes on from its own weights";
}

TEST(BestSnapshots, AsManyStayAsAreAskedFor) {
  const toys::TemporaryFolder folder;
  const RunOutcome run =
      toys::run(toys::grouped_regression(), folder.path(),
                {{"train.epochs", 8}, {"snapshot.every_epochs", 0}, {"snapshot.keep_last", 1}, {"snapshot.best_count", 3}});
  const auto kept = snapshot::list(Fs::real(), folder.path());
  EXPECT_GE(kept.size(), 3U);
  const Json ranked = newest(folder.path()).parts.at("trainer").json.at("best");
  ASSERT_EQ(ranked.size(), 3U);
  for (const Json& best : ranked) {
    const bool is_there = std::ranges::any_of(kept, [&](const snapshot::Found& found) { return found.step == best.at(1); });
    EXPECT_TRUE(is_there) << best.dump();
  }
  EXPECT_EQ(run.summary.at("exit_reason"), "epochs");
}

// A base that is not trained: nothing moves it, no optimiser knows it, a snapshot may leave it out.
TEST(FrozenWeights, AreInNoOptimiserAndNothingMovesThem) {
  const toys::TemporaryFolder folder;
  (void)toys::run(toys::grouped_regression(), folder.path(),
                  {{"toy.frozen", true},
                   {"train.max_steps", 6},
                   {"snapshot.every_steps", 1},
                   {"snapshot.keep_last", 50},
                   {"optim.ema_decay", 0.9},
                   {"optim.weight_decay", 0.1}});
  const auto all = snapshot::list(Fs::real(), folder.path());
  const auto [oldest, latest] = std::ranges::minmax(all, {}, &snapshot::Found::step);
  const snapshot::Content first = snapshot::load(Fs::real(), oldest.path);
  const snapshot::Content last = snapshot::load(Fs::real(), latest.path);
  ASSERT_LT(oldest.step, latest.step);
  std::size_t frozen = 0;
  for (const auto& [name, tensor] : first.models.at("model")) {
    const bool is_frozen = name.starts_with("input");
    frozen += is_frozen ? 1 : 0;
    EXPECT_EQ(at::equal(tensor, last.models.at("model").at(name)), is_frozen) << name;
  }
  EXPECT_EQ(frozen, 6U);
  for (const char* part : {"optimizer", "average"}) {
    ASSERT_FALSE(last.parts.at(part).tensors.empty()) << part;
    for (const auto& [name, tensor] : last.parts.at(part).tensors) EXPECT_EQ(name.find("input"), std::string::npos) << name;
  }
}

TEST(FrozenWeights, LeftOutOfSnapshotsAreBroughtByTheRecipeAndChecked) {
  const Json config = {{"toy.frozen", true}, {"snapshot.frozen", "leave_out"}, {"train.epochs", 2}, {"toy.dropout", 0.2}};
  const auto with = [&](Json more) {
    Json all = config;
    all.update(more);
    return all;
  };
  const toys::TemporaryFolder straight, cut, kept;
  const Json whole = toys::run(toys::grouped_regression(), straight.path(), config).summary;
  (void)toys::run(toys::grouped_regression(), cut.path(), with({{"train.epochs", 1}}));
  const snapshot::Content saved = newest(cut.path());
  for (const auto& [name, tensor] : saved.models.at("model")) EXPECT_FALSE(name.starts_with("input")) << name;
  try {
    (void)toys::run(toys::grouped_regression(), cut.path(), with({{"toy.brought", 1.5}}));
    ADD_FAILURE() << "other weights were taken";
  } catch (const SnapshotError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the frozen weight \"input0.weight\" is not the one this run was trained with"));
    EXPECT_THAT(error.what(), HasSubstr("the run had it from the toy"));
  }
  const Json resumed = toys::run(toys::grouped_regression(), cut.path(), config).summary;
  EXPECT_EQ(resumed.at("state_sha256"), whole.at("state_sha256"));
  (void)toys::run(toys::grouped_regression(), kept.path(), with({{"snapshot.frozen", "keep"}}));
  const Tensors beside = newest(kept.path()).models.at("model");
  const Tensors left_out = newest(straight.path()).models.at("model");
  for (const auto& [name, tensor] : left_out) EXPECT_TRUE(at::equal(tensor, beside.at(name))) << name;
}

// One file in three can't be read, with and without rows left in a batch, in training and in validation.
TEST(BadSamples, AnEmptiedBatchIsNoStepAndNoError) {
  for (const int batch : {1, 2}) {
    const toys::TemporaryFolder folder;
    const RunOutcome run = toys::run(toys::grouped_regression(), folder.path(),
                                     {{"data.bad_samples", "skip"},
                                      {"data.max_bad_fraction", 1.0},
                                      {"data.batch_size", batch},
                                      {"toy.unreadable", 3},
                                      {"data.shuffle", false},
                                      {"train.epochs", 2},
                                      {"log.every", 1},
                                      {"train.validate_every", 5}});
    const int rows = 41 - 14;  // 0, 3, ... 39 of 41 are unreadable
    EXPECT_EQ(run.summary.at("samples"), 2 * 3 * rows);
    const std::vector<Json> steps = toys::log_of(folder.path(), "step");
    ASSERT_EQ(static_cast<std::int64_t>(steps.size()), run.summary.at("steps").get<std::int64_t>());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      EXPECT_EQ(steps[i].at("step"), i + 1) << "each step is logged once";
      EXPECT_GT(steps[i].at("loss").get<double>(), 0.0);
    }
    std::set<std::int64_t> validated;
    for (const Json& line : toys::log_of(folder.path(), "validation"))
      EXPECT_TRUE(validated.insert(line.at("step").get<std::int64_t>()).second);
    if (batch == 1) {
      EXPECT_EQ(run.summary.at("steps"), 2 * rows);
    }
  }
}

TEST(BadSamples, ARunCutShortAmongEmptiedBatchesGoesOnToTheBit) {
  const Json config = {{"data.bad_samples", "skip"}, {"data.max_bad_fraction", 1.0}, {"data.batch_size", 1},
                       {"toy.unreadable", 2},        {"data.shuffle", false},        {"train.epochs", 2},
                       {"toy.dropout", 0.2},         {"snapshot.every_steps", 1},    {"snapshot.keep_last", 100}};
  const toys::TemporaryFolder straight, cut;
  const RunOutcome whole = toys::run(toys::grouped_regression(), straight.path(), config);
  (void)toys::run(toys::grouped_regression(), cut.path(), config);
  const auto all = snapshot::list(Fs::real(), cut.path());
  for (std::size_t i = all.size() / 2; i < all.size(); ++i) std::filesystem::remove_all(all[i].path);
  std::filesystem::remove(cut.path() / "summary.json");
  EXPECT_EQ(toys::run(toys::grouped_regression(), cut.path(), config).summary.at("state_sha256"),
            whole.summary.at("state_sha256"));
}

}  // namespace
}  // namespace millrace
