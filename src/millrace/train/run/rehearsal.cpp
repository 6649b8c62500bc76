#include "millrace/train/run/rehearsal.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "millrace/base/clock.h"
#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/core/scalar_type.h"
#include "millrace/data/loader/odd_values.h"
#include "millrace/device/errors.h"
#include "millrace/metrics/board.h"
#include "millrace/system/signals.h"
#include "millrace/train/report/log_keys.h"
#include "millrace/train/run/loss_check.h"
#include "millrace/train/run/prediction.h"
#include "millrace/train/run/repeat_check.h"
#include "millrace/train/step/step_trials.h"

namespace millrace {
namespace {

constexpr std::size_t kListed = 6;  // a warning lists at most this number of names and ends with "and N more"

// Runs `part`. Returns false if memory ran out, which is no failure of the rehearsal, because the run itself recovers from it.
template <class Part>
bool within_memory(const Part& part) {
  try {
    part();
    return true;
  } catch (const std::exception& error) {
    if (!device::is_out_of_memory(error)) throw;
    return false;
  }
}

std::string names_of(const metrics::Means& means) {
  return means.empty() ? "none" : joined(means, ", ", &metrics::Means::value_type::first);
}

std::string nearest_of(const metrics::Means& means, const std::string& wrong) {
  std::vector<std::string> names;
  for (const auto& [name, value] : means) names.push_back(name);
  return nearest(wrong, names.data(), names.data() + names.size());
}

bool counts_nothing(const LossTerm& term) { return term.count.item<double>() == 0; }

// Throws RecipeError for a negative count, and for a loss whose counts are all 0, because the only gradient of such a loss would
// be NaN.
void check_counts(const Stepper& stepper, const StepResult& result) {
  for (std::size_t i = 0; i < result.losses.size(); ++i) {
    for (const LossTerm& term : result.losses[i].terms) {
      const auto count = term.count.item<double>();
      if (!(count < 0)) continue;
      throw RecipeError({"objective " + quoted(stepper.objective_name(i)) + " counts " + significant(count, 6) +
                             " values in the first training batch",
                         "LossTerm::count" + (term.name.empty() ? "" : " of term " + quoted(term.name)),
                         "give the number of values in the sum; to maximise a term, give it a negative weight"});
    }
  }
  for (std::size_t i = 0; i < result.losses.size(); ++i) {
    const auto& terms = result.losses[i].terms;
    if (terms.empty() || !std::ranges::all_of(terms, counts_nothing)) continue;
    throw RecipeError({"objective " + quoted(stepper.objective_name(i)) +
                           " counts no values in the first training batch: the count of " +
                           (terms.size() == 1 ? "its loss" : "each of its terms") + " is 0",
                       "LossTerm::count", "give the number of values that the sum adds up; look at masks and ignored labels"});
  }
}

// Returns two rows of the fields that predict() takes, or the name of an input that the batch lacks.
std::pair<Tensors, std::string> inputs_in(const Batch& batch, const Entry::Predicts& predicts) {
  constexpr std::int64_t kRows = 2;
  Tensors inputs;
  for (const PredictField& field : predicts.inputs) {
    for (const Group& group : batch.groups()) {
      const auto found = group.fields.find(field.name);
      if (found == group.fields.end() || found->second.dim() == 0) continue;
      const at::Tensor rows = found->second.narrow(0, 0, std::min(kRows, found->second.size(0)));
      const auto dtype = dtype_of(rows.scalar_type());
      if (dtype && takes(field, *dtype, rows.sizes().vec())) inputs[field.name] = rows.to(scalar_type_of(field.dtype));
    }
    if (!inputs.contains(field.name)) return {{}, field.name};
  }
  return {std::move(inputs), ""};
}

void rehearse_prediction(const Assembly& assembly, const Batch& batch, Rehearsal& rehearsal) {
  const Entry& entry = *assembly.setup().request().entry;
  if (entry.predicts.inputs.empty()) return;
  const auto [inputs, missing] = inputs_in(batch, entry.predicts);
  if (!missing.empty()) {
    rehearsal.prediction = "not tried: the batch has no field with the name, type and shape of the input " + quoted(missing);
    return;
  }
  const std::int64_t rows = inputs.begin()->second.size(0);
  if (rows == 0) return;
  const bool same = std::ranges::all_of(inputs, [&](const auto& input) { return input.second.size(0) == rows; });
  if (!same) {
    rehearsal.prediction = "not tried: the inputs of predict() have different numbers of rows in the batch";
    return;
  }
  const Tensors outputs = predict_batch(entry, assembly.recipe(), inputs, rows, assembly.stepper().autocast());
  rehearsal.prediction = to_text(inputs) + " -> " + to_text(outputs);
}

// Returns where the first value that is not finite is: " (field x of sample 5 is not finite)". "" = all values are finite.
std::string not_finite_in(const Batch& batch) {
  for (const Group& group : batch.groups()) {
    for (const auto& [name, tensor] : group.fields) {
      if (!tensor.is_floating_point() && !tensor.is_complex()) continue;
      const at::Tensor bad = at::isfinite(tensor).logical_not().nonzero();
      if (bad.size(0) == 0) continue;
      const auto row = static_cast<std::size_t>(bad[0][0].item<std::int64_t>());
      const bool known = row < group.indices.size();
      return " (field " + quoted(name) + " of " +
             (known ? "sample " + std::to_string(group.indices[row]) : "row " + std::to_string(row)) +
             (group.name.empty() ? "" : " of data set " + quoted(group.name)) + " is not finite)";
    }
  }
  return "";
}

// Warns about the first field that has an infinite value, or a value far beyond all other values of the field. Such a value may
// be in another unit or mark missing data.
void look_at_values(const Batch& batch, Rehearsal& rehearsal) {
  for (const Group& group : batch.groups()) {
    for (const auto& [name, tensor] : group.fields) {
      const auto dtype = dtype_of(tensor.scalar_type());
      if (!dtype || tensor.dim() == 0) continue;
      const at::Tensor host = tensor.detach().to(at::kCPU).contiguous();
      const auto odd = data::absurd_in({.dtype = *dtype,
                                        .shape = host.sizes().slice(1).vec(),
                                        .rows = host.size(0),
                                        .data = static_cast<const std::byte*>(host.const_data_ptr())});
      if (!odd) continue;
      const bool known = group.rows() == host.size(0) && odd->row < std::ssize(group.indices);
      rehearsal.warnings.push_back("field " + quoted(name) + " of " +
                                   (known ? "sample " + std::to_string(group.indices[static_cast<std::size_t>(odd->row)])
                                          : "row " + std::to_string(odd->row)) +
                                   (group.name.empty() ? "" : " of data set " + quoted(group.name)) + " holds " +
                                   (odd->usual == 0 ? "an infinite value"
                                                    : "a value of magnitude " + significant(odd->value, 3) +
                                                          ", while the median is " + significant(odd->usual, 3)) +
                                   ", at " + to_text(odd->at) + " (" + to_text(batch.origin()) +
                                   "): is it in another unit, or does it mark missing data?");
      return;
    }
  }
}

void warn(const std::string& text, Rehearsal& rehearsal) {
  if (!text.empty()) rehearsal.warnings.push_back(text);
}

// The names as a text: "a, b, c and 4 more".
std::string listed(const std::vector<std::string>& names) {
  std::string list;
  for (std::size_t i = 0; i < std::min(names.size(), kListed); ++i) list += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kListed) list += " and " + std::to_string(names.size() - kListed) + " more";
  return list;
}

std::string parameters_that(const std::vector<std::string>& names, const char* one, const char* several) {
  return std::to_string(names.size()) + (names.size() == 1 ? " parameter " : " parameters ") +
         (names.size() == 1 ? one : several);
}

// Adds the time between construction and destruction to `seconds`.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds), begin_(steady_seconds()) {}
  ~Stopwatch() { seconds_ += steady_seconds() - begin_; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& seconds_;
  double begin_;
};

// Returns the evaluation of the batch and the seconds that it took.
std::pair<StepResult, double> timed_evaluation(Stepper& stepper, const Batch& batch) {
  const double begin = steady_seconds();
  StepResult result = stepper.evaluate(batch);
  for (const Loss& loss : result.losses)
    for (const LossTerm& term : loss.terms) (void)term.sum.item<double>();  // item() waits for a GPU
  return {std::move(result), steady_seconds() - begin};
}

// Checks the sums of a loss by two more passes. `seconds`: time of the pass that gave `result`. The check is left out if the two
// passes would take longer than two steps and longer than two seconds, because a validation batch of whole volumes can take many
// times as long as a step on crops.
void check_sums(Stepper& stepper, const Batch& batch, const StepResult& result, double seconds, Rehearsal& rehearsal) {
  constexpr double kShortSeconds = 1;
  if (seconds > std::max(rehearsal.step_seconds, kShortSeconds)) {
    rehearsal.unchecked.push_back("the loss of a batch that takes " + human_duration(seconds) + " to evaluate; a step takes " +
                                  human_duration(rehearsal.step_seconds));
    return;
  }
  const Stopwatch watch(rehearsal.check_seconds);
  LossCheck check = check_adds_up(stepper, batch, result);
  rehearsal.unchecked = std::move(check.unchecked);
  std::ranges::move(check.warnings, std::back_inserter(rehearsal.warnings));
}

// Returns the first batch. Reads the batch a second time to compare, unless reading takes long.
std::optional<Batch> first_batch(const Assembly& assembly, Split split, Rehearsal& rehearsal) {
  constexpr double kSeconds = 0.5;
  const double begin = steady_seconds();
  std::optional<Batch> batch = assembly.trial_batch(split);
  if (!batch) return batch;
  const bool is_quick = steady_seconds() - begin <= kSeconds;
  const Stopwatch watch(rehearsal.check_seconds);
  if (is_quick) warn(check_batch_repeats(assembly, split, *batch), rehearsal);
  look_at_values(*batch, rehearsal);
  return batch;
}

// Throws RecipeError if a value of the recipe has the name of a key of the log. `what`: "metric" or "objective"; `where`: the
// place in the recipe that gives the name.
void refuse_log_keys(const metrics::Means& means, const std::string& what, const std::string& where) {
  for (const auto& [name, value] : means) {
    if (!is_log_key(name)) continue;
    throw RecipeError({what + " " + quoted(name) + " has the name of a value that Millrace itself writes into log.jsonl or " +
                           "history.csv, so one of the two would be lost",
                       where, "give it another name; these are taken: " + joined(kLogKeys, ", ")});
  }
}

void rehearse_training(Assembly& assembly, Rehearsal& rehearsal) {
  const std::optional<Batch> batch = first_batch(assembly, Split::train, rehearsal);
  if (!batch) return;
  Stepper& stepper = assembly.stepper();
  const double begin = steady_seconds();
  const StepTrials::RehearsedStep rehearsed = StepTrials(stepper).rehearse(*batch);
  rehearsal.step_seconds = steady_seconds() - begin;
  rehearsal.training_rows = batch->rows();
  const auto is_absent = [](const Loss& loss) { return loss.terms.empty(); };
  if (std::ranges::all_of(rehearsed.result.losses, is_absent)) refuse_absence(*batch);
  check_counts(stepper, rehearsed.result);
  warn(probabilities_in(rehearsed.result), rehearsal);
  Recipe& recipe = assembly.recipe();
  const bool training = recipe.model().is_training();
  recipe.model().eval();
  stop_if_signalled();
  rehearse_prediction(assembly, *batch, rehearsal);
  if (assembly.loaders().validation() == nullptr) {
    const at::NoGradGuard no_grad;
    const auto [result, seconds] = timed_evaluation(stepper, *batch);
    check_sums(stepper, *batch, result, seconds, rehearsal);
  }
  recipe.model().train(training);
  metrics::Board board;
  for (std::size_t i = 0; i < rehearsed.result.losses.size(); ++i)
    board.add(stepper.objective_name(i), rehearsed.result.losses[i]);
  const metrics::Means losses = board.means();
  refuse_log_keys(losses, "objective", "Objective::name");
  if (assembly.config().log.train_metrics) recipe.measure(*batch, rehearsed.result, board);
  rehearsal.losses = board.means();
  for (const auto& [name, value] : losses) {  // losses only, because a metric may be undefined for a single batch
    if (!std::isfinite(value))
      rehearsal.warnings.push_back("the first training batch gives no finite " + name + ": " + significant(value, 4) +
                                   not_finite_in(*batch));
  }
  if (const auto& names = rehearsed.without_gradient; !names.empty())
    warn(parameters_that(names, "gets", "get") + " no gradient from the first batch: " + listed(names) +
             " (unused in the forward pass, or cut off by detach()?)",
         rehearsal);
  if (const auto& names = rehearsed.in_no_objective; !names.empty())
    warn(parameters_that(names, "is", "are") + " in no objective and will not learn: " + listed(names) +
             ". Are they missing in Objective::parameters, or made in a forward pass instead of the constructor? "
             "If they must not change, call set_requires_grad(false) on them",
         rehearsal);
}

// Throws RecipeError if the recipe measures a metric under the name of a loss. The trainer adds losses to the same board, so the
// two would become one mean, by which snapshots are chosen. `losses`, `all`: states of the board before and after the recipe's
// metrics.
void refuse_names_of_losses(const Json& losses, const Json& all) {
  for (const Json& loss : losses.at("entries")) {
    const auto is_it = [&](const Json& entry) { return entry.at("name") == loss.at("name"); };
    const auto now = std::ranges::find_if(all.at("entries"), is_it);
    // Compared as text, because NaN is not equal to NaN.
    if (now == all.at("entries").end() || now->dump() == loss.dump()) continue;
    throw RecipeError({"metric " + quoted(loss.at("name").get<std::string>()) +
                           " has the name of a loss that the trainer measures itself, so both would be averaged together",
                       "Recipe::measure() or end_validation()", "leave the metric out, or give it another name"});
  }
}

void rehearse_validation(Assembly& assembly, Rehearsal& rehearsal) {
  const std::optional<Batch> batch = first_batch(assembly, Split::validation, rehearsal);
  if (!batch) return;
  Recipe& recipe = assembly.recipe();
  const bool training = recipe.model().is_training();
  const at::NoGradGuard no_grad;
  recipe.model().eval();
  recipe.begin_validation();
  const auto [result, seconds] = timed_evaluation(assembly.stepper(), *batch);
  metrics::Board board;
  for (std::size_t i = 0; i < result.losses.size(); ++i)
    board.add("val_" + assembly.stepper().objective_name(i), result.losses[i]);
  const Json losses = board.state();
  recipe.measure(*batch, result, board);
  recipe.end_validation(board);
  rehearsal.metrics = board.means();
  refuse_names_of_losses(losses, board.state());
  refuse_log_keys(rehearsal.metrics, "metric", "Recipe::measure() or end_validation()");
  rehearsal.validation_rows = batch->rows();
  if (assembly.config().log.images) {
    for (const Picture& picture : recipe.draw())
      rehearsal.pictures.push_back(picture.name + " " + std::to_string(picture.width) + "x" + std::to_string(picture.height));
  }
  {
    const Stopwatch watch(rehearsal.check_seconds);
    warn(check_metrics_repeat(recipe, *batch, result, board), rehearsal);
  }
  for (std::size_t i = 0; i < result.losses.size(); ++i) {
    const auto& terms = result.losses[i].terms;
    if (!terms.empty() && std::ranges::all_of(terms, counts_nothing))
      warn("objective " + quoted(assembly.stepper().objective_name(i)) + " counts no values in " + to_text(batch->origin()) +
               ": such a loss can't be judged; look at masks and ignored labels",
           rehearsal);
  }
  check_sums(assembly.stepper(), *batch, result, seconds, rehearsal);
  recipe.model().train(training);
}

// Throws ConfigError if the config keeps the worst values of the judged metric. Otherwise only the first validation would show
// this mistake.
void check_direction(const SnapshotConfig& snapshot, const metrics::Means& metrics) {
  using BestIs = metrics::Means::BestIs;
  const BestIs known = metrics.best_is_of(snapshot.best_metric);
  const bool highest = snapshot.best_is == SnapshotConfig::BestIs::highest;
  if (known == BestIs::unknown || (known == BestIs::highest) == highest) return;
  const auto word = [](bool is_highest) { return is_highest ? std::string("highest") : std::string("lowest"); };
  throw ConfigError({"the best " + snapshot.best_metric + " is the " + word(!highest) + " value, but the config keeps the " +
                         word(highest) + " as the best",
                     "snapshot.best_is = " + word(highest), "--snapshot.best_is=" + word(!highest)});
}

// Says that the config keeps the highest loss as the best; "" = the config does not.
std::string worst_loss_kept(const Assembly& assembly) {
  const SnapshotConfig& snapshot = assembly.config().snapshot;
  if (!snapshot.best_metric.empty() || snapshot.best_is != SnapshotConfig::BestIs::highest) return "";
  return "snapshot.best_is=highest without snapshot.best_metric: the highest val_" + assembly.stepper().objective_name(0) +
         " decides what is best, but the highest loss is the worst (name the intended metric, such as "
         "snapshot.best_metric=accuracy)";
}

void check_names(const Assembly& assembly, const Rehearsal& rehearsal) {
  const auto& snapshot = assembly.config().snapshot;
  if (!snapshot.best_metric.empty() && !rehearsal.metrics.contains(snapshot.best_metric)) {
    const std::string near = nearest_of(rehearsal.metrics, snapshot.best_metric);
    throw ConfigError(
        {"the validation gives no metric " + quoted(snapshot.best_metric), "snapshot.best_metric",
         (near.empty() ? "" : "did you mean " + quoted(near) + "? ") + ("it gives " + names_of(rehearsal.metrics))});
  }
  if (!snapshot.best_metric.empty()) check_direction(snapshot, rehearsal.metrics);
  for (const std::string& column : assembly.recipe().facts().history) {
    if (rehearsal.metrics.contains(column)) continue;
    const std::string near = nearest_of(rehearsal.metrics, column);
    throw RecipeError(
        {"Facts::history has a column " + quoted(column) + ", but no metric has that name", "Facts::history",
         (near.empty() ? "" : "did you mean " + quoted(near) + "? ") + ("measure() gives " + names_of(rehearsal.metrics))});
  }
}

std::string values_of(const metrics::Means& means) {
  std::string text;
  for (const auto& [name, value] : means) {
    if (means.shown_on_console(name)) text += (text.empty() ? "" : "  ") + name + " " + significant(value, 4);
  }
  return text;
}

[[noreturn]] void refuse_without_validation(const std::string& where, const std::string& next) {
  throw ConfigError({"there is no validation: the recipe has no validation data", where, "give it validation data, or " + next});
}

// Throws if an objective's schedule waits for a plateau of the validation loss; called for a run without validation. All
// objectives are checked, because a recipe may give an objective another schedule than that of the config.
void require_no_plateau(const Stepper& stepper) {
  for (const ObjectiveStep& objective : stepper.objectives()) {
    if (objective.spec().optim.schedule != optim::ScheduleKind::plateau) continue;
    refuse_without_validation(
        "optim.schedule = plateau" +
            (stepper.objectives().size() == 1 ? std::string() : " of objective " + quoted(objective.spec().name)),
        "choose another schedule, such as optim.schedule=constant");
  }
}

}  // namespace

