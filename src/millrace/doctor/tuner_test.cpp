#include "millrace/doctor/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace millrace::doctor {
namespace {

using testing::ElementsAre;
using testing::Pair;
using testing::UnorderedElementsAre;
using Verdict = Trial::Verdict;

// A model of a machine and a recipe: the cost of each key, and how one cost hides another.
struct Model {
  double read = 0.02, compute = 0.01, bf16_ratio = 1.6, log = 0.004, save = 0.01, fixed = 0.002;  // seconds for a sample or a log
                                                                                                  // line
  bool fits = true;                                                                               // false: the cache does not fit
                                                                                                  // into memory
  double noise = 0;                                                                               // standard deviation of
                                                                                                  // log(time)
  mutable std::mt19937 random{1};
  mutable int runs = 0;

  [[nodiscard]] ShortRun run(const Settings& s) const {
    ++runs;
    const double rows = std::stod(s.at("data.batch_size"));
    double step = compute / (s.at("precision.dtype") == "bf16" ? bf16_ratio : 1.0) + fixed * 4 / rows;
    if (s.at("device.threads") != "auto") step *= 1.7;
    if (s.at("memory.recompute") != "none" && s.at("memory.recompute") != "auto") step *= 1.3;
    const bool cached = s.at("data.cache") == "disk" || (s.at("data.cache") == "auto" && fits);
    const int readers = s.at("data.workers") == "auto" ? 2 : std::stoi(s.at("data.workers"));
    const double reading = cached ? 0.0005 : read / std::max(1, std::min(readers, 4));
    const double wait = readers == 0 ? reading : std::max(0.0, reading - step);
    const double line = log / std::stod(s.at("log.every")), saving = save / std::stod(s.at("snapshot.every_steps"));
    const double all = step + wait + line + saving;
    ShortRun result{.seconds = all,
                    .others = 0,
                    .shares = {{"forward", step / 3 / all},
                               {"backward", step * 2 / 3 / all},
                               {"data_wait", wait / all},
                               {"log", line / all},
                               {"snapshot", saving / all}},
                    .findings = {},
                    .failure = {}};
    if (noise > 0) result.seconds *= std::exp(std::normal_distribution<double>(0, noise)(random));
    return result;
  }
};

const Settings kBad = {{"data.workers", "0"},         {"data.cache", "off"},      {"data.batch_size", "4"},
                       {"device.threads", "1"},       {"log.every", "1"},         {"memory.recompute", "all"},
                       {"snapshot.every_steps", "1"}, {"precision.dtype", "fp32"}};

Settings with(Settings settings, const Settings& more) {
  for (const auto& [key, value] : more) settings[key] = value;
  return settings;
}

Runner runner_of(const Model& model, const Settings& config) {
  return [&model, config](const Settings& changed) { return model.run(with(config, changed)); };
}

const Tuner::Options kAll{.allowed = {"precision", "batch_size"}};

// The shortest time among all combinations of the values that a person would try, and the number of combinations.
std::pair<double, int> best_of_grid(const Model& model) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> axes = {{"data.workers", {"0", "1", "2", "4", "auto"}},
                                                                              {"data.cache", {"off", "auto", "disk"}},
                                                                              {"data.batch_size", {"4", "8", "16"}},
                                                                              {"device.threads", {"1", "auto"}},
                                                                              {"log.every", {"1", "10", "50"}},
                                                                              {"memory.recompute", {"all", "none"}},
                                                                              {"snapshot.every_steps", {"1", "10", "100"}},
                                                                              {"precision.dtype", {"fp32", "bf16"}}};
  double best = 1e9;
  int count = 1;
  for (const auto& axis : axes) count *= static_cast<int>(axis.second.size());
  for (int i = 0; i < count; ++i) {
    Settings settings = kBad;
    int rest = i;
    for (const auto& [key, values] : axes) {
      settings[key] = values[static_cast<std::size_t>(rest) % values.size()];
      rest /= static_cast<int>(values.size());
    }
    best = std::min(best, model.run(settings).seconds);
  }
  return {best, count};
}

