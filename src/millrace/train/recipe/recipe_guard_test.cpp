// Tests of the messages that a user reads if the code of a recipe is wrong.
#include "millrace/train/recipe/recipe_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/data/sources/memory_source.h"

namespace millrace {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

enum class Slip : std::uint8_t {
  none,
  field_name,
  matrix_product,
  own_exception,
  null_loss,
  no_objective,
  no_terms,
  no_gradient,
  long_count,
  long_report,
  missing_output,
  bad_label,
  bad_label_in_prepare,
  new_batch_in_prepare,
  own_data_error,
  small_picture,
  out_of_memory
};

// A source whose rows 0, 1, 2 are the samples 7, 3, 5 of labels.csv.
class Labels final : public data::Source {
 public:
  [[nodiscard]] std::span<const Field> fields() const override { return fields_; }
  [[nodiscard]] std::int64_t size() const override { return 10; }
  void read(std::span<const std::int64_t>, data::Rows, const data::ReadRandom&) const override {}
  [[nodiscard]] std::string fingerprint() const override { return "labels"; }
  [[nodiscard]] std::string describe(std::int64_t index) const override { return "labels.csv row " + std::to_string(index); }

 private:
  std::vector<Field> fields_ = {{"x", DType::f32, {4}}, {"label", DType::i64, {}}};
};

class Slipping final : public Recipe {
 public:
  explicit Slipping(Slip slip) : slip_(slip) {}
  data::Pipeline data(Split) override { return data::single(std::make_shared<Labels>()); }
  Batch prepare(Batch batch) override {
    if (slip_ == Slip::bad_label_in_prepare) {
      Batch taken = std::move(batch);
      throw RowError({"label 12 is not one of 10 classes", "", "number the classes from 0"}, 2);
    }
    if (slip_ == Slip::new_batch_in_prepare) return Batch(Tensors{{"x", batch["x"] * 2}, {"label", batch["label"]}});
    return batch;
  }
  torch::nn::Module& model() override { return *linear_; }
  std::vector<Objective> objectives() override {
    if (slip_ == Slip::no_objective) return {};
    Objective objective{.name = "main", .loss = [this](const Batch& batch, const StepContext&) { return loss(batch); }};
    if (slip_ == Slip::null_loss) objective.loss = nullptr;
    return {std::move(objective)};
  }
  void measure(const Batch&, const StepResult& result, metrics::Board& board) override {
    board.add("error", result.outputs().at("eror").sum(), at::ones({}));
  }
  std::vector<Picture> draw() override {
    return {{.name = "hard", .width = 4, .height = 4, .rgb = std::vector<std::uint8_t>(3)}};
  }

 private:
  Loss loss(const Batch& batch) {
    const at::Tensor& x = batch[slip_ == Slip::field_name ? "y" : "x"];
    if (slip_ == Slip::own_exception) throw std::runtime_error("radius is negative");
    if (slip_ == Slip::out_of_memory) throw std::bad_alloc();
    if (slip_ == Slip::bad_label) throw RowError({"label 12 is not one of 10 classes", "", "number the classes from 0"}, 1);
    if (slip_ == Slip::own_data_error) throw DataError({"the sky is empty", "", "take another"});
    if (slip_ == Slip::no_terms) return {};
    at::Tensor value = linear_->forward(slip_ == Slip::matrix_product ? x.t() : x).sum();
    if (slip_ == Slip::no_gradient) value = value.detach();
    if (slip_ == Slip::long_count) return {.terms = {{.sum = value, .count = at::ones({1})}}};
    if (slip_ == Slip::long_report)
      return {.terms = {{.sum = value, .count = at::ones({}), .report = LossTerm::Report{at::ones({3}), at::ones({}), false}}}};
    return {.terms = {{.sum = value, .count = at::ones({})}}};
  }
  Slip slip_;
  torch::nn::Linear linear_{4, 2};
};

struct HalvesImpl : torch::nn::Module {
  explicit HalvesImpl(bool shares) {
    register_module("first", first);
    register_module("second", shares ? first : second);
  }
  torch::nn::Linear first{4, 2}, second{4, 2};
};

// Two layers whose parameters have the same names within their layers.
class Halves final : public Recipe {
 public:
  Halves(bool shares, bool groups, double scale = 1)
      : groups_(groups), scale_(scale), net_(std::make_shared<HalvesImpl>(shares)) {}
  data::Pipeline data(Split) override { return {}; }
  torch::nn::Module& model() override { return *net_; }
  std::vector<Objective> objectives() override {
    Objective objective{.name = "main", .loss = [](const Batch&, const StepContext&) { return std::optional<Loss>(); }};
    for (const torch::nn::Linear& layer : {net_->first, net_->second}) {
      optim::ParameterGroup group{.learning_rate_scale = scale_};
      for (const auto& item : layer->named_parameters()) group.parameters.push_back({item.key(), item.value()});
      if (groups_) objective.parameters.push_back(std::move(group));
    }
    return {std::move(objective)};
  }

