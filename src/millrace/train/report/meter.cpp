#include "millrace/train/report/meter.h"

#include <cmath>
#include <utility>

#include "millrace/base/clock.h"
#include "millrace/core/saved_json.h"

namespace millrace {

Meter::Meter(std::string first_loss, bool computes_here) : first_loss_(std::move(first_loss)), computes_here_(computes_here) {
  start();
}

void Meter::start() { window_begin_ns_ = epoch_begin_ns_ = steady_nanoseconds(); }

void Meter::add(const Stepper& stepper, const StepResult& result) {
  for (std::size_t i = 0; i < result.losses.size(); ++i) {
    window_.add(stepper.objective_name(i), result.losses[i]);
    epoch_.add(stepper.objective_name(i), result.losses[i]);
  }
}

void Meter::add(const metrics::Board& measured) { measured_.add(measured); }

void Meter::end_step(std::int64_t rows) {
  ++window_steps_;
  ++epoch_steps_here_;
  for (std::int64_t* samples : {&window_samples_, &epoch_samples_, &epoch_samples_here_, &samples_, &process_samples_})
    *samples += rows;
  if (!first_step_seconds_) first_step_seconds_ = seconds_since_process_start();
}

void Meter::leave_out(std::int64_t nanoseconds) noexcept {
  window_begin_ns_ += nanoseconds;
  epoch_begin_ns_ += nanoseconds;
}

double Meter::seconds_per_step() const {
  if (window_steps_ == 0) return 0;
  return static_cast<double>(steady_nanoseconds() - window_begin_ns_) * 1e-9 / static_cast<double>(window_steps_);
}

Meter::OfProcess Meter::of_process() const {
  return {.samples = process_samples_,
          .others = computes_here_ ? neighbours_.since_made() : std::nullopt,
          .first_step_seconds = first_step_seconds_};
}

Window Meter::take_window() {
  metrics::Means means = window_.means();  // waits for the device; the time of that wait belongs to this window
  const std::int64_t now = steady_nanoseconds();
  Window window{.means = std::move(means),
                .seconds = static_cast<double>(now - std::exchange(window_begin_ns_, now)) * 1e-9,
                .steps = std::exchange(window_steps_, 0),
                .samples = std::exchange(window_samples_, 0),
                .others = computes_here_ ? neighbours_.take() : std::nullopt};
  window_.reset();
  const metrics::Means measured = measured_.means();
  window.means.set_quiet(measured.quiet_with("train/"));
  for (const auto& [name, value] : measured) window.means["train/" + name] = value;
  measured_.reset();
  if (const auto it = window.means.find(first_loss_); it != window.means.end()) loss_last_ = it->second;
  if (!loss_first_) loss_first_ = loss_last_;
  return window;
}

Meter::EpochRow Meter::take_epoch(std::uint64_t epoch) {
  Meter::EpochRow row{.epoch = epoch,
                      .seconds = static_cast<double>(steady_nanoseconds() - epoch_begin_ns_) * 1e-9,
                      .samples = std::exchange(epoch_samples_, 0),
                      .samples_here = std::exchange(epoch_samples_here_, 0),
                      .steps_here = std::exchange(epoch_steps_here_, 0)};
  const auto means = epoch_.means();
  row.train_loss = means.contains(first_loss_) ? means.at(first_loss_) : std::nan("");
  epoch_.reset();
  epoch_begin_ns_ = steady_nanoseconds();
  return row;
}

void Meter::sum_window(Agreement& agreement) {
  window_.sum_over(agreement);
  measured_.sum_over(agreement);
}

void Meter::sum_epoch(Agreement& agreement) { epoch_.sum_over(agreement); }

void Meter::bring_to_root(Agreement& agreement) {
  sum_window(agreement);
  sum_epoch(agreement);
  if (agreement.ranks().rank != 0) forget_sums();
}

void Meter::forget_sums() {
  window_.reset();
  measured_.reset();
  epoch_.reset();
}

void Meter::write_state(Json& trainer, Json& report) const {
  trainer["samples"] = samples_;
  trainer["epoch_sums"] = epoch_.state();
  trainer["epoch_samples"] = epoch_samples_;
  if (loss_first_) trainer["loss_first"] = number_or_null(*loss_first_);
  report = {{"window", window_.state()}, {"loss_last", loss_last_ ? number_or_null(*loss_last_) : Json()}};
  if (!measured_.empty()) report["measured"] = measured_.state();
}

void Meter::load_state(const SavedJson& trainer, const SavedJson& report) {
  samples_ = trainer["samples"].integer(0);
  epoch_.load_state(trainer["epoch_sums"]);
  epoch_samples_ = trainer["epoch_samples"].integer(0);
  if (const auto first = trainer.find("loss_first")) loss_first_ = first->number_or_nan();
  if (const auto window = report.find("window")) window_.load_state(*window);
  if (const auto measured = report.find("measured")) measured_.load_state(*measured);
  if (const auto last = report.find("loss_last"); last && !last->json().is_null()) loss_last_ = last->number_or_nan();
}

}  // namespace millrace
