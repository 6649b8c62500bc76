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

// The folders that a recipe may read and write.
struct RecipeFolders {
  std::filesystem::path run_folder;    // the run's files, for reading; empty: the command has no run, or the run starts over
  std::filesystem::path new_files;     // files that must stay in the run folder are written here before the first step; empty: no
                                       // such files may be written
  std::filesystem::path cache_folder;  // where token files and the like are kept; empty: no cache
  bool writes = true;                  // false: nothing may be written anywhere, but caches may be read
  bool plan_only = false;              // true: no step follows, so the recipe need not fit what only steps use
};

// The values that the trainer passes to a recipe's constructor.
struct Context {
  at::Device device = at::kCPU;
  Ranks ranks;
  const RunConfig* config = nullptr;   // the sections that all recipes share; never null in a run; lives as long as the run
  const Switches* switches = nullptr;  // which optimisations are on; lives as long as the run
  RecipeFolders places;
  std::uint64_t seed = 0;
  std::function<void(const std::string&)> notice;  // see note()

  // Shows a line about a choice or a fact when the run starts, and keeps it in the log.
  void note(const std::string& text) const {
    if (notice) notice(text);
  }
  // True if the switchboard's row is on. Without a switchboard all rows are on.
  [[nodiscard]] bool on(std::string_view row) const;
  [[nodiscard]] nn::Fused fused() const;  // the switches of fused operations, as the functions of nn take them
};

// A number on the host that grows from step to step, such as the number of the step; converts to T. The conversion sets *is_read,
// because a GPU that records a step once and replays it would keep using the number of the recorded step. A step that has read a
// number is recorded again when the number changes (train/step/step_graph.h).
template <class T>
class HostNumber {
 public:
  HostNumber(T value = {}, bool* is_read = nullptr) : value_(value), is_read_(is_read) {}
  operator T() const {
    if (is_read_ != nullptr) *is_read_ = true;
    return value_;
  }
  // True if value > limit. The number only grows, so a true answer never changes and causes no new recording.
  [[nodiscard]] bool is_above(T limit) const { return value_ > limit || static_cast<T>(*this) > limit; }

 private:
  T value_;
  bool* is_read_;  // may be null
};

// Numbers that change from step to step. A recorded step reads them from the device's memory, so it need not be recorded again.
class StepNumbers {
 public:
  using Number = std::function<double(std::int64_t step, std::uint64_t epoch)>;
  virtual ~StepNumbers() = default;
  // A scalar (f64) on the device. Before each step it is set to number(step, epoch).
  [[nodiscard]] virtual at::Tensor place_of(Number number) = 0;
};

struct StepContext {
  HostNumber<std::int64_t> step;    // 0-based
  HostNumber<std::uint64_t> epoch;  // 0-based, of the batch
  std::int64_t total_steps = 0;     // length of the run; 0 = open end, or an evaluation without a run
  bool training = true;
  const Tensors* earlier = nullptr;  // detached outputs of the previous objectives for the same micro-batch
  StepNumbers* numbers = nullptr;    // see number(); null: steps are not recorded

  // number(step, epoch) as a scalar (f64) on `device`, for a weight that changes from step to step. A recorded step stays valid
  // when this number changes. `number` must depend on its two arguments and constants only.
  [[nodiscard]] at::Tensor number(const StepNumbers::Number& number, at::Device device) const;
};

