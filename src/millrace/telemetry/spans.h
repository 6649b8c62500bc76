// Shows where a run's time goes. The accounts cover every second of the loop's thread, without locks in the hot path.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/clock.h"
#include "millrace/base/doing.h"
#include "millrace/telemetry/counter.h"

namespace millrace::telemetry {

// The accounts: at each moment the loop's thread is in exactly one account.
enum class Phase : std::uint8_t {
  startup,  // until the first step begins
  trials,   // trials of number formats, layouts, kernels and memory, and the rehearsal
  data_wait,
  copy,  // copy of a batch to the device
  prepare,
  forward,
  backward,
  reduction,  // exchange of gradients and everything else between ranks
  optimizer,
  metrics,
  log,
  snapshot,
  validate,  // validation, with its pictures and samples
  profile,   // recording operations, if the config asks for it
  rest       // time that no span covers
};
inline constexpr std::size_t kPhases = 15;
[[nodiscard]] std::string_view name_of(Phase phase) noexcept;

class Timeline;

// While a span exists, time counts for its phase, and reports of the running work show that phase (base/doing.h). Costs two
// clock reads. A nested span's time is not counted for the outer span, except inside a trial or a validation, for which all time
// counts.
class Span {
 public:
  Span(Timeline& timeline, Phase phase) noexcept;
  ~Span();
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  Timeline* timeline_;
  Phase before_;
  Doing doing_;
};

// The accounts add up to the wall time since construction, to the nanosecond. Owned and used by the loop's thread; other threads
// count through Counter.
class Timeline {
 public:
  using Clock = std::int64_t (*)() noexcept;  // returns the time in nanoseconds
  explicit Timeline(Clock clock = &steady_nanoseconds) noexcept;
  void began_earlier(std::int64_t nanoseconds) noexcept;  // moves the start back by this time, which is counted as `startup`

  void begin_step() noexcept;
  void end_step();
  void drop_step() noexcept { in_step_ = false; }  // ends the current step without counting it
  [[nodiscard]] Phase phase() const noexcept { return phase_; }
  Phase enter(Phase phase) noexcept;  // returns the previous phase; Span calls this and leave()
  void leave(Phase before) noexcept { turn_to(before); }

  struct Summary {
    std::int64_t steps = 0;
    double step_ms_p50 = 0, step_ms_p95 = 0;  // estimated from a bounded reservoir
    double step_seconds = 0;                  // sum of all steps, without the time between them
    double wall = 0;                          // wall time in seconds
    std::array<double, kPhases> seconds{};    // seconds of each account; they sum to `wall`
    [[nodiscard]] double of(Phase phase) const noexcept { return seconds[static_cast<std::size_t>(phase)]; }
    [[nodiscard]] double loop() const noexcept { return wall - of(Phase::startup) - of(Phase::trials); }
    [[nodiscard]] double share(Phase phase) const noexcept;  // the phase's share of loop(); 0 for phases before the loop
  };
  [[nodiscard]] Summary window() const;  // what has happened since the last reset_window()
  void reset_window();
  [[nodiscard]] Summary total() const;  // what has happened since construction

 private:
  struct Accumulated {
    std::int64_t steps = 0;
    std::int64_t step_ns = 0;
    std::array<std::int64_t, kPhases> phase_ns{};
    std::vector<float> step_ms;  // all steps at first, then a uniform sample
    void add_step(std::int64_t nanoseconds);
  };
  void turn_to(Phase phase) noexcept;
  [[nodiscard]] Summary summary(const Accumulated& of) const;

  Clock clock_;
  Phase phase_ = Phase::startup;
  std::int64_t since_ns_;  // when `phase_` began
  Accumulated window_;
  Accumulated total_;
  std::int64_t step_begin_ns_ = 0;
  bool in_step_ = false;
};

}  // namespace millrace::telemetry