TEST(Tuner, FromABadConfigItComesNearTheBestOfTheGridInASixtiethOfItsRuns) {
  std::mt19937 random(7);
  const auto any = [&](double low, double high) {
    return std::exp(std::uniform_real_distribution(std::log(low), std::log(high))(random));
  };
  for (int trial = 0; trial < 40; ++trial) {
    Model model{.read = any(1e-3, 0.1),
                .compute = any(1e-3, 0.1),
                .bf16_ratio = any(0.6, 2.5),
                .log = any(1e-4, 0.05),
                .save = any(1e-3, 0.3),
                .fixed = any(1e-4, 0.01),
                .fits = trial % 3 != 0};
    const auto [best, count] = best_of_grid(model);
    model.runs = 0;
    model.noise = 0.005;
    Tuner tuner(kBad, kAll, runner_of(model, kBad));
    while (tuner.next()) {
    }
    EXPECT_LE(model.runs, count / 60) << trial;
    model.noise = 0;
    EXPECT_GE(best / model.run(with(kBad, tuner.kept())).seconds, 0.95) << trial << ": " << text_of(tuner.kept());
  }
}

TEST(Tuner, WhatMakesAnotherTrainingIsNotTriedUnlessItIsAllowed) {
  const Model model{.read = 1e-5};
  Tuner tuner(kBad, {}, runner_of(model, kBad));
  std::vector<std::string> refused;
  while (const auto trial = tuner.next()) {
    if (trial->verdict == Verdict::not_allowed) refused.push_back(trial->candidate.needs);
  }
  EXPECT_THAT(refused, testing::Contains("precision"));
  EXPECT_FALSE(tuner.kept().contains("precision.dtype"));
  EXPECT_FALSE(tuner.kept().contains("data.batch_size"));
  EXPECT_EQ(tuner.kept().at("device.threads"), "auto");
}

// Computing a batch in one piece changes the rows that a batch norm sees, so the user must allow it.
TEST(Tuner, ABatchInPiecesStaysInPiecesUnlessThatIsAllowed) {
  const auto run = [](const Settings& changed) {
    return ShortRun{.seconds = changed.empty() ? 1.0 : 0.5,
                    .others = 0,
                    .shares = {{"forward", 0.4}, {"backward", 0.6}},
                    .findings = {},
                    .failure = {}};
  };
  const Settings config = {{"memory.micro_batches", "4"}};
  Tuner tuner(config, {}, run);
  const auto trial = tuner.next();
  ASSERT_TRUE(trial);
  EXPECT_EQ(trial->verdict, Verdict::not_allowed);
  EXPECT_EQ(trial->candidate.needs, "accumulation");
  Tuner allowed(config, {.allowed = {"accumulation"}}, run);
  while (allowed.next()) {
  }
  EXPECT_EQ(allowed.kept().at("memory.micro_batches"), "1");
}

TEST(Tuner, WhatIsPromisedMuchIsTriedAtOnceWithTheValuesOfTheFindings) {
  int runs = 0;
  const Settings config = with(kBad, {{"data.workers", "1"}});
  Tuner tuner(config, {}, [&](const Settings& changed) {
    ++runs;
    ShortRun run{.seconds = changed.contains("data.workers") ? 0.5 : 1.0,
                 .others = 0,
                 .shares = {{"data_wait", 0.4}},
                 .findings = {},
                 .failure = {}};
    if (!changed.contains("data.workers")) {
      run.findings.push_back(
          {.id = "few_readers", .what = "", .remedy = "", .key = "data.workers", .value = "3", .gain = gain_of(0.5)});
      run.findings.push_back(
          {.id = "loss_spikes", .what = "", .remedy = "", .key = "optim.clip_norm", .value = "1", .gain = gain_of(0.9)});
    }
    return run;
  });
  const auto trial = tuner.next();
  ASSERT_TRUE(trial);
  EXPECT_EQ(trial->candidate.finding, "few_readers");
  EXPECT_THAT(trial->candidate.set, ElementsAre(Pair("data.cache", "auto"), Pair("data.workers", "3")));
  EXPECT_EQ(trial->verdict, Verdict::kept);
  EXPECT_DOUBLE_EQ(trial->gain(), 0.5);
  EXPECT_EQ(runs, 2);  // the first run, and a run with the candidate: half the time is clear after one run
}

