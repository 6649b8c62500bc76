// Mistakes in a recipe that a whole epoch would reveal are found before the first step, and no run folder is left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "millrace/base/error.h"
#include "millrace/data/sources/memory_source.h"
#include "millrace/measure/verification.h"
#include "millrace/train/recipe/config.h"
#include "millrace/train/run/rehearsal.h"
#include "toys.h"

namespace millrace {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

enum class Slips : std::uint8_t {
  none,
  history,         // a column that no metric fills
  missing_output,  // found in measure()
  matrix_metric,
  metric_of_the_loss,
  metric_of_the_log,
  objective_of_the_log,
  small_picture,
  predicted_rows,
  predicted_name,
  nothing_counts,
  unused_parameter,
  elsewhere,  // prepare() makes a field on another device
  slow        // a validation takes much longer than a step
};

struct RehearsedConfig {
  Slips slip = Slips::none;
  bool validates = true;
  static consteval auto fields() {
    return std::tuple{config::field<&RehearsedConfig::slip>("What is wrong."),
                      config::field<&RehearsedConfig::validates>("Has validation data.")};
  }
};

struct RehearsedSections {
  RehearsedConfig toy;
  static consteval auto fields() { return std::tuple{config::field<&RehearsedSections::toy>("The toy.")}; }
};

struct TwoLinearsImpl : torch::nn::Module {
  TwoLinearsImpl()
      : first(register_module("first", torch::nn::Linear(3, 1))), second(register_module("second", torch::nn::Linear(3, 1))) {}
  torch::nn::Linear first, second;
};

class Rehearsed final : public Recipe {
 public:
  Rehearsed(const RehearsedSections& sections, const Context& context) : toy_(sections.toy), optim_(context.config->optim) {}
  data::Pipeline data(Split split) override {
    if (split == Split::validation && !toy_.validates) return {};
    return data::single(std::make_shared<data::MemorySource>(std::vector{
        data::memory_array("x", {3}, std::vector<float>(48, 0.5F)), data::memory_array("y", {1}, std::vector<float>(16, 1.0F))}));
  }
  Batch prepare(Batch batch) override {
    if (toy_.slip == Slips::elsewhere) batch.set("drawn", at::zeros({4}, at::kMeta));
    return batch;
  }
  torch::nn::Module& model() override { return *net_; }
  std::vector<Objective> objectives() override {
    const std::string name = toy_.slip == Slips::objective_of_the_log ? "step" : "loss";
    return {{.name = name, .optim = optim_, .loss = [this](const Batch& batch, const StepContext&) {
               if (toy_.slip == Slips::slow && !net_->is_training()) std::this_thread::sleep_for(std::chrono::milliseconds(2000));
               at::Tensor predicted = net_->first(batch["x"]);
               if (toy_.slip != Slips::unused_parameter) predicted = predicted + net_->second(batch["x"]);
               const at::Tensor error = predicted - batch["y"];
               const double count = toy_.slip == Slips::nothing_counts ? 0.0 : static_cast<double>(error.numel());
               return Loss{.terms = {{.sum = error.square().sum(), .count = at::full({}, count), .nominal_count = 4}},
                           .outputs = {{"error", error}}};
             }}};
  }
  void measure(const Batch&, const StepResult& result, metrics::Board& board) override {
    const at::Tensor error = result.outputs().at(toy_.slip == Slips::missing_output ? "eror" : "error");
    if (toy_.slip == Slips::matrix_metric) board.add("width", error, at::ones({}));
    if (toy_.slip == Slips::metric_of_the_loss) board.add("val_loss", error.abs().sum(), at::full({}, 4.0));
    if (toy_.slip == Slips::metric_of_the_log) board.add_mean("time", error);
    board.add_mean("mae", error.abs());
  }
  Tensors predict(const Tensors& inputs) override {
    const at::Tensor y = net_->first(inputs.at("x"));
    return {{toy_.slip == Slips::predicted_name ? "yy" : "y", toy_.slip == Slips::predicted_rows ? y.sum(0) : y}};
  }
  Facts facts() const override { return {.history = {toy_.slip == Slips::history ? "mea" : "mae"}}; }
  std::vector<Picture> draw() override {
    const std::size_t bytes = toy_.slip == Slips::small_picture ? 3 : 12;
    return {{.name = "errors", .width = 2, .height = 2, .rgb = std::vector<std::uint8_t>(bytes)}};
  }

