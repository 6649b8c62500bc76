#include "millrace/train/recipe/recipe_guard.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <filesystem>
#include <new>
#include <system_error>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/fs.h"
#include "millrace/base/throw_site.h"
#include "millrace/device/errors.h"
#include "millrace/system/foreign_call.h"
#include "millrace/system/signals.h"
#include "millrace/train/recipe/detail/callback_checks.h"
#include "millrace/train/recipe/detail/refusals.h"

namespace millrace {
namespace {

std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

void append_line(std::string& text, const std::string& line) {
  if (line.empty()) return;
  text += (text.empty() ? "" : "\n") + line;
}

// The message for an exception that is not a std::exception.
Message message_of_other() {
  const std::string next = "throw an error derived from std::exception, e.g. DataError (base/error.h), which says where";
  try {
    throw;
  } catch (const char* text) {
    return {"it threw a text: " + first_line(text), "", next};
  } catch (const std::string& text) {
    return {"it threw a text: " + first_line(text), "", next};
  } catch (int number) {
    return {"it threw the number " + std::to_string(number), "", next};
  } catch (...) {
    return {"it threw something that is not a std::exception", "", next};
  }
}

// The message of the current exception, if the recipe's author can fix its cause. Rethrows all other exceptions: file errors,
// out-of-memory, a lost device, and Millrace's own errors, whose messages are complete.
Message caught_message() {
  try {
    throw;
  } catch (const RecipeError& error) {
    return error.message();
  } catch (const InternalError& error) {
    return {error.message().what, error.message().where, "look at the arguments that the callback passes to that function"};
  } catch (const Error&) {
    throw;
  } catch (const Stopped&) {
    throw;
  } catch (const FsError&) {
    throw;
  } catch (const std::system_error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const c10::Error& error) {
    if (device::kind_of(error) != device::ErrorKind::other) throw;
    return refusal_of(first_line(error.what_without_backtrace()));
  } catch (const std::exception& error) {
    if (device::kind_of(error) != device::ErrorKind::other) throw;
    const std::string text = first_line(error.what());
    if (text == "map::at")
      return {"at() was asked for a name that the map does not have (map::at)", "",
              "compare the names in the callback with the names of the fields"};
    return {text, "", "this is the text of the exception; look at the code of the callback"};
  } catch (...) {
    return message_of_other();
  }
}

// The author's source line in the stack trace, such as "at recipe.cpp:92"; "" outside a debug build.
std::string author_line() {
  static constexpr std::array<std::string_view, 12> kOurs = {
      "/src/millrace/base/",   "/src/millrace/config/",  "/src/millrace/core/",    "/src/millrace/data/",
      "/src/millrace/device/", "/src/millrace/kernels/", "/src/millrace/metrics/", "/src/millrace/nn/",
      "/src/millrace/optim/",  "/src/millrace/picture/", "/src/millrace/train/",   "/src/millrace/cli/"};
  const std::string place = throw_site(kOurs);
  return place.empty() ? "" : "at " + place;
}

// Remembers for each tensor of a batch LibTorch's count of in-place operations.
class FieldVersions {
 public:
  explicit FieldVersions(const Batch& batch) : batch_(batch) {
    for_each([&](const Group&, const std::string&, const at::Tensor& tensor) { before_.push_back(version_of(tensor)); });
  }
  // Throws RecipeError for the first field that was changed since this object was made.
  void require_unchanged() const {
    auto before = before_.begin();
    for_each([&](const Group& group, const std::string& name, const at::Tensor& tensor) {
      if (before == before_.end() || *before++ == version_of(tensor)) return;
      throw RecipeError({"field " + quoted(name) + (group.name.empty() ? "" : " of group " + quoted(group.name)) +
                             " of the batch was changed in place",
                         "",
                         "write x = batch[" + quoted(name) + "] * 2, not batch[" + quoted(name) +
                             "].mul_(2): a step may compute a batch more than once; change fields for good in prepare()"});
    });
  }

 private:
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (const Group& group : batch_.groups()) {
      for (const auto& [name, tensor] : group.fields) visit(group, name, tensor);
    }
  }
  static std::uint32_t version_of(const at::Tensor& tensor) {
    return tensor.defined() && !tensor.is_inference() ? static_cast<std::uint32_t>(tensor._version()) : 0;
  }
  const Batch& batch_;
  std::vector<std::uint32_t> before_;
};

// Completes message.where. If the message names no place yet, the place becomes `otherwise`. If the author's source line is
// known, it is put first.
void complete_where(Message& message, const std::string& otherwise) {
  if (message.where.empty()) message.where = otherwise;
  std::string line = author_line();
  append_line(line, message.where);
  message.where = std::move(line);
}

}  // namespace

