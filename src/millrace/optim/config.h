// Settings of an optimiser and its schedule: section "optim" of a run's config.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "millrace/config/field.h"

namespace millrace::optim {

enum class Algorithm : std::uint8_t { adamw, adam, sgd };
enum class ScheduleKind : std::uint8_t { constant, linear, cosine, warmup_cosine, cosine_floor, step, one_cycle, plateau };
enum class ScheduleUnit : std::uint8_t { step, epoch };
enum class RateScaling : std::uint8_t { none, linear, sqrt };

struct OptimConfig {
  Algorithm name = Algorithm::adamw;
  double learning_rate = 1e-3;
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0.01;
  bool decay_only_matrices = false;
  double momentum = 0.9;
  config::Auto<bool> fused;
  double clip_norm = 0.0;
  double clip_value = 0.0;
  ScheduleKind schedule = ScheduleKind::constant;
  ScheduleUnit schedule_by = ScheduleUnit::step;
  std::int64_t warmup_steps = 0;
  double warmup_frac = 0.0;
  double warmup_start = 0.0;
  double min_learning_rate = 0.0;
  std::int64_t decay_every = 0;
  double decay_factor = 0.1;
  std::int64_t plateau_patience = 10;
  double plateau_threshold = 1e-4;
  std::int64_t accumulate = 1;
  RateScaling lr_scaling = RateScaling::none;
  std::int64_t lr_scaling_batch = 0;
  double ema_decay = 0.0;
  double spike_zscore = 0.0;

  static consteval auto fields() {
    using C = OptimConfig;
    using config::field;
    return std::tuple{
        field<&C::name>("Update rule."),
        field<&C::learning_rate>("Learning rate after warm-up.").above(0),
        field<&C::betas>("Decay rates of Adam's first and second moment.").size(2),
        field<&C::eps>("Added to the square root of Adam's second moment.").above(0),
        field<&C::weight_decay>("Decoupled (adamw) or L2 (adam, sgd) weight decay.").min(0),
        field<&C::decay_only_matrices>("Apply weight decay only to tensors of two or more dimensions, not to biases and norms."),
        field<&C::momentum>("Momentum of sgd.").min(0).below(1),
        field<&C::fused>("One fused kernel for all parameters instead of a loop of small ones."),
        field<&C::clip_norm>("Scale the gradient down to this L2 norm if it is larger; 0 = off.").min(0),
        field<&C::clip_value>("Clamp each gradient element to +-this; 0 = off.").min(0),
        field<&C::schedule>("How the learning rate changes during the run."),
        field<&C::schedule_by>(
            "Unit in which the schedule counts; if it is epoch, warmup_steps and decay_every are numbers of epochs."),
        field<&C::warmup_steps>("Steps of linear warm-up before the schedule.").min(0),
        field<&C::warmup_frac>(
            "Length of the warm-up as a share of the run, for schedules that have an end; used if warmup_steps is 0.")
            .min(0)
            .below(1),
        field<&C::warmup_start>("Share of learning_rate at which warm-up begins; 0 = the first step uses 1 / warmup_steps of it.")
            .min(0)
            .max(1),
        field<&C::min_learning_rate>(
            "Final learning rate of linear, cosine, warmup_cosine and one_cycle; lowest rate of cosine_floor, step and plateau.")
            .min(0),
        field<&C::decay_every>("Steps between decays of schedule step.").min(0),
        field<&C::decay_factor>("Factor by which schedules step and plateau multiply the learning rate.").above(0).below(1),
        field<&C::plateau_patience>("Validations without improvement after which plateau lowers the learning rate.").min(0),
        field<&C::plateau_threshold>("Smallest improvement that counts for plateau, as a share of the best loss.").min(0),
        field<&C::accumulate>("Batches per step.").min(1),
        field<&C::lr_scaling>("Multiply learning_rate by global batch / lr_scaling_batch, or by the square root of that ratio."),
        field<&C::lr_scaling_batch>("Global batch for which learning_rate was chosen.").min(0),
        field<&C::ema_decay>(
            "Decay of a running mean of the weights, which validation and later commands use (typically 0.999); 0 = off.")
            .min(0)
            .below(1),
        field<&C::spike_zscore>("Skip a step whose loss or gradient norm is this many standard deviations above its recent mean "
                                "(typically 6); 0 = off.")
            .min(0)};
  }
};

}  // namespace millrace::optim