 private:
  bool groups_;
  double scale_;
  std::shared_ptr<HalvesImpl> net_;
};

Batch batch_of_three() {
  std::vector<Group> groups(1);
  groups[0].fields = {{"x", at::zeros({3, 4})}, {"label", at::zeros({3}, at::kLong)}};
  groups[0].positions = {0, 1, 2};
  groups[0].indices = {7, 3, 5};
  return Batch(std::move(groups), {.split = Split::train, .epoch = 1, .index = 6});
}

// The message of the exception that is thrown while a batch goes through the loss; "" = no exception.
std::string told(Slip slip) {
  RecipeGuard guard("flowers", std::make_unique<Slipping>(slip));
  try {
    (void)guard.data(Split::train);
    const Batch batch = guard.prepare(batch_of_three());
    (void)guard.objectives().at(0).loss(batch, {.step = 41});
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

constexpr const char* kWhere =
    "\n  where    objective \"main\", training batch 6 of epoch 1, step 42\n           fields: label i64 [3], x f32 [3,4]\n";

TEST(RecipeGuard, AWellWrittenRecipeIsAsItWas) { EXPECT_EQ(told(Slip::none), ""); }

TEST(RecipeGuard, SaysCallbackBatchAndFields) {
  EXPECT_EQ(told(Slip::field_name), std::string("RecipeError  recipe flowers failed in loss(): the batch has no field \"y\"; its "
                                                "fields: label, x") +
                                        kWhere + "  next     did you mean \"x\"?");
  EXPECT_THAT(told(Slip::matrix_product),
              testing::AllOf(StartsWith("RecipeError  recipe flowers failed in loss(): LibTorch refused an operation: "),
                             HasSubstr("mat1 and mat2 shapes cannot be multiplied (4x3"), HasSubstr(kWhere)));
  EXPECT_THAT(
      told(Slip::own_exception),
      testing::AllOf(StartsWith("RecipeError  recipe flowers failed in loss(): radius is negative\n"), HasSubstr(kWhere)));
}

TEST(RecipeGuard, ChecksWhatCallbacksReturn) {
  EXPECT_THAT(told(Slip::null_loss), HasSubstr("failed in objectives(): objective \"main\" has no loss"));
  EXPECT_THAT(told(Slip::no_terms), HasSubstr("failed in loss(): the loss has no terms"));
  EXPECT_THAT(told(Slip::no_gradient), HasSubstr("the loss has no gradient: it depends on no parameter of the objective"));
  EXPECT_THAT(told(Slip::long_count), HasSubstr("failed in loss(): the loss has a count of shape [1], expected a scalar"));
  EXPECT_THAT(told(Slip::long_report), HasSubstr("the loss has a report whose sum has the shape [3], expected a scalar"));
  RecipeGuard guard("flowers", std::make_unique<Slipping>(Slip::small_picture));
  try {
    (void)guard.draw();
    ADD_FAILURE();
  } catch (const RecipeError& error) {
    EXPECT_EQ(error.message().what, "recipe flowers failed in draw(): picture \"hard\" has 3 bytes, and 4 x 4 pixels need 48");
  }
  EXPECT_THROW(RecipeGuard("none", nullptr), RecipeError);
}

// Its rows would be 0, 1, 2 of epoch 0 in each step, and so would be the keys of its dropout.
TEST(RecipeGuard, ABatchThatPrepareMakesAnewIsRefused) {
  EXPECT_THAT(
      told(Slip::new_batch_in_prepare),
      testing::AllOf(
          StartsWith("RecipeError  recipe flowers failed in prepare(): it returned a new batch that does not say which samples"),
          HasSubstr("batch.set(name, value)"), HasSubstr("training batch 6 of epoch 1")));
  RecipeGuard guard("flowers", std::make_unique<Slipping>(Slip::new_batch_in_prepare));
  std::vector<Group> groups(1);
  groups[0].fields = {{"x", at::zeros({2, 4})}, {"label", at::zeros({2}, at::kLong)}};
  groups[0].positions = {0, 1};
  groups[0].indices = {7, 3};
  EXPECT_THROW((void)guard.prepare(Batch(std::move(groups))), RecipeError) << "the first batch of a run, too";
}

// Snapshots keep averages and the optimiser's state by name: two parameters named "weight" would be one there.
TEST(RecipeGuard, ParametersOfAGroupHaveTheirNamesInTheModel) {
  RecipeGuard guard("halves", std::make_unique<Halves>(/*shares=*/false, /*groups=*/true));
  const std::vector<Objective> objectives = guard.objectives();
  std::vector<std::string> names;
  for (const optim::ParameterGroup& group : objectives.at(0).parameters) {
    for (const optim::NamedParameter& parameter : group.parameters) names.push_back(parameter.name);
  }
  EXPECT_THAT(names, testing::ElementsAre("first.weight", "first.bias", "second.weight", "second.bias"));
}

TEST(RecipeGuard, AGroupThatWouldClimbIsRefused) {
  RecipeGuard guard("halves", std::make_unique<Halves>(/*shares=*/false, /*groups=*/true, /*scale=*/-1));
  try {
    (void)guard.objectives();
    ADD_FAILURE();
  } catch (const RecipeError& error) {
    EXPECT_EQ(error.message().what,
              "recipe halves failed in objectives(): a group of objective \"main\" has the "
              "learning_rate_scale -1");
  }
}

TEST(RecipeGuard, AParameterThatTwoLayersRegisterIsNamedByBothNames) {
  RecipeGuard guard("halves", std::make_unique<Halves>(/*shares=*/true, /*groups=*/false));
  try {
    (void)guard.objectives();
    ADD_FAILURE();
  } catch (const RecipeError& error) {
    EXPECT_EQ(error.message().what,
              "recipe halves failed in objectives(): \"first.weight\" and \"second.weight\" are one "
              "parameter, registered twice below model()");
  }
}

TEST(RecipeGuard, NamesTheSampleThatARowCameFrom) {
  for (const auto& [slip, row] : {std::pair{Slip::bad_label, 3}, std::pair{Slip::bad_label_in_prepare, 5}}) {
    EXPECT_THAT(told(slip),
                testing::AllOf(StartsWith("DataError  label 12 is not one of 10 classes\n"),
                               HasSubstr("sample " + std::to_string(row) + " (labels.csv row " + std::to_string(row) + ")"),
                               HasSubstr("training batch 6 of epoch 1")));
  }
  EXPECT_THAT(told(Slip::own_data_error),
              testing::AllOf(StartsWith("DataError  the sky is empty\n"), HasSubstr("recipe flowers, loss()")));
}

TEST(RecipeGuard, AStandardExceptionInMeasureSaysWhere) {
  RecipeGuard guard("flowers", std::make_unique<Slipping>(Slip::missing_output));
  metrics::Board board;
  try {
    guard.measure(batch_of_three(), StepResult{.losses = {Loss{}}}, board);
    ADD_FAILURE();
  } catch (const RecipeError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("failed in measure(): "), HasSubstr("training batch 6 of epoch 1"),
                                             Not(HasSubstr("mistake in Millrace"))));
  }
}

TEST(RecipeGuard, WantOfMemoryIsNoMistakeOfTheRecipe) {
  RecipeGuard guard("flowers", std::make_unique<Slipping>(Slip::out_of_memory));
  const Objective objective = guard.objectives().at(0);
  EXPECT_THROW((void)objective.loss(batch_of_three(), {}), std::bad_alloc);
}

TEST(RecipeGuard, TheConstructorAndTheBackwardPassAreToldToo) {
  const MakeRecipe make = [](const Json&, const Context&) -> std::unique_ptr<Recipe> { throw std::out_of_range("stoi"); };
  try {
    (void)make_guarded("flowers", make, Json::object(), {});
    ADD_FAILURE();
  } catch (const RecipeError& error) {
    EXPECT_EQ(error.message().what, "recipe flowers failed when it was made: stoi");
  }
  const at::Tensor weight = at::ones({3}).set_requires_grad(true);
  try {
    in_backward_pass("main", batch_of_three(), [&] {
      const at::Tensor hidden = weight.exp();
      const at::Tensor loss = (hidden * hidden).sum();
      {
        const at::NoGradGuard no_grad;
        hidden.add_(1);
      }
      loss.backward();
    });
    ADD_FAILURE();
  } catch (const RecipeError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("the backward pass of objective \"main\" failed: LibTorch refused"),
                                             HasSubstr("inplace"), HasSubstr("training batch 6 of epoch 1")));
  }
}

}  // namespace
}  // namespace millrace