TEST(Tuner, WhatCameInWithOthersAndCostsGoesOutAgain) {
  // On this machine, device.threads=auto is slower than the config's number of threads, but the gain of more readers hides it.
  const auto run = [](const Settings& changed) {
    const auto is = [&](const std::string& key, const std::string& value) {
      const auto found = changed.find(key);
      return found != changed.end() && found->second == value;
    };
    const double wait = is("data.workers", "auto") ? 0.0 : 0.5, step = is("device.threads", "auto") ? 0.25 : 0.2;
    return ShortRun{.seconds = wait + step,
                    .others = 0,
                    .shares = {{"data_wait", wait / (wait + step)}, {"backward", step / (wait + step)}, {"log", 0}},
                    .findings = {},
                    .failure = {}};
  };
  Tuner tuner({{"data.workers", "0"}, {"device.threads", "8"}, {"train.off", "[autocast]"}}, {}, run);
  const auto first = tuner.next();
  ASSERT_TRUE(first);
  EXPECT_THAT(first->candidate.set, testing::IsSupersetOf({Pair("data.workers", "auto"), Pair("train.off", "[]")}));
  EXPECT_EQ(first->verdict, Verdict::kept);
  std::vector<std::string> back;
  while (const auto trial = tuner.next()) {
    if (trial->candidate.back) back.push_back(text_of(trial->candidate.set) + ": " + std::string(word_of(trial->verdict)));
  }
  EXPECT_EQ(tuner.kept().at("device.threads"), "8");
  EXPECT_EQ(tuner.kept().at("data.workers"), "auto");
  EXPECT_THAT(back, testing::Contains("train.off=[autocast]: no gain"));
}

TEST(Tuner, ABusyMachineIsNoticedAndNothingIsKeptFromIt) {
  Tuner tuner(kBad, {}, [](const Settings& changed) {
    return ShortRun{
        .seconds = changed.empty() ? 1.0 : 0.5, .others = 0.5, .shares = {{"data_wait", 0.4}}, .findings = {}, .failure = {}};
  });
  while (const auto trial = tuner.next()) EXPECT_EQ(trial->verdict, Verdict::busy);
  EXPECT_TRUE(tuner.kept().empty());
}

TEST(Tuner, ARunThatFailsIsAVerdict) {
  Tuner tuner(kBad, {}, [](const Settings& changed) {
    return ShortRun{.seconds = 1,
                    .others = 0,
                    .shares = {{"data_wait", 0.4}},
                    .findings = {},
                    .failure = changed.empty() ? "" : "out of memory"};
  });
  const auto trial = tuner.next();
  ASSERT_TRUE(trial);
  EXPECT_EQ(trial->verdict, Verdict::failed);
  EXPECT_EQ(trial->failure, "out of memory");
}

TEST(Tuner, ABaseThatFailsLaterIsNotABusyMachine) {
  int runs = 0;
  Tuner tuner(kBad, {}, [&](const Settings& changed) {
    const bool fails = changed.empty() && ++runs > 1;
    return ShortRun{.seconds = 1,
                    .others = fails ? 0 : 0.5,  // the first run counts for nothing, so the trial begins with a base run
                    .shares = {{"data_wait", 0.4}},
                    .findings = {},
                    .failure = fails ? "the disk is full" : ""};
  });
  const auto trial = tuner.next();
  ASSERT_TRUE(trial);
  EXPECT_EQ(trial->verdict, Verdict::failed);
  EXPECT_EQ(trial->failure, "the run without the change: the disk is full");
}