 private:
  RehearsedConfig toy_;
  optim::OptimConfig optim_;
  std::shared_ptr<TwoLinearsImpl> net_ = std::make_shared<TwoLinearsImpl>();
};

Entry slipping() {
  Entry row = entry_of<Rehearsed, RehearsedSections>("slipping", "A toy.");
  row.defaults = {{"data.batch_size", 4}, {"train.epochs", 3}, {"precision.dtype", "fp32"}};
  row.predicts = {.inputs = {{"x", DType::f32, "[rows,3]", ""}}, .outputs = {{"y", DType::f32, "[rows,1]", ""}}};
  return row;
}

// The error of a run, which has made no step and left no folder; "" = it trained.
std::string told(Json config) {
  const toys::TemporaryFolder parent;
  config["train.off"] = Json::array();
  try {
    (void)toys::run(slipping(), parent.path() / "run", config);
  } catch (const Error& error) {
    EXPECT_FALSE(std::filesystem::exists(parent.path() / "run")) << error.what();
    return error.what();
  }
  return "";
}

TEST(Rehearsal, FindsBeforeTheFirstStepWhatAnEpochWouldFind) {
  EXPECT_EQ(told(Json::object()), "");
  EXPECT_EQ(told({{"toy.slip", "history"}}),
            "RecipeError  Facts::history has a column \"mea\", but no metric has that name\n  where    Facts::history\n"
            "  next     did you mean \"mae\"? measure() gives val_loss, mae");
  EXPECT_THAT(told({{"toy.slip", "missing_output"}}),
              AllOf(HasSubstr("recipe slipping failed in measure(): "), HasSubstr("validation batch 0")));
  EXPECT_THAT(told({{"toy.slip", "matrix_metric"}}),
              AllOf(HasSubstr("recipe slipping failed in measure(): "), HasSubstr("metric \"width\""), HasSubstr("[4,1]")));
  EXPECT_THAT(told({{"toy.slip", "metric_of_the_loss"}}),
              HasSubstr("metric \"val_loss\" has the name of a loss that the trainer measures itself"));
  EXPECT_THAT(
      told({{"toy.slip", "metric_of_the_log"}}),
      AllOf(HasSubstr("metric \"time\" has the name of a value that Millrace itself writes into log.jsonl"),
            HasSubstr("where    Recipe::measure() or end_validation()"), HasSubstr("these are taken: kind, time, step, ")));
  EXPECT_THAT(told({{"toy.slip", "objective_of_the_log"}}),
              AllOf(HasSubstr("objective \"step\" has the name of a value"), HasSubstr("where    Objective::name")));
  EXPECT_THAT(told({{"toy.slip", "small_picture"}}), HasSubstr("picture \"errors\" has 3 bytes, and 2 x 2 pixels need 12"));
  EXPECT_THAT(told({{"toy.slip", "predicted_rows"}}), HasSubstr("output \"y\" of predict() is [1] for 2 rows of input"));
  EXPECT_THAT(told({{"toy.slip", "predicted_name"}}), AllOf(HasSubstr("predict() gives no \"y\""), HasSubstr("Entry::predicts")));
  EXPECT_THAT(told({{"toy.slip", "nothing_counts"}}),
              HasSubstr("objective \"loss\" counts no values in the first training batch: the count of its loss is 0"));
}

TEST(Rehearsal, ChecksTheNamesThatAConfigJudgesBy) {
  EXPECT_EQ(told({{"snapshot.best_metric", "mao"}}),
            "ConfigError  the validation gives no metric \"mao\"\n  where    snapshot.best_metric\n"
            "  next     did you mean \"mae\"? it gives val_loss, mae");
  EXPECT_EQ(told({{"snapshot.best_metric", "mae"}}), "");
  EXPECT_THAT(told({{"toy.validates", false}, {"snapshot.best_metric", "mae"}}),
              AllOf(HasSubstr("there is no validation"), HasSubstr("snapshot.best_metric")));
  EXPECT_THAT(told({{"toy.validates", false}, {"train.early_stop_patience", 2}}), HasSubstr("train.early_stop_patience"));
  const Json plateau = {{"toy.validates", false}, {"optim.schedule", "plateau"}};
  EXPECT_THAT(told(plateau), AllOf(HasSubstr("there is no validation"), HasSubstr("optim.schedule = plateau"),
                                   HasSubstr("optim.schedule=constant")));
  EXPECT_EQ(told({{"toy.validates", false}, {"optim.schedule", "constant"}}), "") << "the remedy";
}

TEST(Rehearsal, WarnsOfTheHighestLossAsTheBest) {
  const Entry row = slipping();
  const config::Schema schema = schema_of(row);
  for (const bool names : {false, true}) {
    config::Layers layers(schema);
    layers.add_values(row.defaults, "recipe");
    layers.add_values({{"snapshot.best_is", "highest"}, {"snapshot.best_metric", names ? "mae" : ""}}, "test");
    telemetry::Console console(telemetry::Console::Mode::quiet);
    RunSetup setup({.entry = &row, .config = layers.resolve(), .console = &console});
    Assembly assembly(setup, RecipeFolders{});
    const Rehearsal rehearsal = rehearse(assembly);
    if (names) {
      EXPECT_THAT(rehearsal.warnings, IsEmpty());
    } else {
      EXPECT_THAT(rehearsal.warnings, testing::ElementsAre(HasSubstr("the highest val_loss decides what is best")));
    }
  }
}

// A resumed run makes no rehearsal, and these keys may change then.
TEST(Rehearsal, WithoutValidationAResumeCanNotStopEarly) {
  const toys::TemporaryFolder parent;
  Json config = {{"toy.validates", false}, {"train.max_steps", 2}};
  (void)toys::run(slipping(), parent.path() / "run", config);
  config["train.max_steps"] = 4;
  config["train.early_stop_patience"] = 2;
  try {
    (void)toys::run(slipping(), parent.path() / "run", config);
    ADD_FAILURE();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("there is no validation"), HasSubstr("train.early_stop_patience")));
  }
}

