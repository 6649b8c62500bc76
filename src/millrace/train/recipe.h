// What a user writes: data, model, loss, metrics. No loop, no device code, no precision code, no callbacks.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/core/batch.h"
#include "millrace/data/source.h"
#include "millrace/metrics/board.h"
#include "millrace/optim/optimizer.h"
#include "millrace/picture/picture.h"

namespace torch::nn {
class Module;
}

namespace millrace {

class Switches;                    // train/switchboard.h
struct RunConfig;                  // train/config.h
enum class Layout : std::uint8_t;  // train/config.h

// Where a recipe may read and write.
struct RecipePlaces {
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
  RecipePlaces places;
  std::uint64_t seed = 0;
  std::function<void(const std::string&)> notice;  // see say()

  // One line about a choice or a fact, shown at start and kept in the log.
  void say(const std::string& text) const {
    if (notice) notice(text);
  }
  // Whether a row of the switchboard is on; without a switchboard all are.
  [[nodiscard]] bool on(std::string_view row) const;
};

struct StepContext {
  std::int64_t step = 0;    // 0-based
  std::uint64_t epoch = 0;  // 0-based: of the batch
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
};

// Per objective what a micro-batch gave: for Recipe::measure.
struct StepResult {
  std::vector<Loss> losses;  // in order of objectives(), detached; without terms where the objective was absent
  [[nodiscard]] const Tensors& outputs(std::size_t objective = 0) const { return losses.at(objective).outputs; }
};

// What a recipe tells of itself once its data is open and its model made.
struct Facts {
  std::string rate_unit = "samples";  // what a rate counts: samples, tokens, volumes
  double units_per_sample = 1.0;      // of these
  std::vector<std::string> history;   // metrics that get a column in history.csv
  std::string metric_tags;            // what stands before the names of validation metrics in event files, e.g. "val/"
  std::string frozen_source;          // where weights that are not trained come from; kept with snapshot.frozen=leave_out
  Json lines = Json::object();        // name -> value: further lines of the plan, e.g. {"vocabulary": 65}
};

class Recipe {
 public:
  virtual ~Recipe() = default;
  virtual data::Pipeline data(Split split) = 0;         // an empty pipeline for validation = no validation
  virtual Batch prepare(Batch batch) { return batch; }  // on the device: layout, scaling
  virtual torch::nn::Module& model() = 0;
  // From now on the model computes in this layout; results agree within rounding. False: it has only one.
  virtual bool set_layout(Layout) { return false; }
  virtual std::vector<Objective> objectives() = 0;  // called once
  // Before each pass over the validation split: what measure() kept of an earlier one is forgotten.
  virtual void begin_validation() {}
  // Sums of one micro-batch, on the device; the losses are added by the trainer. What is kept for draw() is kept here.
  virtual void measure(const Batch&, const StepResult&, metrics::Board&) {}
  // Optional.
  virtual void before_training() {}           // fit PCA, tokenise: before data() is asked for
  virtual State state() const { return {}; }  // own part of the snapshot
  virtual void load_state(const State&) {}
  virtual Tensors predict(const Tensors& inputs);  // default: UsageError "recipe does not predict"
  virtual Facts facts() const { return {}; }
  virtual std::vector<std::string> samples(std::int64_t) {
    return {};
  }                                                   // what to show of the model in words, before and after (generated text)
  virtual std::vector<Picture> draw() { return {}; }  // after a validation, of what it measured; kept in <run>/pictures
};

}  // namespace millrace
