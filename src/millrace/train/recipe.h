// What a user writes: data, model, loss, metrics. No loop, no device code, no precision code, no callbacks.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "millrace/core/batch.h"
#include "millrace/data/source.h"
#include "millrace/metrics/board.h"
#include "millrace/optim/optimizer.h"
#include "millrace/train/picture.h"

namespace torch::nn {
class Module;
}

namespace millrace {

class Switches;                    // train/switchboard.h
enum class Layout : std::uint8_t;  // train/config.h

// What the trainer tells a recipe when it is made.
struct Context {
  at::Device device = at::kCPU;
  Ranks ranks;
  const Switches* switches = nullptr;   // which optimisations are on; lives as long as the run
  std::filesystem::path run_folder;     // to read from; may be empty (predict, bench, a run that starts over)
  std::filesystem::path new_files;      // what is to stay in the run folder is written here before the first step; may be empty
  std::filesystem::path config_folder;  // relative input paths are looked up here first, then in the current folder
  std::filesystem::path cache_folder;   // for token files and the like
  std::uint64_t seed = 0;
  std::function<void(const std::string&)> notice;  // one line about a choice or a fact, shown at start and kept in the log
};

struct StepContext {
  std::int64_t step = 0;  // 0-based
  bool training = true;
  const Tensors* earlier = nullptr;  // detached outputs of the objectives before this one in the same micro-step
};

// A loss, the parameters it moves and its optimiser settings. One for most recipes; two for an adversarial pair, run in order
// within a micro-step. Parameters of the other objectives are frozen meanwhile.
struct Objective {
  std::string name = "loss";
  std::vector<optim::ParameterGroup> parameters;  // empty = all parameters of model()
  optim::OptimConfig optim;
  std::function<Loss(const Batch&, const StepContext&)> loss;
};

// Per objective what a micro-step gave: for Recipe::measure.
struct StepResult {
  std::vector<Loss> losses;  // in order of objectives(), detached
  [[nodiscard]] const Tensors& outputs(std::size_t objective = 0) const { return losses.at(objective).outputs; }
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
  virtual void measure(const Batch&, const StepResult&, metrics::Board&) {
  }  // device-side sums; the losses are added by the trainer
  // Optional.
  virtual void before_training() {}           // fit PCA, tokenise: before data() is asked for
  virtual State state() const { return {}; }  // own part of the snapshot
  virtual void load_state(const State&) {}
  virtual Tensors predict(const Tensors& inputs);  // default: UsageError "recipe does not predict"
  virtual Json describe() const {
    return Json::object();
  }  // facts for inspect and the start lines (parameter count, sequences, ...); "history": metrics that get a column in
     // history.csv; "metric_tags": what stands before their names in event files
  virtual std::vector<std::string> samples(std::int64_t) {
    return {};
  }                                                   // what to show of the model in words, before and after (generated text)
  virtual std::vector<Picture> draw() { return {}; }  // after a validation, of what it measured; kept in <run>/pictures
};

}  // namespace millrace
