#include "millrace/train/recipe_guard.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <filesystem>
#include <new>
#include <system_error>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/fs.h"
#include "millrace/base/throw_site.h"
#include "millrace/device/tensor_memory.h"

namespace millrace {
namespace {

std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

void append_line(std::string& text, const std::string& line) {
  if (line.empty()) return;
  text += (text.empty() ? "" : "\n") + line;
}

// What the exception that is being handled says, where it is the recipe's to mend. Throws again what is not: errors of ours that
// say all themselves, errors of files, want of memory.
Message told() {
  try {
    throw;
  } catch (const RecipeError& error) {
    return error.message();
  } catch (const InternalError& error) {
    return {error.message().what, error.message().where, "look at what the callback hands to that function"};
  } catch (const Error&) {
    throw;
  } catch (const FsError&) {
    throw;
  } catch (const std::system_error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const c10::Error& error) {
    if (device::is_out_of_memory(error)) throw;
    return {"LibTorch refused an operation: " + first_line(error.what_without_backtrace()), "",
            "compare the shapes and types of the fields with what the operation takes"};
  } catch (const std::exception& error) {
    if (device::is_out_of_memory(error)) throw;
    return {first_line(error.what()), "", "the text is that of the exception; look at what the callback does with these fields"};
  }
}

// "at recipe.cpp:92", in a debug build.
std::string author_line() {
  static constexpr std::array<std::string_view, 12> kOurs = {"/millrace/base/",    "/millrace/config/", "/millrace/core/",
                                                             "/millrace/data/",    "/millrace/device/", "/millrace/kernels/",
                                                             "/millrace/metrics/", "/millrace/nn/",     "/millrace/optim/",
                                                             "/millrace/picture/", "/millrace/train/",  "/millrace/cli/"};
  const std::string place = throw_site(kOurs);
  return place.empty() ? "" : "at " + place;
}

[[noreturn]] void refuse(std::string what, std::string next) { throw RecipeError({std::move(what), "", std::move(next)}); }

void check(const Loss& loss, bool training) {
  if (loss.terms.empty()) refuse("the loss has no terms", "give it one, or return nullopt where the objective is absent");
  for (const LossTerm& term : loss.terms) {
    const std::string who = term.name.empty() ? "the loss" : "term " + quoted(term.name) + " of the loss";
    if (!term.sum.defined()) refuse(who + " has no sum", "add its values up: values.sum()");
    if (training && at::GradMode::is_enabled() && !term.sum.requires_grad()) {
      refuse(who + " has no gradient: none of the objective's parameters took part in it",
             "look for a detach(), item(), NoGradGuard or an integer on the way from the model to the sum");
    }
  }
}

void check(const Picture& picture) {
  const std::string who = "picture " + quoted(picture.name);
  if (picture.name.empty()) refuse("a picture has no name", "name it: its file is pictures/NAME.png");
  if (picture.width < 1 || picture.height < 1)
    refuse(who + " is " + std::to_string(picture.width) + " x " + std::to_string(picture.height), "give it a width and a height");
  const auto bytes = static_cast<std::uint64_t>(picture.width) * static_cast<std::uint64_t>(picture.height) * 3;
  if (picture.rgb.size() == bytes) return;
  refuse(who + " has " + std::to_string(picture.rgb.size()) + " bytes, and " + std::to_string(picture.width) + " x " +
             std::to_string(picture.height) + " pixels need " + std::to_string(bytes),
         "give three bytes a pixel, rows from the top");
}

}  // namespace

struct RecipeGuard::Site {
  const char* callback;
  const Batch* batch = nullptr;
  const std::string* fields = nullptr;  // of the batch, where it has them no more
  const std::string* objective = nullptr;
  const StepContext* step = nullptr;
  const Tensors* inputs = nullptr;
};

RecipeGuard::RecipeGuard(std::string name, std::unique_ptr<Recipe> recipe) : name_(std::move(name)), recipe_(std::move(recipe)) {
  if (!recipe_) throw RecipeError({"the entry of recipe " + name_ + " made no recipe", "Entry::make", "return one"});
}

template <class Call>
decltype(auto) RecipeGuard::in(const Site& site, Call&& call) const {
  try {
    const ThrowWatch watch;
    return std::forward<Call>(call)();
  } catch (const std::exception&) {
    rethrow(site);
  }
}

std::string RecipeGuard::failed_in(const Site& site) const { return "recipe " + name_ + " failed in " + site.callback + ": "; }

std::string RecipeGuard::where(const Site& site) const {
  std::string text;
  if (site.objective != nullptr) text = "objective " + quoted(*site.objective);
  if (site.batch != nullptr) {
    text += (text.empty() ? "" : ", ") + to_text(site.batch->origin());
    if (site.step != nullptr && site.step->training) text += ", step " + std::to_string(site.step->step + 1);
    append_line(text, "fields: " + (site.fields == nullptr ? to_text(*site.batch) : *site.fields));
  }
  if (site.inputs != nullptr) append_line(text, "input: " + to_text(*site.inputs));
  return text;
}

std::string RecipeGuard::sample_of(const Batch& batch, const RowError& error) const {
  const auto& datasets = datasets_.at(batch.split() == Split::train ? 0 : 1);
  const auto& groups = batch.groups();
  for (std::size_t g = 0; g < groups.size() && g < datasets.size(); ++g) {
    const bool meant = groups.size() == 1 || groups[g].name == error.group();
    if (!meant || error.row() < 0 || error.row() >= static_cast<std::int64_t>(groups[g].indices.size())) continue;
    const std::int64_t index = groups[g].indices[static_cast<std::size_t>(error.row())];
    std::string text = "sample " + std::to_string(index);
    if (!groups[g].name.empty()) text += " of data set " + quoted(groups[g].name);
    const std::string more = datasets[g].source->describe(index);
    return more.empty() ? text : text + " (" + more + ")";
  }
  return "";
}

void RecipeGuard::rethrow(const Site& site) const {
  try {
    throw;
  } catch (const RowError& error) {
    Message message = error.message();
    append_line(message.where, author_line());
    if (site.batch != nullptr) append_line(message.where, sample_of(*site.batch, error));
    append_line(message.where, "recipe " + name_ + ", " + site.callback);
    append_line(message.where, where(site));
    throw DataError(std::move(message));
  } catch (const DataError& error) {
    if (site.batch == nullptr) throw;
    Message message = error.message();
    append_line(message.where, "recipe " + name_ + ", " + site.callback + ", " + where(site));
    throw DataError(std::move(message));
  } catch (const std::exception&) {
    Message message = told();
    message.what = failed_in(site) + message.what;
    append_line(message.where, author_line());
    append_line(message.where, where(site));
    throw RecipeError(std::move(message));
  }
}

data::Pipeline RecipeGuard::data(Split split) {
  const bool training = split == Split::train;
  data::Pipeline pipeline =
      in({training ? "data(Split::train)" : "data(Split::validation)"}, [&] { return recipe_->data(split); });
  datasets_.at(training ? 0 : 1) = pipeline.datasets;
  return pipeline;
}

data::Pipeline RecipeGuard::test_data() {
  data::Pipeline pipeline = in({"test_data()"}, [&] { return recipe_->test_data(); });
  datasets_.at(1) = pipeline.datasets;  // their batches are of Split::validation
  return pipeline;
}

Batch RecipeGuard::prepare(Batch batch) {
  // The batch is gone when the recipe throws, and a copy would keep what prepare() may free.
  const std::string fields = to_text(batch);
  std::vector<Group> rows;
  for (const Group& group : batch.groups())
    rows.push_back({.name = group.name, .fields = {}, .positions = {}, .indices = group.indices});
  const Batch given(std::move(rows), batch.origin());
  return in({.callback = "prepare()", .batch = &given, .fields = &fields}, [&] { return recipe_->prepare(std::move(batch)); });
}

torch::nn::Module& RecipeGuard::model() {
  return in({"model()"}, [&]() -> torch::nn::Module& { return recipe_->model(); });
}

bool RecipeGuard::set_layout(Layout layout) {
  return in({"set_layout()"}, [&] { return recipe_->set_layout(layout); });
}

std::vector<Objective> RecipeGuard::objectives() {
  return in({"objectives()"}, [&] {
    std::vector<Objective> objectives = recipe_->objectives();
    for (Objective& objective : objectives) {
      if (!objective.loss) refuse("objective " + quoted(objective.name) + " has no loss", "set Objective::loss to a function");
      objective.loss = [this, name = objective.name, loss = std::move(objective.loss)](const Batch& batch,
                                                                                       const StepContext& context) {
        return in({.callback = "loss()", .batch = &batch, .objective = &name, .step = &context}, [&] {
          std::optional<Loss> result = loss(batch, context);
          if (result) check(*result, context.training);
          return result;
        });
      };
    }
    return objectives;
  });
}

void RecipeGuard::begin_validation() {
  in({"begin_validation()"}, [&] { recipe_->begin_validation(); });
}

void RecipeGuard::measure(const Batch& batch, const StepResult& result, metrics::Board& board) {
  const at::NoGradGuard no_grad;
  in({.callback = "measure()", .batch = &batch}, [&] { recipe_->measure(batch, result, board); });
}

void RecipeGuard::before_training() {
  in({"before_training()"}, [&] { recipe_->before_training(); });
}

State RecipeGuard::state() const {
  return in({"state()"}, [&] { return std::as_const(*recipe_).state(); });
}

void RecipeGuard::load_state(const State& state) {
  in({"load_state()"}, [&] { recipe_->load_state(state); });
}

Tensors RecipeGuard::predict(const Tensors& inputs) {
  const at::NoGradGuard no_grad;
  return in({.callback = "predict()", .inputs = &inputs}, [&] { return recipe_->predict(inputs); });
}

Facts RecipeGuard::facts() const {
  return in({"facts()"}, [&] { return std::as_const(*recipe_).facts(); });
}

std::vector<std::string> RecipeGuard::samples(std::int64_t step) {
  const at::NoGradGuard no_grad;
  return in({"samples()"}, [&] { return recipe_->samples(step); });
}

std::vector<Picture> RecipeGuard::draw() {
  const at::NoGradGuard no_grad;
  return in({"draw()"}, [&] {
    std::vector<Picture> pictures = recipe_->draw();
    for (const Picture& picture : pictures) check(picture);
    return pictures;
  });
}

std::unique_ptr<Recipe> make_guarded(const std::string& name, const MakeRecipe& make, const Json& config,
                                     const Context& context) {
  std::unique_ptr<Recipe> recipe;
  try {
    const ThrowWatch watch;
    recipe = make(config, context);
  } catch (const std::exception&) {
    Message message = told();
    message.what = "recipe " + name + " failed when it was made: " + message.what;
    append_line(message.where, author_line());
    throw RecipeError(std::move(message));
  }
  return std::make_unique<RecipeGuard>(name, std::move(recipe));
}

Recipe& unguarded(Recipe& recipe) {
  auto* guard = dynamic_cast<RecipeGuard*>(&recipe);
  return guard == nullptr ? recipe : guard->inner();
}

void in_backward_pass(const std::string& objective, const Batch& batch, const std::function<void()>& pass) {
  try {
    pass();
  } catch (const std::exception&) {
    Message message = told();
    message.what = "the backward pass of objective " + quoted(objective) + " failed: " + message.what;
    append_line(message.where, to_text(batch.origin()) + "\nfields: " + to_text(batch));
    throw RecipeError(std::move(message));
  }
}

}  // namespace millrace