struct RecipeGuard::Site {
  const char* callback;
  const Batch* batch = nullptr;
  const std::string* fields = nullptr;  // the fields of the batch in words, in case the batch itself has lost them
  const std::string* objective = nullptr;
  const StepContext* step = nullptr;
  const Tensors* inputs = nullptr;
  const StepResult* result = nullptr;

  // A call: the recipe's name and a site. describe() writes them as "loss() of recipe mine, objective "main", training batch 3
  // of epoch 0, step 4".
  using Call = std::pair<const std::string&, const Site&>;
  static void describe(const void* call, HandlerText& text) noexcept;
};

void RecipeGuard::Site::describe(const void* call, HandlerText& text) noexcept {
  const auto& [recipe, site] = *static_cast<const Call*>(call);
  text.add(site.callback).add(" of recipe ").add(recipe);
  if (site.objective != nullptr) text.add(", objective \"").add(*site.objective).add("\"");
  if (site.batch != nullptr) {
    const BatchOrigin& origin = site.batch->origin();
    const bool training = origin.split == Split::train;
    text.add(training ? ", training batch " : ", validation batch ").add(static_cast<std::int64_t>(origin.index));
    if (training) text.add(" of epoch ").add(static_cast<std::int64_t>(origin.epoch));
  }
  if (site.step != nullptr && site.step->training) text.add(", step ").add(site.step->step + 1);
}

RecipeGuard::RecipeGuard(std::string name, std::unique_ptr<Recipe> recipe) : name_(std::move(name)), recipe_(std::move(recipe)) {
  if (!recipe_) throw RecipeError({"the entry of recipe " + name_ + " made no recipe", "Entry::make", "return a recipe"});
}

template <class Call>
decltype(auto) RecipeGuard::in(const Site& site, Call&& call) const {
  try {
    const Site::Call called(name_, site);
    const ForeignCall foreign(&Site::describe, &called);
    const ThrowWatch watch;
    return std::forward<Call>(call)();
  } catch (...) {
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
  if (site.result != nullptr)
    append_line(text, "outputs: " + joined(site.result->losses, "; ", [](const Loss& loss) { return to_text(loss.outputs); }));
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
    if (!more.empty()) text.append(" (").append(more).append(")");
    return text;
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
    Message message = error.message();
    const std::string more = where(site);
    append_line(message.where, "recipe " + name_ + ", " + site.callback + (more.empty() ? "" : ", " + more));
    throw DataError(std::move(message));
  } catch (...) {
    Message message = caught_message();
    const bool no_outputs =
        site.result != nullptr && std::ranges::all_of(site.result->losses, [](const Loss& loss) { return loss.outputs.empty(); });
    if (no_outputs && message.what.find("map::at") != std::string::npos)
      message.next =
          "the loss gives no outputs: return Loss{.terms = {term}, .outputs = {{\"logits\", logits}}}, with the name "
          "that measure() asks for";
    message.what = failed_in(site) + message.what;
    append_line(message.where, where(site));
    complete_where(message, std::string("Recipe::") + site.callback);
    throw RecipeError(std::move(message));
  }
}

data::Pipeline RecipeGuard::data(Split split) {
  const bool training = split == Split::train;
  data::Pipeline pipeline = in({training ? "data(Split::train)" : "data(Split::validation)"}, [&] {
    data::Pipeline made = recipe_->data(split);
    check_pipeline(made);
    return made;
  });
  datasets_.at(training ? 0 : 1) = pipeline.datasets;
  return pipeline;
}

data::Pipeline RecipeGuard::test_data() {
  data::Pipeline pipeline = in({"test_data()"}, [&] {
    data::Pipeline made = recipe_->test_data();
    check_pipeline(made);
    return made;
  });
  datasets_.at(1) = pipeline.datasets;  // also for test data, because batches of test data have Split::validation
  return pipeline;
}

Batch RecipeGuard::prepare(Batch batch) {
  // The batch is described before the call. After an exception the batch is gone, and a copy would hold memory that prepare()
  // may free.
  const std::string fields = to_text(batch);
  std::vector<Group> rows;
  for (const Group& group : batch.groups())
    rows.push_back({.name = group.name, .fields = {}, .positions = group.positions, .indices = group.indices});
  const Batch given(std::move(rows), batch.origin());
  return in({.callback = "prepare()", .batch = &given, .fields = &fields}, [&] {
    Batch prepared = recipe_->prepare(std::move(batch));
    check_prepared(prepared);
    check_same_samples(given, prepared);
    return prepared;
  });
}

torch::nn::Module& RecipeGuard::model() {
  return in({"model()"}, [&]() -> torch::nn::Module& {
    torch::nn::Module& model = recipe_->model();
    if (model_ != nullptr && model_ != &model)
      throw RecipeError({"model() returned another module than before", "", "make the model once and keep it as a member"});
    model_ = &model;
    return model;
  });
}

bool RecipeGuard::set_layout(Layout layout) {
  return in({"set_layout()"}, [&] { return recipe_->set_layout(layout); });
}