void require_judge(const Assembly& assembly) {
  if (assembly.loaders().validation() != nullptr) return;
  const RunConfig& config = assembly.config();
  if (!config.snapshot.best_metric.empty()) refuse_without_validation("snapshot.best_metric", "remove the key");
  if (config.train.early_stop_patience > 0) refuse_without_validation("train.early_stop_patience", "remove the key");
}

Rehearsal rehearse(Assembly& assembly) {
  static const telemetry::Counter taken("rehearsal");
  taken.add(1);
  const double begin = steady_seconds();
  Rehearsal rehearsal;
  stop_if_signalled();
  if (!within_memory([&] { rehearse_training(assembly, rehearsal); }))
    rehearsal.warnings.emplace_back("memory ran out in the rehearsal of a training batch; the run will try to use less memory");
  stop_if_signalled();
  if (assembly.loaders().validation() != nullptr) {
    const bool whole = within_memory([&] { rehearse_validation(assembly, rehearsal); });
    if (whole && rehearsal.validation_rows > 0) check_names(assembly, rehearsal);
    warn(worst_loss_kept(assembly), rehearsal);
  } else {
    require_judge(assembly);
    require_no_plateau(assembly.stepper());
  }
  static_cast<void>(assembly.recipe().state());  // called now to see whether it fails, because the first snapshot will call it
  rehearsal.seconds = steady_seconds() - begin;
  return rehearsal;
}

