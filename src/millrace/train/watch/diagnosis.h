// Watches a run for causes of slowness and other trouble: gathers the evidence, applies the doctor's rules at log lines, and
// reports new findings.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/data/loader/loader.h"
#include "millrace/doctor/clock_use.h"
#include "millrace/doctor/evidence.h"
#include "millrace/doctor/finding.h"
#include "millrace/doctor/gpu_use.h"
#include "millrace/doctor/sampler.h"
#include "millrace/doctor/watch.h"
#include "millrace/nn/clamp.h"
#include "millrace/telemetry/spans.h"
#include "millrace/train/recipe/config.h"
#include "millrace/train/report/reporter.h"
#include "millrace/train/report/targets.h"
#include "millrace/train/step/device_times.h"
#include "millrace/train/step/shapes_seen.h"
#include "millrace/train/watch/detail/doctor_trials.h"

namespace millrace {

// Belongs to the loop's thread.
class Diagnosis {
 public:
  // The objects and settings that a diagnosis works with. Everything that the pointers refer to must outlive the diagnosis.
  struct Parts {
    const RunConfig* config = nullptr;
    const Stepper* stepper = nullptr;
    telemetry::Timeline* timeline = nullptr;
    const DeviceTimes* device = nullptr;  // null: the host's times are also the device's
    const data::Loader* loader = nullptr;
    bool cached = false;                // true: the run has a cache
    std::uint64_t cacheable_bytes = 0;  // bytes that a cache of all samples would take
    double epochs = 0;                  // length of the run; 0 = no limit
    std::optional<BlindAnswer> blind;   // see BlindAnswer; for the first objective
    doctor::Evidence::Earlier earlier;
    std::string run;                                        // the run's folder; "" = the run has no folder
    std::function<std::unique_ptr<RemedyTrials>()> trials;  // makes the doctor's trials; called once, when the first trial may be
                                                            // due; null = no trials
  };

  struct MemorySeen {
    std::uint64_t used = 0, room = 0;  // bytes in use, and bytes that the process or the GPU may have; 0 = not known
    std::uint64_t step_peak = 0;
    std::string rising;  // MemoryWatch::rising()
  };

  explicit Diagnosis(Parts parts);
  ~Diagnosis();
  Diagnosis(const Diagnosis&) = delete;
  Diagnosis& operator=(const Diagnosis&) = delete;

  // Called after each log line. Applies the rules, but at most once a second, and returns how the findings changed; nullopt if
  // the rules were not applied.
  [[nodiscard]] std::optional<doctor::Watch::Change> look(const StepRecord& record, MemorySeen memory);
  void saw_validation(double loss, double seconds, const doctor::Evidence::Judged& judged);
  void saw_copied(const Batch& batch);  // called with a batch after its copy to the device
  void saw_batch(const Batch& batch);   // called with a prepared micro-batch
  // Called before the first step, with the number of steps that earlier processes of the run skipped.
  void began(double skipped) noexcept { skipped_before_ = skipped; }
  void saw_skipped_input(doctor::Evidence::SkippedInput seen) { numbers_.input = std::move(seen); }
  void saw_peak(std::uint64_t bytes) noexcept;  // called with the most bytes of tensors on a GPU
  // Called with the times of each rank since the last call.
  void saw_ranks(const std::vector<doctor::Evidence::RankTimes>& times);
  void saw_machine(const doctor::Sampler::MachineReading& reading);  // called with a reading that covers the time since the
                                                                     // last call, or since the first log line
  void saw_snapshot() noexcept { ++saves_; }
  // Makes the doctor's trials that are due; each trial is made once in a run. A trial is due if all trials so far and this one
  // take at most the share log.doctor_trials of the run's time so far. Returns true if a trial was made.
  bool try_when_due();
  [[nodiscard]] double seconds() const noexcept { return seconds_; }  // time that the diagnosis itself took
  [[nodiscard]] const DoctorTrials& trials() const noexcept { return trials_; }
  [[nodiscard]] std::vector<doctor::Finding> holding() const { return watch_.holding(); }
  [[nodiscard]] doctor::Evidence of_the_run() const;  // evidence from the first log line until now; empty before that line

 private:
  // The values, at one moment, of all sums that only grow. The difference of two marks describes the time between them.
  struct Mark {
    double at = 0;
    telemetry::Timeline::Summary times;
    std::int64_t lines = 0, saves = 0, validations = 0, recompute_ns = 0, step = 0, samples = 0, validation_batches = 0;
    double validation_seconds = 0;
    double cpu_seconds = 0;                                     // CPU time of the process
    double skipped = 0, spikes = 0, others = 0, others_of = 0;  // others: seconds in which other programs used the cores, out of
                                                                // others_of observed seconds
    data::Loader::Counters read;
    std::map<std::string, double> slow;
    std::vector<nn::ClampCount> clamps;
    std::int64_t batches = 0, shapes = 0;
    std::vector<doctor::Evidence::RankTimes> ranks;
    doctor::GpuUse gpu;
    DeviceTimes::Sums device;
  };
  [[nodiscard]] telemetry::Timeline::Summary total_times() const;
  [[nodiscard]] Mark mark() const;
  void note_losses(const StepRecord& record);
  [[nodiscard]] double seconds_of_next_trial(const telemetry::Timeline::Summary& so_far) const;
  [[nodiscard]] doctor::Evidence evidence(const Mark& from, const Mark& to) const;
  [[nodiscard]] doctor::Evidence::Input input(const Mark& from, const Mark& to) const;
  [[nodiscard]] Reached reached(const Mark& from, const Mark& to, const doctor::Evidence& seen) const;

  Parts parts_;
  doctor::Watch watch_;
  std::deque<Mark> marks_;  // marks of the latest calls of look()
  std::optional<Mark> first_;
  std::int64_t step_ = 0, samples_ = 0, lines_ = 0, saves_ = 0, validations_ = 0, validation_batches_ = 0;
  double validation_seconds_ = 0;
  double skipped_before_ = 0;
  double skipped_ = 0, spikes_ = 0, others_ = 0, others_of_ = 0;
  double looked_ = 0, seconds_ = 0;
  MemorySeen memory_;
  std::uint64_t most_held_ = 0;
  doctor::Evidence::Numbers numbers_;
  ShapesSeen shapes_;
  std::vector<doctor::Evidence::RankTimes> ranks_;  // sums since the run began
  std::vector<double> step_ms_;
  doctor::GpuUse gpu_;
  doctor::ClockUse clock_;
  std::optional<double> copied_floats_;
  std::unique_ptr<RemedyTrials> remedies_;  // null: no trial has been due yet
  double asked_for_trials_ = 0;             // steady-clock time, in seconds, at which try_when_due() last looked whether a trial
                                            // is due
  double trial_seconds_ = 0;
  DoctorTrials trials_;
};

}  // namespace millrace
