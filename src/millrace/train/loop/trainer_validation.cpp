// The part of the trainer that validates and handles the results: scores, pictures, tables, a row of the history.
#include <torch/nn/module.h>

#include <cmath>

#include "millrace/base/clock.h"
#include "millrace/base/doing.h"
#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/train/loop/trainer.h"
#include "millrace/train/loop/validation.h"
#include "millrace/train/report/pictures.h"
#include "millrace/train/run_folder/run_files.h"
#include "millrace/train/step/stepper_state.h"

namespace millrace {

using telemetry::Phase;
using telemetry::Span;

bool Trainer::validation_due(bool epoch_ended) const {
  if (parts_.validation == nullptr) return false;
  const TrainConfig& train = parts_.config->train;
  if (train.validate_every > 0) return is_due(train.validate_every) && validated_step_ != step_;
  return epoch_ended && epoch_ % static_cast<std::uint64_t>(train.validate_epochs) == 0;
}

void Trainer::validate() {
  const std::string what = "the validation after step " + std::to_string(step_);
  const Doing task(Doing::Level::task, what.c_str());
  const std::int64_t begin = steady_nanoseconds();
  recovery_.record_peak();
  std::optional<Validated> validated;
  {
    const Span span(*parts_.timeline, Phase::validate);
    const auto average = use_average(*parts_.stepper);
    recovery_.attempt(
        {.step = step_, .where = what, .rows = parts_.validation->rows_per_batch()},
        [&] {
          validated = run_validation(batch_context(), *parts_.stepper, *parts_.validation, parts_.config->train.validate_batches,
                                     agreement());
          return std::int64_t{0};
        },
        [] {});
    parts_.recipe->model().train();
  }
  if (diagnosis_ && !parts_.stepper->device().is_cpu()) diagnosis_->saw_peak(memory_now().counters.peak_bytes);
  recovery_.forget_peak();
  const std::int64_t took = steady_nanoseconds() - begin;
  meter_.leave_out(took);
  if (validated && diagnosis_) {
    const auto loss = validated->means.find("val_" + parts_.names.loss);
    const double units = parts_.names.units_per_sample;
    diagnosis_->saw_validation(loss == validated->means.end() ? std::nan("") : loss->second, static_cast<double>(took) * 1e-9,
                               {.unit = parts_.names.rate_unit,
                                .by = units * static_cast<double>(validated->rows),
                                .there_are = units * static_cast<double>(parts_.validation->samples_per_epoch()),
                                .batches = validated->batches,
                                .most_batches = parts_.config->train.validate_batches});
  }
  if (!validated) return;  // a signal came; the snapshot records that this validation is still due
  if (validation_pending_ && saves_.holds(step_))
    saves_.forget();  // the step must be saved again, because the saved state lacks this validation
  validation_pending_ = false;
  validated_step_ = step_;
  record_validation(validated->means, static_cast<double>(took) * 1e-9, validated->batches);
  draw(validated->tables);
}

void Trainer::record_validation(const metrics::Means& means, double seconds, std::int64_t batches) {
  if (epoch_end_.row) {
    epoch_end_.row->validation_seconds = seconds;
    epoch_end_.row->validation_batches = batches;
  }
  const bool gained = scores_.record(step_, means);
  if (!scores_.forgot().empty()) reporter_.warning(scores_.forgot());
  const auto loss = means.find("val_" + parts_.names.loss);
  for (ObjectiveStep& objective : parts_.stepper->objectives())
    objective.observe_validation(loss == means.end() ? std::nan("") : loss->second);
  const auto judged = scores_.metrics().find(scores_.judged());
  reporter_.validation({.step = step_,
                        .means = means,
                        .judged = scores_.judged(),
                        .gained = gained,
                        .best = judged == scores_.metrics().end() ? Metric{} : judged->second,
                        .seconds = seconds,
                        .batches = batches});
  write_history(means);
}

// Draws the recipe's pictures. A picture that can't be drawn or written causes only a warning and does not end the run.
void Trainer::draw(const std::vector<metrics::Confusion>& tables) {
  if (parts_.place.folder == nullptr || !parts_.config->log.images) return;
  const Span span(*parts_.timeline, Phase::validate);
  Fs& fs = *parts_.place.fs;
  const auto most = static_cast<std::size_t>(parts_.config->log.pictures_kept);
  try {
    const std::vector<Picture> pictures = pictures_of(*parts_.recipe, tables, "after step " + with_commas(step_));
    if (!pictures.empty()) fs.create_directories(parts_.place.folder->path() / run_files::kPictures);
    for (const Picture& picture : pictures) {
      try {
        reporter_.picture(picture, step_, keep_picture(*parts_.place.folder, fs, picture, step_, most));
      } catch (const UsageError& error) {  // a file of the user has that name
        reporter_.warning("a picture could not be written: " + error.message().what);
      }
    }
    thin_pictures(*parts_.place.folder, most);
    keep_tables();
  } catch (const FsError& error) {
    reporter_.warning(std::string("pictures and tables could not be written: ") + error.what());
  } catch (const RecipeError& error) {
    reporter_.warning("pictures could not be drawn: " + error.message().what);
  }
}

// Writes the recipe's tables. A file that has a table's name but does not belong to the run is left unchanged.
void Trainer::keep_tables() {
  try {
    for (const TextTable& table : parts_.recipe->tables()) keep_table(*parts_.place.folder, *parts_.place.fs, table);
  } catch (const UsageError& error) {
    reporter_.warning("a table could not be written: " + error.message().what);
  }
}

void Trainer::write_history(const metrics::Means& means) {
  if (!epoch_end_.row) return;
  constexpr double kWorthALine = 10;  // an epoch that took at least this many seconds, or log.every steps, gets a line on the
                                      // console
  const Meter::EpochRow& row = *epoch_end_.row;
  reporter_.epoch(row, step_, means, row.steps_here >= parts_.config->log.every || row.seconds >= kWorthALine);
  epoch_end_.row.reset();
}

}  // namespace millrace
