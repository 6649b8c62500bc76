// RecipeGuard wraps a recipe: an exception that leaves one of its callbacks then says in which callback, batch and sample it
// arose.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/train/recipe/recipe.h"

namespace millrace {

// Forwards every call to a recipe. An exception of the callback becomes
//   RecipeError   for InternalError and for an exception of LibTorch, of the standard library or of the recipe itself; the
//                 RecipeError has the recipe's name, the callback, the objective, the batch and its fields, and the author's line
//                 if known
//   DataError     unchanged, with the batch added; a RowError also with the sample, as the source describes it
//   itself        every other error of Millrace, errors of files, and out-of-memory, from which a run recovers
// Return values of callbacks are checked, see callback_checks.h; model() must return the same module each time; loss and measure
// must leave the fields of their batch as they are. A crash in a callback is reported as such (system/foreign_call.h). Calls
// cost less than a microsecond. As thread-safe as the recipe.
class RecipeGuard final : public Recipe {
 public:
  RecipeGuard(std::string name, std::unique_ptr<Recipe> recipe);
  [[nodiscard]] Recipe& inner() const noexcept { return *recipe_; }

  data::Pipeline data(Split split) override;
  data::Pipeline test_data() override;
  Batch prepare(Batch batch) override;
  torch::nn::Module& model() override;
  bool set_layout(Layout layout) override;
  std::vector<Objective> objectives() override;
  void begin_validation() override;
  void measure(const Batch& batch, const StepResult& result, metrics::Board& board) override;
  void end_validation(metrics::Board& board) override;
  void before_training() override;
  State state() const override;
  void load_state(const State& state) override;
  Tensors predict(const Tensors& inputs) override;
  Facts facts() const override;
  std::vector<std::string> samples(std::int64_t step) override;
  std::vector<Picture> draw() override;
  std::vector<TextTable> tables() override;

 private:
  struct Site;
  template <class Call>
  decltype(auto) in(const Site& site, Call&& call) const;
  [[noreturn]] void rethrow(const Site& site) const;
  [[nodiscard]] std::string where(const Site& site) const;
  [[nodiscard]] std::string sample_of(const Batch& batch, const RowError& error) const;
  [[nodiscard]] std::string failed_in(const Site& site) const;

  std::string name_;
  std::unique_ptr<Recipe> recipe_;
  const torch::nn::Module* model_ = nullptr;            // nullptr: model() was not called yet
  std::array<std::vector<data::Dataset>, 2> datasets_;  // the data sets of each split, for the names of samples in errors
};

using MakeRecipe = std::function<std::unique_ptr<Recipe>(const Json& config, const Context& context)>;
// Makes a recipe and wraps it in a RecipeGuard. Exceptions of the recipe's constructor are reported in the same form.
[[nodiscard]] std::unique_ptr<Recipe> make_guarded(const std::string& name, const MakeRecipe& make, const Json& config,
                                                   const Context& context);

// Runs `call`, which calls the member `function` of a recipe's Entry. Exceptions of `call` are reported like those of a
// callback.
void in_entry(const std::string& recipe, const std::string& function, const std::function<void()>& call);

// Runs `pass`, the backward pass of an objective's loss over a batch. Exceptions of `pass` are reported like those of a
// callback.
void in_backward_pass(const std::string& objective, const Batch& batch, const std::function<void()>& pass);

}  // namespace millrace
