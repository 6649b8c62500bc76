// The class that a user writes: data, model, loss, metrics. No loop, no device code, no precision code, no callbacks.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/core/batch.h"
#include "millrace/data/loader/source.h"
#include "millrace/metrics/board.h"
#include "millrace/nn/fused.h"
#include "millrace/optim/optimizer.h"
#include "millrace/picture/picture.h"

namespace torch::nn {
class Module;
}

namespace millrace {

class Switches;                    // train/recipe/switchboard.h
struct RunConfig;                  // train/recipe/config.h
enum class Layout : std::uint8_t;  // train/recipe/config.h

// Where a recipe may read and write.
struct RecipeFolders {
  std::filesystem::path run_folder;    // the run's files, to be read; empty: predict, a measurement, a run that starts over
  std::filesystem::path new_files;     // files that must stay in the run folder are written here before the first step; empty: no
                                       // such files may be written
  std::filesystem::path cache_folder;  // where token files and the like are kept; empty: no cache
  bool writes = true;                  // false: looking only; nothing is written anywhere, caches may be read
  bool plan_only = false;              // no step will be made: a fit that only steps need may be left out
};

// What the trainer passes to a recipe's constructor.
struct Context {
  at::Device device = at::kCPU;
  Ranks ranks;
  const RunConfig* config = nullptr;   // the sections that all recipes share; never null in a run; lives as long as the run
  const Switches* switches = nullptr;  // which optimisations are on; lives as long as the run
  RecipeFolders places;
  std::uint64_t seed = 0;
  std::function<void(const std::string&)> notice;  // see note()

  // Shows a line about a choice or a fact at start, and keeps it in the log.
  void note(const std::string& text) const {
    if (notice) notice(text);
  }
  // Whether a row of the switchboard is on; without a switchboard all rows are.
  [[nodiscard]] bool on(std::string_view row) const;
  [[nodiscard]] nn::Fused fused() const;  // switches of fused operations, for the functions of nn
};

// A number of the host that grows from step to step; converts to T. Its readers are noticed: a device that records a step repeats
// what they made of it, so the step is recorded anew for another number (train/step/step_graph.h).
template <class T>
class HostNumber {
 public:
  HostNumber(T value = {}, bool* is_read = nullptr) : value_(value), is_read_(is_read) {}
  operator T() const {
    if (is_read_ != nullptr) *is_read_ = true;
    return value_;
  }
  // value > limit. Once this is true it stays true, and nothing is recorded anew.
  [[nodiscard]] bool is_above(T limit) const { return value_ > limit || static_cast<T>(*this) > limit; }

 private:
  T value_;
  bool* is_read_;  // may be null
};

// Numbers of the host that a device keeps for a step that it has recorded.
class StepNumbers {
 public:
  using Number = std::function<double(std::int64_t step, std::uint64_t epoch)>;
  virtual ~StepNumbers() = default;
  // A scalar f64 on the device that is number(step, epoch) in each step.
  [[nodiscard]] virtual at::Tensor place_of(Number number) = 0;
};

struct StepContext {
  HostNumber<std::int64_t> step;    // 0-based
  HostNumber<std::uint64_t> epoch;  // 0-based, of the batch
  std::int64_t total_steps = 0;     // length of the run; 0 = open end, or an evaluation without a run
  bool training = true;
  const Tensors* earlier = nullptr;  // detached outputs of the previous objectives for the same micro-batch
  StepNumbers* numbers = nullptr;    // see number(); null: the step is not recorded