TEST(Tuner, GainsBelowTheNoiseAreNotKept) {
  Model model;
  model.noise = 0.05;
  int kept = 0, all = 0;
  for (int i = 0; i < 20; ++i) {
    Tuner tuner(kBad, {}, [&](const Settings&) {
      ShortRun run = model.run(kBad);  // every config takes the same time
      run.shares = {{"data_wait", 0.4}, {"log", 0.2}};
      return run;
    });
    while (const auto trial = tuner.next()) {
      kept += trial->verdict == Verdict::kept ? 1 : 0;
      ++all;
    }
  }
  EXPECT_GT(all, 100);
  EXPECT_LE(kept, all / 12);  // two runs of the same config differ by 7 %
}

// bf16 gains a seventh and a larger batch a tenth, but every fifth run is disturbed and does not show it.
TEST(Tuner, DisturbedRunsHideNoGain) {
  const Settings good = with(kBad, {{"data.workers", "auto"},
                                    {"data.cache", "auto"},
                                    {"device.threads", "auto"},
                                    {"log.every", "100"},
                                    {"memory.recompute", "none"},
                                    {"snapshot.every_steps", "1000"}});
  int found = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    Model model{.read = 1e-6, .bf16_ratio = 1.17, .log = 1e-6, .save = 1e-6, .noise = 0.02};
    model.random.seed(seed);
    Tuner tuner(good, kAll, [&](const Settings& changed) {
      ShortRun run = model.run(with(good, changed));
      if (model.random() % 5 == 0) run.seconds *= 1.25;
      return run;
    });
    while (tuner.next()) {
    }
    const auto bf16 = tuner.kept().find("precision.dtype"), batch = tuner.kept().find("data.batch_size");
    found += bf16 != tuner.kept().end() && batch != tuner.kept().end() ? 1 : 0;
  }
  EXPECT_GE(found, 32);
}

TEST(Tuner, ItStopsWhenTheTimeIsOverAndGoesOnFromItsState) {
  const Model model;
  Tuner whole(kBad, kAll, runner_of(model, kBad));
  while (whole.next()) {
  }
  Json state;
  Settings kept;
  int left = 0;
  for (int process = 0; process < 100; ++process) {  // each process makes two trials and is then killed
    left = 2;
    Tuner::Options options = kAll;
    options.has_time = [&] { return left-- > 0; };
    const Runner run = runner_of(model, kBad);
    Tuner tuner = state.is_null() ? Tuner(kBad, options, run) : Tuner(kBad, options, run, state);
    while (tuner.next()) state = Json::parse(tuner.state().dump());
    kept = tuner.kept();
    if (!tuner.out_of_time()) break;
  }
  EXPECT_EQ(kept, whole.kept());
  EXPECT_GT(whole.speedup(), 2);
}

TEST(Tuner, NothingIsTriedThatCanGainTooLittle) {
  const Model model{.read = 1e-6, .compute = 1, .log = 1e-6, .save = 1e-6};
  const Settings good = {{"data.workers", "auto"},       {"data.cache", "auto"},     {"data.batch_size", "4"},
                         {"device.threads", "auto"},     {"log.every", "50"},        {"memory.recompute", "auto"},
                         {"snapshot.every_steps", "50"}, {"precision.dtype", "auto"}};
  Tuner tuner(good, {}, runner_of(model, good));
  while (const auto trial = tuner.next()) EXPECT_EQ(trial->verdict, Verdict::not_allowed) << text_of(trial->candidate.set);
  EXPECT_EQ(model.runs, 1);
}

}  // namespace
}  // namespace millrace::doctor
