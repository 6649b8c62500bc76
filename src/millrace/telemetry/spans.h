// Where a step's time goes: spans and counters per thread, without locks in the hot path.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/doing.h"

namespace millrace::telemetry {

// Phases of a step as the timeline reports them.
enum class Phase : std::uint8_t { data_wait, prepare, forward, backward, optimizer, log, validate, snapshot, other };
inline constexpr std::size_t kPhases = 9;
[[nodiscard]] std::string_view name_of(Phase phase) noexcept;

// Adds the time until its end to a phase of the current step, which is what the process is doing meanwhile (base/doing.h). Two
// clock reads and one add; nesting is the caller's business.
class Timeline;
class Span {
 public:
  Span(Timeline& timeline, Phase phase) noexcept;
  ~Span();
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  Timeline* timeline_;
  Phase phase_;
  std::int64_t begin_ns_;
  Doing doing_;
};

// Times of steps, and of what the loop does between them (validation, snapshots). Owned and used by the loop's thread; other
// threads count through Counter.
class Timeline {
 public:
  void begin_step() noexcept;
  void end_step();
  void drop_step() noexcept;  // what was under way is no step after all: its phases count as time between steps
  void add(Phase phase, std::int64_t nanoseconds) noexcept;
  struct Summary {
    std::int64_t steps = 0;
    double step_ms_p50 = 0, step_ms_p95 = 0;
    std::array<double, kPhases> share{};  // of all time that was counted, in steps and between them; sums to 1 (or all are 0)
    double seconds = 0;                   // sum of all steps, without what came between them
  };
  [[nodiscard]] Summary window() const;  // since the last reset_window()
  void reset_window();
  [[nodiscard]] Summary total() const;  // since construction; quantiles of both from a bounded reservoir

 private:
  struct Accumulated {
    std::int64_t steps = 0;
    std::int64_t step_ns = 0;
    std::int64_t between_ns = 0;
    std::array<std::int64_t, kPhases> phase_ns{};
    std::vector<float> step_ms;  // all of them at first, then an even sample
    void add(std::int64_t nanoseconds, const std::array<std::int64_t, kPhases>& phases);
    void add_between(Phase phase, std::int64_t nanoseconds) noexcept;
    [[nodiscard]] Summary summary() const;
  };
  std::array<std::int64_t, kPhases> current_{};
  Accumulated window_;
  Accumulated total_;
  std::int64_t step_begin_ns_ = 0;
  bool in_step_ = false;
};

// A named counter that any thread may bump: one cache line per thread, summed when read. Register once, keep for the process.
class Counter {
 public:
  explicit Counter(std::string_view name);  // same name = same counter
  void add(std::int64_t value) const noexcept;
  [[nodiscard]] std::int64_t total() const;

 private:
  std::uint32_t index_;
};

}  // namespace millrace::telemetry