// A loss, the parameters that it updates and its optimiser settings. Most recipes have one objective; an adversarial pair has
// two, which run in order for each micro-batch. While an objective runs, the parameters of all other objectives are frozen. A
// parameter whose requires_grad is false when the run begins stays frozen for the whole run: no optimiser gets it.
struct Objective {
  std::string name = "loss";
  std::vector<optim::ParameterGroup> parameters;  // empty = all parameters of model()
  optim::OptimConfig optim;
  // The loss of one micro-batch; see Loss. nullopt means that the objective does not take part in this step: all micro-batches
  // and ranks must then return nullopt, and the objective's parameters, optimiser, average and schedule stay unchanged, to the
  // bit.
  std::function<std::optional<Loss>(const Batch&, const StepContext&)> loss;
  // Optional: called without gradients after each update of the parameters, before the averages of the parameters are updated.
  // The function keeps parameters in their range (clamps, shrinks or normalises them in place) without copying values from the
  // device. It is also called after a step whose update was skipped on the device.
  std::function<void(const StepContext& context)> after_update = nullptr;
  // Empty if the sums and counts of this loss add up when a batch is cut into micro-batches; the rehearsal checks that
  // (train/run/loss_check.h). Otherwise the reason why they do not add up, such as "each row is compared with all others"; it is
  // shown before the first step. Then every cut of a batch changes the result, whether into micro-batches, over ranks, or after
  // memory ran out.
  std::string whole_batch = "";
};

// The results of a micro-batch, for each objective; Recipe::measure() gets them.
struct StepResult {
  std::vector<Loss> losses;  // in the order of objectives(), detached; the Loss of an absent objective has no terms
  [[nodiscard]] const Tensors& outputs(std::size_t objective = 0) const { return losses.at(objective).outputs; }
};

// Measurements as a table of text, for other programs.
struct TextTable {
  std::string name;  // the table is written to NAME.csv: letters, digits, "_" and "-"
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;  // each row has as many cells as `columns`
};

// The contents of a line of the log, from which a recipe writes a log in its own format: see StepLog.
struct LoggedStep {
  std::int64_t step = 0;  // steps made so far
  double epoch = 0;       // passes over the training data so far, including the fraction of the present pass
  std::int64_t rows = 0;  // samples since the last log line
  double seconds_per_step = 0;
  std::uint64_t memory_bytes = 0;  // bytes of tensors on the device now
  // Name -> mean since the last log line, for the losses, their terms and, with log.train_metrics, "train/<metric>". The names
  // are those of log.jsonl.
  std::map<std::string, double, std::less<>> means;
  // Values of the first objective: the learning rate of each of its parameter groups, and the norm of its last gradient.
  std::vector<double> learning_rates;
  double gradient_norm = 0;
  [[nodiscard]] double mean(std::string_view name) const;  // NaN if there is no such mean
};

// A log in another program's format, for users of that program and their tools.
struct StepLog {
  std::string name;                  // the log is NAME.csv in the run folder, with a row for each log line
  std::vector<std::string> columns;  // columns after the first, which is "step"
  std::function<std::vector<std::string>(const LoggedStep&)> row;  // returns a cell for each of `columns`
  std::function<std::string(const LoggedStep&)> line;              // the line on the console, with log.line=original
};

// A change of a setting that makes samples smaller. A run that is out of memory proposes it.
struct Shrink {
  std::string setting;  // "recipe.seq_len=256"
  double part = 0.5;    // the memory for a step's samples after the change, as a share of the memory before
};

// The first objective's loss for the best answer that does not depend on the input, such as the frequencies of the classes.
struct BlindAnswer {
  double loss = 0;
  std::string what;  // "the entropy of the training text's tokens"
};

// An axis of a field, after the axis of its rows: index i has the coordinate first + i * step.
struct FieldAxis {
  std::string label;  // "frequency"
  std::string unit = "";
  double first = 0, step = 1;
};
// How `millrace show` labels a plot of a field: the field's axes, slowest first, and the meaning of its values.
struct FieldWords {
  std::vector<FieldAxis> axes = {};
  std::string value = "value", unit = "";
  std::vector<std::string> names = {};  // for whole numbers: the name of each value, such as the classes of a label
};

