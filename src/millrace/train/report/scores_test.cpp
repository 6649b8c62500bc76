#include "millrace/train/report/scores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "millrace/base/error.h"

namespace millrace {
namespace {

using testing::ElementsAre;

using metrics::Means;

Scores scores_of(const SnapshotConfig& snapshot = {}, const TrainConfig& train = {}) { return {snapshot, train, "val_loss"}; }

TEST(Scores, TheLossJudgesAndEqualIsNoGain) {
  Scores scores = scores_of();
  EXPECT_TRUE(scores.record(1, {{"val_loss", 2.0}, {"accuracy", 0.5}}));
  EXPECT_FALSE(scores.record(2, {{"val_loss", 2.0}, {"accuracy", 0.9}}));
  EXPECT_TRUE(scores.record(3, {{"val_loss", 1.0}, {"accuracy", 0.7}}));
  const Metric& accuracy = scores.metrics().at("accuracy");
  EXPECT_EQ(accuracy.at_best, 0.7) << "the value at the best step, not its own best";
  EXPECT_EQ(accuracy.at_best_step, 3);
  EXPECT_TRUE(std::isnan(accuracy.best)) << "nobody has said which value of it is better";
  EXPECT_EQ(accuracy.last, 0.7);
  EXPECT_THAT(scores.best_steps(), ElementsAre(3));
}

// Two validations with a run that is resumed between them; `version`: of the snapshot, 0 = before each metric's best was kept.
Scores resumed_scores(int version) {
  const auto means_of = [](double loss, double accuracy, double size) {
    Means means{{"val_loss", loss}, {"accuracy", accuracy}, {"size", size}};
    means.set_best_is({{"acc*", Means::BestIs::highest}});
    return means;
  };
  Scores before = scores_of();
  before.record(1, means_of(2.0, 0.5, 7));
  before.record(2, means_of(3.0, 0.9, 8));
  Json saved = Json::object(), report = Json::object();
  before.write_state(saved, report);
  if (version == 0) report.erase("metric_bests");
  Scores after = scores_of();
  after.load_state(SavedJson(saved, "trainer"), SavedJson(report, "report"));
  after.record(3, means_of(1.0, 0.8, 9));
  after.record(4, means_of(1.5, std::nan(""), 1));
  return after;
}

TEST(Scores, EachMetricHasItsOwnBest) {
  const Scores scores = resumed_scores(1);
  const Json results = scores.results();
  EXPECT_EQ(results["val_loss"],
            Json::parse(R"({"last": 1.5, "best": 1.0, "best_step": 3, "at_best": 1.0, "best_is": "lowest"})"));
  EXPECT_EQ(results["accuracy"],
            Json::parse(R"({"last": "nan", "best": 0.9, "best_step": 2, "at_best": 0.8, "best_is": "highest"})"));
  EXPECT_EQ(results["size"], Json::parse(R"({"last": 1.0, "best": null, "best_step": null, "at_best": 9.0})"));
  EXPECT_EQ(scores.judged_result(), Json::parse(R"({"metric": "val_loss", "is": "lowest", "value": 1.0, "step": 3})"));
  EXPECT_TRUE(scores_of().judged_result().is_null());
}

TEST(Scores, ASnapshotOfBeforeKnowsTheBestOfTheJudgedMetricAlone) {
  Scores scores = resumed_scores(0);
  EXPECT_EQ(scores.results()["val_loss"]["best"], 1.0);
  EXPECT_TRUE(scores.results()["accuracy"]["best"].is_null()) << "0.8 is the best of what is known, not of the run";
  EXPECT_EQ(scores.results()["accuracy"]["at_best"], 0.8);
  Json saved = Json::object(), report = Json::object();
  scores.write_state(saved, report);
  Scores again = scores_of();
  again.load_state(SavedJson(saved, "trainer"), SavedJson(report, "report"));
  again.record(5, {{"val_loss", 2.0}, {"accuracy", 0.99}});
  EXPECT_TRUE(again.results()["accuracy"]["best"].is_null()) << "nor does a run that is resumed once more";
}

TEST(Scores, TheBestOfAnotherVersionOfAMetricIsForgottenAlone) {
  Scores scores = scores_of();
  Means means{{"val_loss", 1.0}, {"bits", 0.9}};
  means.set_best_is({{"bits", Means::BestIs::highest}});
  scores.record(1, means);
  means.set_version("bits", {.number = 2, .moved = true});
  means["bits"] = 0.2;
  means["val_loss"] = 2.0;
  scores.record(2, means);
  EXPECT_EQ(scores.results()["bits"]["best"], 0.2);
  EXPECT_EQ(scores.results()["bits"]["best_step"], 2);
  EXPECT_EQ(scores.results()["val_loss"]["best_step"], 1);
}

TEST(Scores, QuietNamesAreMarkedInTheResults) {
  Scores scores = scores_of();
  Means means{{"val_loss", 2.0}, {"recall/cat", 0.5}};
  means.set_quiet({"recall/*"});
  scores.record(1, means);
  Json saved = Json::object(), report = Json::object();
  scores.write_state(saved, report);
  Scores again = scores_of();
  again.load_state(SavedJson(saved, "trainer"), SavedJson(report, "report"));
  for (const Scores* each : {&scores, &again}) {
    EXPECT_EQ(each->results()["recall/cat"]["quiet"], true);
    EXPECT_FALSE(each->results()["val_loss"].contains("quiet"));
  }
}

TEST(Scores, TheRecipesOrderStaysAlsoInARunThatGoesOn) {
  Scores scores = scores_of();
  scores.record(1, {{"val_loss", 2.0}, {"zeal", 1.0}, {"accuracy", 0.5}});
  Json saved = Json::object(), report = Json::object();
  scores.write_state(saved, report);
  EXPECT_FALSE(saved.contains("metrics_order")) << "no part of the state: its digest stays what it was";
  Scores again = scores_of(), older = scores_of();
  again.load_state(SavedJson(saved, "trainer"), SavedJson(report, "report"));
  older.load_state(SavedJson(saved, "trainer"), SavedJson(Json::object(), "report"));
  EXPECT_THAT(again.names(), ElementsAre("val_loss", "zeal", "accuracy"));
  EXPECT_THAT(older.names(), ElementsAre("val_loss", "accuracy", "zeal")) << "of a snapshot that did not keep it";
  older.record(2, {{"val_loss", 2.0}, {"zeal", 1.0}, {"new", 3.0}, {"accuracy", 0.5}});
  EXPECT_THAT(older.names(), ElementsAre("val_loss", "zeal", "new", "accuracy"));
  const Json summary = {{"metrics", again.results()}, {"metrics_order", {"val_loss", 5, "gone", "zeal"}}};
  EXPECT_THAT(metrics_in_order(summary), ElementsAre("val_loss", "zeal", "accuracy"));
  EXPECT_TRUE(metrics_in_order(Json()).empty());
}

TEST(Scores, NaNIsNeverBest) {
  Scores scores = scores_of();
  EXPECT_FALSE(scores.record(1, {{"val_loss", std::nan("")}}));
  EXPECT_EQ(scores.metrics().at("val_loss").best_step, -1);
  EXPECT_FALSE(scores.wants_save());
  EXPECT_TRUE(scores.record(2, {{"val_loss", 5.0}}));
  EXPECT_FALSE(scores.record(3, {{"val_loss", std::nan("")}}));
  EXPECT_TRUE(scores.results()["val_loss"]["last"].is_string()) << "a number JSON does not have is told as text";
  EXPECT_EQ(scores.results()["val_loss"]["best"], 5.0);
}

TEST(Scores, KeepsTheBestSeveralAndASaveIsWantedForEach) {
  SnapshotConfig config;
  config.best_count = 2;
  config.best_metric = "accuracy";
  config.best_is = SnapshotConfig::BestIs::highest;
  Scores scores = scores_of(config);
  const auto note = [&](std::int64_t step, double value) {
    scores.record(step, {{"accuracy", value}});
    const bool wanted = scores.wants_save();
    scores.saved();
    return wanted;
  };
  EXPECT_TRUE(note(1, 0.5));
  EXPECT_TRUE(note(2, 0.4));
  EXPECT_FALSE(note(3, 0.3));
  EXPECT_TRUE(note(4, 0.45)) << "the second best of now";
  EXPECT_THAT(scores.best_steps(), ElementsAre(1, 4));
  EXPECT_FALSE(note(5, 0.45)) << "an equal one that comes later";
  Json saved = Json::object(), report = Json::object();
  scores.write_state(saved, report);
  Scores again = scores_of(config);
  again.load_state(SavedJson(saved, "trainer"), SavedJson(report, "report"));
  EXPECT_THAT(again.best_steps(), ElementsAre(1, 4));
  config.keep_best = false;
  Scores none = scores_of(config);
  none.record(1, {{"accuracy", 0.5}});
  EXPECT_FALSE(none.wants_save());
  EXPECT_TRUE(none.best_steps().empty());
}

// No snapshot holds the state before the first step. If its validation were the best, the run would have no best snapshot.
TEST(Scores, TheValidationBeforeTheFirstStepIsNeverTheBest) {
  TrainConfig train;
  train.early_stop_patience = 2;
  Scores scores = scores_of({}, train);
  EXPECT_FALSE(scores.record(0, {{"val_loss", 0.5}}));
  EXPECT_FALSE(scores.wants_save());
  EXPECT_TRUE(scores.judged_result().is_null());
  EXPECT_TRUE(scores.record(1, {{"val_loss", 2.0}}));
  EXPECT_TRUE(scores.wants_save());
  scores.record(2, {{"val_loss", 1.5}});
  EXPECT_FALSE(scores.stopped_improving()) << "each is better than the one before";
  EXPECT_THAT(scores.best_steps(), ElementsAre(2));
  EXPECT_EQ(scores.results()["val_loss"]["best"], 1.5) << "what predict and eval use";
  EXPECT_EQ(scores.results()["val_loss"]["best_is"], "lowest");
}

SnapshotConfig judged_by(const char* metric, SnapshotConfig::BestIs best_is, std::int64_t count = 1) {
  SnapshotConfig config;
  config.best_metric = metric;
  config.best_is = best_is;
  config.best_count = count;
  return config;
}

Means of_accuracy(double loss, double accuracy) {
  Means means{{"val_loss", loss}, {"accuracy", accuracy}};
  means.set_best_is({{"accuracy", Means::BestIs::highest}, {"val_loss", Means::BestIs::lowest}});
  return means;
}

// An accuracy of 0.9 must not count as a loss of 0.9, because then no loss of 1.4 would ever be better.
TEST(Scores, AnotherJudgeAfterAResumeCountsAnew) {
  TrainConfig train;
  train.early_stop_patience = 2;
  Scores before = scores_of(judged_by("accuracy", SnapshotConfig::BestIs::highest, 2), train);
  before.record(1, of_accuracy(1.7, 0.8));
  before.record(2, of_accuracy(1.5, 0.9));
  before.record(3, of_accuracy(1.6, 0.7));
  before.record(4, of_accuracy(1.6, 0.7));
  EXPECT_TRUE(before.stopped_improving());
  Json saved = Json::object(), report = Json::object();
  before.write_state(saved, report);
  Scores same = scores_of(judged_by("accuracy", SnapshotConfig::BestIs::highest, 2), train);
  same.load_state(SavedJson(saved, "trainer"), SavedJson(report, "report"));
  EXPECT_EQ(same.forgot(), "");
  EXPECT_TRUE(same.stopped_improving());
  EXPECT_THAT(same.best_steps(), ElementsAre(2, 1));
  Scores after = scores_of(judged_by("", SnapshotConfig::BestIs::lowest, 2), train);
  after.load_state(SavedJson(saved, "trainer"), SavedJson(report, "report"));
  EXPECT_EQ(after.forgot(),
            "the lowest val_loss now decides what is best, instead of the highest accuracy: early stopping starts anew, and only "
            "the earlier validation of step 2 counts (1.5)");
  EXPECT_FALSE(after.stopped_improving());
  EXPECT_TRUE(after.record(5, of_accuracy(1.4, 0.6)));
  after.record(6, of_accuracy(1.3, 0.6));
  EXPECT_FALSE(after.stopped_improving());
  EXPECT_THAT(after.best_steps(), ElementsAre(6, 5));
  EXPECT_EQ(after.results()["accuracy"]["best"], 0.9);
}

TEST(Scores, AResumeThatKeepsTheWorstIsRefused) {
  Scores before = scores_of();
  before.record(1, of_accuracy(2.0, 0.5));
  Json saved = Json::object(), report = Json::object();
  before.write_state(saved, report);
  Scores after = scores_of(judged_by("accuracy", SnapshotConfig::BestIs::lowest));
  EXPECT_THROW(after.load_state(SavedJson(saved, "trainer"), SavedJson(report, "report")), ConfigError);
  Scores fresh = scores_of(judged_by("accuracy", SnapshotConfig::BestIs::lowest));
  try {
    fresh.record(1, of_accuracy(2.0, 0.5));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("the best accuracy is the highest value, but the config keeps the lowest"));
    EXPECT_THAT(error.what(), testing::HasSubstr("--snapshot.best_is=highest"));
  }
}

TEST(Scores, PatienceCountsGainsOfTheLeastSize) {
  TrainConfig train;
  train.early_stop_patience = 2;
  train.early_stop_delta = 0.5;
  Scores scores = scores_of({}, train);
  scores.record(1, {{"val_loss", 4.0}});
  scores.record(2, {{"val_loss", 3.8}});
  EXPECT_FALSE(scores.stopped_improving());
  scores.record(3, {{"val_loss", 3.0}});
  scores.record(4, {{"val_loss", 2.8}});
  EXPECT_FALSE(scores.stopped_improving());
  scores.record(5, {{"val_loss", 2.6}});
  EXPECT_TRUE(scores.stopped_improving()) << "two gains of less than .5 after 3.0";
}

TEST(Scores, ABestOfAnotherVersionCountsNoMoreWhereTheValueMoved) {
  SnapshotConfig config;
  config.best_metric = "bits";
  config.best_is = SnapshotConfig::BestIs::highest;
  Scores before = scores_of(config);
  before.record(1, {{"bits", 0.33}, {"val_loss", 1.0}});
  Json saved = Json::object(), report = Json::object();
  before.write_state(saved, report);
  EXPECT_FALSE(report.contains("metric_versions"));
  for (const bool moved : {false, true}) {
    Scores after = scores_of(config);
    after.load_state(SavedJson(saved, "trainer"), SavedJson(report, "report"));
    Means means{{"bits", 0.01}, {"val_loss", 0.9}};
    means.set_version("bits", {.number = 2, .moved = moved});
    EXPECT_EQ(after.record(2, means), moved);
    EXPECT_EQ(after.metrics().at("bits").best_step, moved ? 2 : 1);
    EXPECT_EQ(after.metrics().at("bits").at_best_step, moved ? 2 : 1);
    EXPECT_THAT(after.best_steps(), ElementsAre(moved ? 2 : 1));
    EXPECT_EQ(after.results()["bits"]["version"], 2);
    EXPECT_EQ(after.forgot().empty(), !moved);
    Json again = Json::object(), told = Json::object();
    after.write_state(again, told);
    EXPECT_EQ(told["metric_versions"], (Json{{"bits", 2}}));
    Scores last = scores_of(config);
    last.load_state(SavedJson(again, "trainer"), SavedJson(told, "report"));
    EXPECT_EQ(last.record(3, means), false);
    EXPECT_TRUE(last.forgot().empty());
  }
}

TEST(Scores, AMetricThatIsNotMeasuredIsNamed) {
  SnapshotConfig config;
  config.best_metric = "acuracy";
  Scores scores = scores_of(config);
  try {
    scores.record(1, {{"val_loss", 1.0}, {"accuracy", 0.5}});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("validation gives no metric \"acuracy\""));
    EXPECT_THAT(error.what(), testing::HasSubstr("it gives val_loss, accuracy"));
  }
}

}  // namespace
}  // namespace millrace