// The toy, ready to be rehearsed.
struct Ready {
  explicit Ready(const char* slip) {
    layers.add_values(row.defaults, "recipe");
    layers.add_values({{"toy.slip", slip}}, "test");
  }
  Entry row = slipping();
  config::Schema schema = schema_of(row);
  config::Layers layers{schema};
  telemetry::Console console{telemetry::Console::Mode::quiet};
};

TEST(Rehearsal, LeavesOutACheckThatTakesLongerThanTwoStepsAndSaysSo) {
  Ready ready("slow");
  RunSetup setup({.entry = &ready.row, .config = ready.layers.resolve(), .console = &ready.console});
  Assembly assembly(setup, RecipeFolders{});
  const Rehearsal rehearsal = rehearse(assembly);
  EXPECT_EQ(rehearsal.validation_rows, 4);
  ASSERT_EQ(rehearsal.unchecked.size(), 1U);
  EXPECT_THAT(rehearsal.unchecked[0],
              testing::MatchesRegex("the loss of a batch that takes [0-9.]+ s to evaluate; a step takes [0-9.]+ s"));
  EXPECT_THAT(to_text(rehearsal), HasSubstr("adds up     not checked: the loss of a batch that takes"));
}

TEST(Rehearsal, NamesParametersWithoutGradientAndGoesOn) {
  Ready ready("unused_parameter");
  RunSetup setup({.entry = &ready.row, .config = ready.layers.resolve(), .console = &ready.console});
  Assembly assembly(setup, RecipeFolders{});
  const Rehearsal rehearsal = rehearse(assembly);
  EXPECT_THAT(rehearsal.unchecked, IsEmpty());
  EXPECT_EQ(rehearsal.training_rows, 4);
  EXPECT_EQ(rehearsal.validation_rows, 4);
  EXPECT_THAT(rehearsal.pictures, testing::ElementsAre("errors 2x2"));
  ASSERT_EQ(rehearsal.warnings.size(), 1U);
  EXPECT_THAT(rehearsal.warnings[0], HasSubstr("2 parameters get no gradient from the first batch: second.weight, second.bias"));
  for (const at::Tensor& parameter : assembly.recipe().model().parameters()) EXPECT_FALSE(parameter.grad().defined());
  EXPECT_TRUE(assembly.recipe().model().is_training());
}

TEST(Rehearsal, AloneItWritesNothing) {
  const toys::TemporaryFolder parent;
  const Entry row = slipping();
  const config::Schema schema = schema_of(row);
  config::Layers layers(schema);
  layers.add_values(row.defaults, "recipe");
  layers.add_values({{"run.dir", (parent.path() / "run").string()}}, "test");
  telemetry::Console console(telemetry::Console::Mode::quiet);
  RunRequest request{.entry = &row, .config = layers.resolve(), .dry_run = DryRun::rehearsal, .console = &console};
  EXPECT_EQ(run_training(request).exit_code, 0);
  EXPECT_TRUE(std::filesystem::is_empty(parent.path()));
}

// What `doctor RECIPE --verify` says of a batch with a field that is not on the run's device.
TEST(Verification, NamesTheFieldsThatAreElsewhere) {
  const Entry row = slipping();
  const config::Schema schema = schema_of(row);
  for (const char* slip : {"none", "elsewhere"}) {
    config::Layers layers(schema);
    layers.add_values(row.defaults, "recipe");
    layers.add_values({{"toy.slip", slip}, {"device.name", "cpu"}}, "test");
    telemetry::Console console(telemetry::Console::Mode::quiet);
    std::vector<Check> checks;
    try {
      (void)verify_run({.entry = &row, .config = layers.resolve(), .console = &console},
                       [&](const Check& check) { checks.push_back(check); });
    } catch (const std::exception& error) {
      EXPECT_STREQ(slip, "elsewhere") << error.what();  // a field on the device "meta" has no data to rehearse with
    }
    const auto found = std::ranges::find(checks, "data loading", &Check::name);
    ASSERT_NE(found, checks.end());
    const bool sound = std::string(slip) == "none";
    EXPECT_EQ(found->level, sound ? Check::Level::pass : Check::Level::warn);
    EXPECT_THAT(found->found, HasSubstr(sound ? "; all on cpu" : "; not on cpu: drawn on meta"));
    EXPECT_THAT(found->next, HasSubstr(sound ? "" : "in Recipe::prepare() make new fields on the device"));
  }
}

}  // namespace
}  // namespace millrace