std::string to_text(const Rehearsal& rehearsal) {
  const auto line = [](const std::string& name, const std::string& text) {
    return "  " + name + std::string(name.size() < 12 ? 12 - name.size() : 1, ' ') + text + "\n";
  };
  const auto milliseconds = [](double seconds) { return significant(seconds * 1e3, 3) + " ms"; };
  std::string text = "rehearsal in " + human_duration(rehearsal.seconds) + ", of which forward and backward " +
                     milliseconds(rehearsal.step_seconds) + " and checks " + milliseconds(rehearsal.check_seconds) + "\n";
  text += line("training", rehearsal.training_rows == 0
                               ? "no batch"
                               : std::to_string(rehearsal.training_rows) + " rows  " + values_of(rehearsal.losses));
  text += line("validation", rehearsal.validation_rows == 0
                                 ? "no batch"
                                 : std::to_string(rehearsal.validation_rows) + " rows  " + values_of(rehearsal.metrics));
  if (!rehearsal.pictures.empty()) text += line("pictures", joined(rehearsal.pictures, ", "));
  if (!rehearsal.prediction.empty()) text += line("predict", rehearsal.prediction);
  if (rehearsal.training_rows + rehearsal.validation_rows > 0) {
    text += line("adds up", rehearsal.unchecked.empty() ? "checked with two half batches, and with the rows in reverse order"
                                                        : "not checked: " + joined(rehearsal.unchecked, "; "));
  }
  for (const std::string& warning : rehearsal.warnings) text += line("warning", warning);
  text.pop_back();
  return text;
}

}  // namespace millrace
