// What a user writes: data, model, loss, metrics. No loop, no device code, no precision code, no callbacks.
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
  std::filesystem::path run_folder;    // to read from; empty: predict, a measurement, a run that starts over
  std::filesystem::path new_files;     // what is to stay in the run folder is written here before the first step; empty: nothing
  std::filesystem::path cache_folder;  // for token files and the like; empty: none
  bool writes = true;                  // false: looking only; nothing is written anywhere, what a cache holds may be read
  bool plan_only = false;              // no step will be made: a fit that only steps need may be left out
};

// What the trainer tells a recipe when it is made.
struct Context {
  at::Device device = at::kCPU;
  Ranks ranks;
  const RunConfig* config = nullptr;   // the sections that all recipes share; never null in a run, and lives as long as it
  const Switches* switches = nullptr;  // which optimisations are on; lives as long as the run
  RecipeFolders places;
  std::uint64_t seed = 0;
  std::function<void(const std::string&)> notice;  // see say()

  // One line about a choice or a fact, shown at start and kept in the log.
  void say(const std::string& text) const {
    if (notice) notice(text);
  }
  // Whether a row of the switchboard is on; without a switchboard all are.
  [[nodiscard]] bool on(std::string_view row) const;
  [[nodiscard]] nn::Fused fused() const;  // what the functions of nn take
};

struct StepContext {
  std::int64_t step = 0;         // 0-based
  std::uint64_t epoch = 0;       // 0-based: of the batch
  std::int64_t total_steps = 0;  // of the run; 0 = open end, and in an evaluation without a run
  bool training = true;
  const Tensors* earlier = nullptr;  // detached outputs of the objectives before this one, of the same micro-batch
};

// A loss, the parameters it moves and its optimiser settings. One for most recipes; two for an adversarial pair, run in order
// for each micro-batch. Parameters of the other objectives are frozen meanwhile. A parameter that requires no gradient when the
// run begins is frozen for good: it reaches no optimiser.
struct Objective {
  std::string name = "loss";
  std::vector<optim::ParameterGroup> parameters;  // empty = all parameters of model()
  optim::OptimConfig optim;
  // Of one micro-batch; see Loss. nullopt: the objective is absent from this step, and all its micro-batches and ranks say so;
  // its parameters, optimiser, average and schedule then stay what they were, to the bit.
  std::function<std::optional<Loss>(const Batch&, const StepContext&)> loss;
  // Optional: after each update of its parameters, without gradients, before averages of them are taken. Keeps parameters where
  // they belong (clamps, shrinks, normalises them in place) without a read-back. A step that is skipped on
  // the device comes here too.
  std::function<void(const StepContext& context)> after_update = nullptr;
};

// Per objective what a micro-batch gave: for Recipe::measure.
struct StepResult {
  std::vector<Loss> losses;  // in order of objectives(), detached; without terms where the objective was absent
  [[nodiscard]] const Tensors& outputs(std::size_t objective = 0) const { return losses.at(objective).outputs; }
};

// What was measured, as text for other programs.
struct TextTable {
  std::string name;  // of its file, NAME.csv: letters, digits, "_" and "-"
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;  // each as long as `columns`
};

// What a log line knows, in a recipe's own words: see StepLog.
struct LoggedStep {
  std::int64_t step = 0;  // steps made
  double epoch = 0;       // passes over the training data so far, with their part
  std::int64_t rows = 0;  // samples since the last log line
  double seconds_per_step = 0;
  std::uint64_t memory_bytes = 0;  // of tensors on the device now
  // Losses, their terms and, with log.train_metrics, "train/<metric>", as in log.jsonl: means since the last log line.
  std::map<std::string, double, std::less<>> means;
  // Of the first objective: the learning rate of each of its parameter groups, and the norm of the last gradient.
  std::vector<double> learning_rates;
  double gradient_norm = 0;
  [[nodiscard]] double mean(std::string_view name) const;  // NaN where there is none
};

// The log of another program, for those who read it or whose tools do.
struct StepLog {
  std::string name;                  // its file in the run folder, NAME.csv, has a row for each log line
  std::vector<std::string> columns;  // after the first, which is "step"
  std::function<std::vector<std::string>(const LoggedStep&)> row;  // a cell for each of them
  std::function<std::string(const LoggedStep&)> line;              // on the console, with log.line=original
};

// A way to make samples smaller, for those who run out of memory.
struct Shrink {
  std::string setting;  // "recipe.seq_len=256"
  double part = 0.5;    // of what a step holds for its samples, as it is now
};

// The loss of the first objective that an answer gets which does not look at the input, such as how frequent each class is.
struct BlindAnswer {
  double loss = 0;
  std::string what;  // "the entropy of the training text's tokens"
};

// An axis of a field behind its rows: what stands at index i is first + i * step.
struct FieldAxis {
  std::string label;  // "frequency"
  std::string unit = "";
  double first = 0, step = 1;
};
// How a field is drawn by `millrace show`: its axes, slowest first, and what its values are.
struct FieldWords {
  std::vector<FieldAxis> axes;
  std::string value = "value", unit = "";
};