std::vector<Objective> RecipeGuard::objectives() {
  return in({"objectives()"}, [&] {
    std::vector<Objective> objectives = recipe_->objectives();
    check_objectives(objectives, model());
    name_as_in_model(objectives, model());
    for (Objective& objective : objectives) {
      objective.loss = [this, name = objective.name, loss = std::move(objective.loss)](const Batch& batch,
                                                                                       const StepContext& context) {
        return in({.callback = "loss()", .batch = &batch, .objective = &name, .step = &context}, [&] {
          const FieldVersions versions(batch);
          std::optional<Loss> result = loss(batch, context);
          versions.require_unchanged();
          if (result) check_loss(*result, context.training);
          return result;
        });
      };
      if (!objective.after_update) continue;
      objective.after_update = [this, name = objective.name,
                                after = std::move(objective.after_update)](const StepContext& context) {
        in({.callback = "after_update()", .objective = &name, .step = &context}, [&] { after(context); });
      };
    }
    return objectives;
  });
}

void RecipeGuard::end_validation(metrics::Board& board) {
  in({"end_validation()"}, [&] { recipe_->end_validation(board); });
}

void RecipeGuard::begin_validation() {
  in({"begin_validation()"}, [&] { recipe_->begin_validation(); });
}

void RecipeGuard::measure(const Batch& batch, const StepResult& result, metrics::Board& board) {
  const at::NoGradGuard no_grad;
  in({.callback = "measure()", .batch = &batch, .result = &result}, [&] {
    const FieldVersions versions(batch);
    recipe_->measure(batch, result, board);
    versions.require_unchanged();
  });
}

void RecipeGuard::before_training() {
  in({"before_training()"}, [&] { recipe_->before_training(); });
}

State RecipeGuard::state() const {
  return in({"state()"}, [&] {
    State state = std::as_const(*recipe_).state();
    check_state(state);
    return state;
  });
}

void RecipeGuard::load_state(const State& state) {
  in({"load_state()"}, [&] { recipe_->load_state(state); });
}

Tensors RecipeGuard::predict(const Tensors& inputs) {
  const at::NoGradGuard no_grad;
  return in({.callback = "predict()", .inputs = &inputs}, [&] { return recipe_->predict(inputs); });
}

Facts RecipeGuard::facts() const {
  return in({"facts()"}, [&] {
    Facts facts = std::as_const(*recipe_).facts();
    check_facts(facts);
    return facts;
  });
}

std::vector<std::string> RecipeGuard::samples(std::int64_t step) {
  const at::NoGradGuard no_grad;
  return in({"samples()"}, [&] { return recipe_->samples(step); });
}

std::vector<Picture> RecipeGuard::draw() {
  const at::NoGradGuard no_grad;
  return in({"draw()"}, [&] {
    std::vector<Picture> pictures = recipe_->draw();
    check_pictures(pictures);
    return pictures;
  });
}

std::vector<TextTable> RecipeGuard::tables() {
  const at::NoGradGuard no_grad;
  return in({"tables()"}, [&] {
    std::vector<TextTable> tables = recipe_->tables();
    check_tables(tables);
    return tables;
  });
}

std::unique_ptr<Recipe> make_guarded(const std::string& name, const MakeRecipe& make, const Json& config,
                                     const Context& context) {
  std::unique_ptr<Recipe> recipe;
  try {
    const ForeignCall foreign("a recipe's constructor");
    const ThrowWatch watch;
    recipe = make(config, context);
  } catch (...) {
    Message message = caught_message();
    message.what = "recipe " + name + " failed when it was made: " + message.what;
    complete_where(message, "Entry::make, which calls its constructor");
    throw RecipeError(std::move(message));
  }
  return std::make_unique<RecipeGuard>(name, std::move(recipe));
}

void in_entry(const std::string& recipe, const std::string& function, const std::function<void()>& call) {
  try {
    const ForeignCall foreign("a function of a recipe's Entry");
    const ThrowWatch watch;
    call();
  } catch (...) {
    Message message = caught_message();
    message.what = "recipe " + recipe + " failed in Entry::" + function + ": " + message.what;
    complete_where(message, "Entry::" + function + " of recipe " + recipe);
    throw RecipeError(std::move(message));
  }
}

Recipe& unguarded(Recipe& recipe) {
  auto* guard = dynamic_cast<RecipeGuard*>(&recipe);
  return guard == nullptr ? recipe : guard->inner();
}

void in_backward_pass(const std::string& objective, const Batch& batch, const std::function<void()>& pass) {
  try {
    pass();
  } catch (...) {
    Message message = caught_message();
    message.what = "the backward pass of objective " + quoted(objective) + " failed: " + message.what;
    append_line(message.where, to_text(batch.origin()) + "\nfields: " + to_text(batch));
    throw RecipeError(std::move(message));
  }
}

}  // namespace millrace
