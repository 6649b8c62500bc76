#include "recipes/neural_response/entry_parts.h"

#include "recipes/common/presets.h"

namespace millrace::recipes::neural_response {
namespace {

// A core of three stages: the first halves all axes; the second is wide and has a kernel of 5; the third has a kernel of 3 with
// dilation 2.
Json stages(std::int64_t first, std::int64_t second, std::int64_t third, std::int64_t squeeze_second,
            std::int64_t squeeze_third) {
  return {{{"channels", first}, {"stride", 2}},
          {{"channels", second}, {"dropout", 0.1}, {"pool_stride", 2}, {"squeeze", squeeze_second}},
          {{"channels", third},
           {"kernel_size", {3, 3, 3}},
           {"padding", {2, 2, 2}},
           {"dilation", 2},
           {"dropout", 0.2},
           {"pool_stride", 1},
           {"squeeze", squeeze_third}}};
}

Json steps(double learning_rate, std::int64_t max_steps, std::int64_t validate_every, std::int64_t validate_batches) {
  return {{"data.batch_size", 64},      {"optim.learning_rate", learning_rate},   {"train.max_steps", max_steps},
          {"train.epochs", 0},          {"train.validate_every", validate_every}, {"train.validate_batches", validate_batches},
          {"snapshot.every_epochs", 0}, {"snapshot.every_steps", validate_every}};
}

Json smoke() {
  return join({{"recipe.adapter.grid_size", 21},
               {"recipe.frontend.kernel_size", 8},
               {"recipe.convnet.stages", stages(8, 16, 16, 4, 4)},
               {"recipe.modulator.hidden_dim", 16},
               // 1, because the last frame has 5 pixels along a side; the published value 5 is for 12 pixels
               {"recipe.readout.initial_std", 1.0},
               {"recipe.modulator.beh_emb_dim", 8}},
              steps(3e-3, 400, 100, 8));
}

Json small() {
  return join({{"recipe.adapter.grid_size", 31},
               {"recipe.convnet.stages", stages(8, 32, 32, 8, 16)},
               {"recipe.modulator.hidden_dim", 32},
               {"recipe.readout.initial_std", 1.0}},
              steps(4e-3, 600, 100, 32));
}

// The sizes and targets in the guide of VisionCore, the program that this recipe follows.
Json full() {
  return {{"data.batch_size", 256},           {"optim.learning_rate", 1e-3}, {"optim.weight_decay", 1e-4},
          {"recipe.steps_per_epoch", 1000},   {"recipe.val_fraction", 0.05}, {"targets.train_it_per_s", 1.5},
          {"targets.validation_it_per_s", 3}, {"targets.gpu_busy", 0.8}};
}

Json predictive() {
  return {{"recipe.modulator.type", "pc"}, {"recipe.convnet.final_activation", "softplus"}, {"recipe.lambda_pred", 0.25}};
}

}  // namespace

Json defaults() {
  return {{"data.batch_size", 64},
          {"optim.learning_rate", 1e-4},
          {"optim.weight_decay", 1e-5},
          {"optim.clip_norm", 1.0},
          {"optim.decay_factor", 0.5},    // as in VisionCore's schedules step and plateau
          {"optim.plateau_patience", 3},  // as in VisionCore's schedule plateau
          {"train.epochs", 100},
          {"train.early_stop_patience", 10},
          {"log.train_metrics", true},  // on, because these metrics show which sessions were left out of steps
          {"snapshot.best_metric", "val_bps_overall"},
          {"snapshot.best_is", "highest"},
          {"snapshot.best_count", 3}};
}

std::vector<std::pair<std::string, Json>> presets() {
  return {{"smoke", smoke()}, {"smoke_pc", join(smoke(), predictive())},
          {"small", small()}, {"small_pc", join(small(), predictive())},
          {"full", full()},   {"full_pc", join(full(), predictive())}};
}

}  // namespace millrace::recipes::neural_response