// What a recipe tells of itself once its data is open and its model made.
struct Facts {
  std::string rate_unit = "samples";  // what a rate counts: samples, tokens, volumes
  double units_per_sample = 1.0;      // of these
  std::vector<std::string> history;   // metrics that get a column in history.csv
  std::string metric_tags;            // what stands before the names of validation metrics in event files, e.g. "val/"
  std::string frozen_source;          // where weights that are not trained come from; kept with snapshot.frozen=leave_out
  Json lines = Json::object();        // name -> value: further lines of the plan, e.g. {"vocabulary": 65}
  std::string read_as = "";  // one line: axes, units, orientation, clock, encoding of its data; "": as the sources say it
  std::map<std::string, FieldWords> fields = {};  // of batches, after prepare()
  std::optional<StepLog> step_log = std::nullopt;
  std::vector<Shrink> shrinks = {};
  std::optional<BlindAnswer> blind = std::nullopt;  // a run that stays there is told so
};

// All calls come from one thread, the loop's. What a callback throws is told with the recipe's name, the callback, the batch and
// its fields (see RecipeGuard); a RowError also with the sample. Before the first step of a run one batch of each split goes
// through prepare, loss, measure, draw and predict as a rehearsal, which is then taken back: see rehearsal.h.
//
//   callback          called                                             gradients   number format   on which weights
//   constructor       once in a process; opens no files
//   before_training   once, before data(); in a resumed run after load_state()
//   data              once for each split; eval asks for validation alone, predict for none
//   test_data         by `millrace eval --split=test` alone
//   model             often: make it once and keep it. On the CPU when first asked for; the trainer moves it
//   objectives        once
//   prepare           for each micro-batch of each split                 as loss     fp32
//   loss              for each micro-batch of each split                 training    precision.dtype  the run's; of a validation
//                                                                                                     the averaged ones, if any
//   begin_validation  before each pass over the validation split
//   measure           for each micro-batch of the validation split       none        fp32            those of the validation
//                     with log.train_metrics=true also for each          none        fp32            the run's
//                     micro-batch of a training step
//   end_validation    after its last batch                               none        fp32            those of the validation
//   draw, tables      after a validation, where pictures are kept        none        fp32            from what measure() kept
//   samples           before the first step and after the last           none        fp32            the run's
//   predict           for some rows after the other                      none        precision.dtype  the run's
//   state, load_state with each snapshot; load_state also before predict and eval
//
// A micro-batch is on the device, in train mode or in evaluation mode as batch.split() says. In a grouped pipeline a group may
// have no rows: its fields are then there with zero rows. Random numbers of layers are keyed by sample (nn::dropout); in
// prepare() key your own by batch.epoch() and the positions of a group (make_key in base/philox.h), so that a resumed run draws
// the same.
class Recipe {
 public:
  virtual ~Recipe() = default;
  // The data set of a split, or several. An empty pipeline for validation = no validation.
  virtual data::Pipeline data(Split split) = 0;
  // Samples that neither training nor a choice of snapshots has seen. A batch of them is one of Split::validation to all
  // callbacks. Empty: the recipe keeps none back.
  virtual data::Pipeline test_data() { return {}; }
  // Before the model sees it: layout, scaling, noise. May replace fields, and free them.
  virtual Batch prepare(Batch batch) { return batch; }
  // Lives as long as the recipe.
  virtual torch::nn::Module& model() = 0;
  // From now on the model computes in this layout; results agree within rounding. False: it has only one.
  virtual bool set_layout(Layout) { return false; }
  virtual std::vector<Objective> objectives() = 0;
  // What measure() kept of an earlier validation is forgotten here, not in draw(), which is not always called.
  virtual void begin_validation() {}
  // Sums of one micro-batch, left on the device: the board divides once at the end, over all ranks. The losses are added by the
  // trainer. What is kept for draw() is kept here, as clones: a batch's memory goes back to the loader. Keep nothing where
  // batch.split() is Split::train.
  virtual void measure(const Batch&, const StepResult&, metrics::Board&) {}
  // What only a whole pass tells (a rank correlation). Each rank adds that of its part; the mean over ranks is shown.
  virtual void end_validation(metrics::Board&) {}

  // Optional.
  virtual void before_training() {}                // what data() needs: fit components, encode a text
  virtual State state() const { return {}; }       // the recipe's own part of a snapshot
  virtual void load_state(const State&) {}         // SnapshotError for what state() does not write
  virtual Tensors predict(const Tensors& inputs);  // default: UsageError "recipe does not predict"
  virtual Facts facts() const { return {}; }
  // What to show of the model in words (generated text), a line each; `step`: steps made so far.
  virtual std::vector<std::string> samples(std::int64_t /*step*/) { return {}; }
  // Of what was measured; kept in <run>/pictures. A picture that can't be drawn is a warning, not the end of the run.
  virtual std::vector<Picture> draw() { return {}; }
  // Of what was measured; kept in the run folder as <name>.csv, that of the last validation alone.
  virtual std::vector<TextTable> tables() { return {}; }
};

// The recipe behind the guard that a run puts around it, or the recipe itself: for commands that know its class.
[[nodiscard]] Recipe& unguarded(Recipe& recipe);

}  // namespace millrace