  // number(step, epoch) as a scalar f64 on `device`, for a weight that changes from step to step: a recorded step is not recorded
  // anew for it. `number` depends on nothing else that changes.
  [[nodiscard]] at::Tensor number(const StepNumbers::Number& number, at::Device device) const;
};

// A loss, the parameters that it updates and its optimiser settings. Most recipes have one objective; an adversarial pair has
// two, run in order for each micro-batch. While one runs, the parameters of the others are frozen. A parameter that requires no
// gradient when the run begins is frozen for good: no optimiser gets it.
struct Objective {
  std::string name = "loss";
  std::vector<optim::ParameterGroup> parameters;  // empty = all parameters of model()
  optim::OptimConfig optim;
  // Loss of one micro-batch; see Loss. nullopt: the objective is absent from this step, and all micro-batches and ranks must
  // agree; its parameters, optimiser, average and schedule then stay unchanged, to the bit.
  std::function<std::optional<Loss>(const Batch&, const StepContext&)> loss;
  // Optional: called after each update of the parameters, without gradients, before averages of them are taken. Keeps parameters
  // in their range (clamps, shrinks, normalises them in place) without a read-back. Also called after a step that is skipped on
  // the device.
  std::function<void(const StepContext& context)> after_update = nullptr;
  // Empty: the sums and counts of this loss add up when a batch is cut, which the rehearsal checks (train/run/loss_check.h). Else
  // why they can't, shown before the first step: "each row is compared with all others". Cutting a batch, also by several ranks
  // or for want of memory, then changes the result.
  std::string whole_batch = "";
};

// Results of a micro-batch by objective: for Recipe::measure.
struct StepResult {
  std::vector<Loss> losses;  // in order of objectives(), detached; without terms for an absent objective
  [[nodiscard]] const Tensors& outputs(std::size_t objective = 0) const { return losses.at(objective).outputs; }
};

// Measurements as text for other programs.
struct TextTable {
  std::string name;  // the table is written to NAME.csv: letters, digits, "_" and "-"
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;  // each as long as `columns`
};

// The contents of a log line, for a log in a recipe's own words: see StepLog.
struct LoggedStep {
  std::int64_t step = 0;  // steps made so far
  double epoch = 0;       // passes over the training data so far, with the fraction
  std::int64_t rows = 0;  // samples since the last log line
  double seconds_per_step = 0;
  std::uint64_t memory_bytes = 0;  // bytes of tensors on the device now
  // Losses, their terms and, with log.train_metrics, "train/<metric>", as in log.jsonl: means since the last log line.
  std::map<std::string, double, std::less<>> means;
  // For the first objective: the learning rate of each of its parameter groups, and the norm of the last gradient.
  std::vector<double> learning_rates;
  double gradient_norm = 0;
  [[nodiscard]] double mean(std::string_view name) const;  // NaN if there is no such mean
};

// A log in the words of another program, for its users and their tools.
struct StepLog {
  std::string name;                  // the log is NAME.csv in the run folder, with a row for each log line
  std::vector<std::string> columns;  // columns after the first, which is "step"
  std::function<std::vector<std::string>(const LoggedStep&)> row;  // a cell for each of these columns
  std::function<std::string(const LoggedStep&)> line;              // the line on the console, with log.line=original
};

// A setting that makes samples smaller, proposed when memory runs out.
struct Shrink {
  std::string setting;  // "recipe.seq_len=256"
  double part = 0.5;    // relative to the memory that a step now holds for its samples
};

// The first objective's loss for an answer that ignores the input, such as the frequency of each class.
struct BlindAnswer {
  double loss = 0;
  std::string what;  // "the entropy of the training text's tokens"
};

// An axis of a field after its rows: index i has the coordinate first + i * step.
struct FieldAxis {
  std::string label;  // "frequency"
  std::string unit = "";
  double first = 0, step = 1;
};
// How `millrace show` draws a field: its axes, slowest first, and the meaning of its values.
struct FieldWords {
  std::vector<FieldAxis> axes;
  std::string value = "value", unit = "";
};

// What a recipe says about itself once its data is open and its model made.
struct Facts {
  std::string rate_unit = "samples";  // what rates count: samples, tokens, volumes
  double units_per_sample = 1.0;      // rate_units in a sample
  std::vector<std::string> history;   // metrics that get a column in history.csv; empty: those that the console shows
  std::string metric_tags;            // prefix of validation metrics' names in event files, e.g. "val/"
  std::string frozen_source;          // origin of weights that are not trained; kept with snapshot.frozen=leave_out
  Json lines = Json::object();        // name -> value: additional lines of the plan, e.g. {"vocabulary": 65}
  std::string read_as = "";  // one line: axes, units, orientation, clock, encoding of its data; "": the sources' own description
  std::map<std::string, FieldWords> fields = {};  // axes and values of the batches' fields, after prepare()
  std::optional<StepLog> step_log = std::nullopt;
  std::vector<Shrink> shrinks = {};
  std::optional<BlindAnswer> blind = std::nullopt;  // the log says so if a run stays at this loss
};

// All calls come from one thread, the loop's. An exception from a callback is reported with the recipe's name, the callback, the
// batch and its fields (see RecipeGuard); a RowError also with the sample. Before the first step of a run, one batch of each
// split goes through prepare, loss, measure, draw and predict as a rehearsal, which is then undone: see rehearsal.h. With the
// first snapshot a second recipe is made from it, as in eval, and gives the loss of one batch: see rebuilt_check.h.
//
//   callback          called                                             gradients   number format   on which weights
//   constructor       once, and once for the second recipe; opens no files
//   before_training   once, before data(); in a resumed run after load_state()
//   data              once for each split; for validation alone in eval, not in predict
//   test_data         only by `millrace eval --split=test`
//   model             often: make it once and keep it. On the CPU when first asked for; the trainer moves it
//   objectives        once
//   prepare           for each micro-batch of each split                 as loss     fp32
//   loss              for each micro-batch of each split                 training    precision.dtype  the run's; in a validation
//                                                                                                     averaged ones, if any
//   begin_validation  before each pass over the validation split
//   measure           for each micro-batch of the validation split       none        fp32            those of the validation
//                     with log.train_metrics=true also for each          none        fp32            the run's
//                     micro-batch of a training step
//   end_validation    after its last batch                               none        fp32            those of the validation
//   draw, tables      after a validation, if pictures are kept           none        fp32            from what measure() kept
//   samples           before the first step and after the last           none        fp32            the run's
//   predict           for some rows at a time                            none        precision.dtype  those of a snapshot,
//                                                                                                     averaged ones, if any; for
//                                                                                                     --from RUN the best's
//   state, load_state with each snapshot; load_state also before predict and eval
//
// A micro-batch is on the device, in train mode or in evaluation mode as batch.split() says. In a grouped pipeline a group may
// have no rows: its fields then exist with zero rows. Random numbers of layers are keyed by sample (nn::dropout); in prepare()
// key your own by batch.epoch() and the positions of a group (make_key in base/philox.h), so that a resumed run draws the same.
class Recipe {
 public:
  virtual ~Recipe() = default;
  // The data sets of a split, at least one. An empty pipeline for validation = no validation.
  virtual data::Pipeline data(Split split) = 0;
  // Samples that neither training nor the choice of snapshots has seen. Callbacks see a batch of them as Split::validation.
  // Empty: the recipe has no test data.
  virtual data::Pipeline test_data() { return {}; }
  // Prepares a batch for the model: layout, scaling, noise. May replace fields, and free them.
  virtual Batch prepare(Batch batch) { return batch; }
  // The module lives as long as the recipe.
  virtual torch::nn::Module& model() = 0;
  // Makes the model compute in this layout from now on; results agree within rounding. False: the model has only one layout.
  virtual bool set_layout(Layout) { return false; }
  virtual std::vector<Objective> objectives() = 0;
  // Forget here what measure() kept of an earlier validation, not in draw(), which is not always called.
  virtual void begin_validation() {}
  // Adds the sums of one micro-batch, left on the device: the board divides once at the end, over all ranks. The trainer adds the
  // losses. Clone here what draw() needs: a batch's memory goes back to the loader. Keep nothing if batch.split() is
  // Split::train.
  virtual void measure(const Batch&, const StepResult&, metrics::Board&) {}
  // Adds metrics that need a whole pass (a rank correlation). Each rank adds the metric of its part; the mean over ranks is
  // shown.
  virtual void end_validation(metrics::Board&) {}

  // All below are optional.
  virtual void before_training() {}                // prepares what data() needs: fits components, encodes a text
  virtual State state() const { return {}; }       // the recipe's own part of a snapshot
  virtual void load_state(const State&) {}         // SnapshotError for a state that state() does not write
  virtual Tensors predict(const Tensors& inputs);  // default: UsageError "recipe does not predict"
  virtual Facts facts() const { return {}; }
  // Examples of the model's output in words (generated text), a line each; `step`: steps made so far.
  virtual std::vector<std::string> samples(std::int64_t /*step*/) { return {}; }
  // Pictures of the last measurements; kept in <run>/pictures. A picture that can't be drawn is a warning, not the end of the
  // run.
  virtual std::vector<Picture> draw() { return {}; }
  // Tables of the last measurements; kept in the run folder as <name>.csv, only for the last validation.
  virtual std::vector<TextTable> tables() { return {}; }
};

// The recipe inside the guard that a run puts around it, or the recipe itself: for commands that know its class.
[[nodiscard]] Recipe& unguarded(Recipe& recipe);

}  // namespace millrace