// What a recipe reports about itself after its data is opened and its model is made.
struct Facts {
  std::string rate_unit = "samples";  // the unit of rates: samples, tokens, volumes
  double units_per_sample = 1.0;      // number of rate_units in a sample
  std::vector<std::string> history;   // metrics that get a column in history.csv; empty: those that the console shows
  std::string metric_tags;            // prefix of validation metrics' names in event files, e.g. "val/"
  std::string frozen_source;          // where the weights that are not trained come from; snapshots name it with
                                      // snapshot.frozen=leave_out
  Json lines = Json::object();        // name -> value: additional lines of the plan, e.g. {"vocabulary": 65}
  std::string read_as = "";  // how the data is read, in one line: axes, units, orientation, clock, encoding; "": the sources' own
                             // description
  std::map<std::string, FieldWords> fields = {};  // field name -> axes and values, for the fields that prepare() returns;
                                                  // sources add names of values
  std::optional<StepLog> step_log = std::nullopt;
  std::vector<Shrink> shrinks = {};
  std::optional<BlindAnswer> blind = std::nullopt;  // if a run stays at this loss, the log says so
};

// All calls come from one thread, the loop's. An exception from a callback is reported with the recipe's name, the callback, the
// batch and its fields (see RecipeGuard); a RowError also with the sample. Before the first step of a run, one batch of each
// split goes through prepare, loss, measure, draw and predict as a rehearsal, which is then undone: see rehearsal.h. With the
// first snapshot a second recipe is made from it, as in eval, and gives the loss of one batch: see rebuilt_check.h.
//
//   callback          called                                             gradients   number format   on which weights
//   constructor       once, and once for the second recipe; opens no files
//   before_training   once, before data(); before load_state() in a resumed run, but after it in eval and in a run that starts
//                     from a snapshot's weights
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
  // Prepares a batch for the model: layout, scaling, noise. May replace or free fields of the batch.
  virtual Batch prepare(Batch batch) { return batch; }
  // The model. The module lives as long as the recipe.
  virtual torch::nn::Module& model() = 0;
  // From now on the model computes in this memory layout; results in both layouts agree within rounding. Returns false if the
  // model has only one layout.
  virtual bool set_layout(Layout) { return false; }
  virtual std::vector<Objective> objectives() = 0;
  // Called before each validation. Discard here what measure() kept of an earlier validation; draw() is not always called, so it
  // is the wrong place for that.
  virtual void begin_validation() {}
  // Adds the sums of one micro-batch to the board, without copying them from the device: the board divides once at the end, over
  // all ranks. The trainer itself adds the losses. Clone here the tensors that draw() needs, because the batch's memory returns
  // to the loader. Keep nothing if batch.split() is Split::train.
  virtual void measure(const Batch&, const StepResult&, metrics::Board&) {}
  // Adds metrics that need a whole pass over the data, such as a rank correlation. Each rank adds the metric of its share of the
  // data; the mean over ranks is shown.
  virtual void end_validation(metrics::Board&) {}

  // All functions below are optional.
  virtual void before_training() {}                // prepares what data() needs: fits components, encodes a text
  virtual State state() const { return {}; }       // the recipe's own state, for snapshots
  virtual void load_state(const State&) {}         // throws SnapshotError for a state that state() does not write
  virtual Tensors predict(const Tensors& inputs);  // default: throws UsageError "recipe does not predict"
  virtual Facts facts() const { return {}; }
  // Examples of the model's output in words, such as generated text, a line each. `step`: the number of steps made so far.
  virtual std::vector<std::string> samples(std::int64_t /*step*/) { return {}; }
  // Pictures of the last validation's measurements; kept in <run>/pictures. If this throws, the run logs a warning and continues.
  virtual std::vector<Picture> draw() { return {}; }
  // Tables of the last validation's measurements; kept in the run folder as <name>.csv. A later validation overwrites them.
  virtual std::vector<TextTable> tables() { return {}; }
};

// The recipe inside the RecipeGuard that a run puts around it, or `recipe` itself if it has no guard. For commands that need the
// recipe's own class.
[[nodiscard]] Recipe& unguarded(Recipe& recipe);

}  // namespace millrace
