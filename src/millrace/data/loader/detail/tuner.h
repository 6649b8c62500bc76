// How many readers and how many batches ahead, from what was measured. No clock and no thread in it, so that it is tested with
// numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace millrace::data::detail {

// What happened since the last look.
struct Measured {
  double seconds = 0;         // on the wall
  double waited = 0;          // of them the consumer's, in next()
  std::uint64_t batches = 0;  // delivered
  double read_seconds = 0;    // summed over readers: inside Source::read
  double cpu_seconds = 0;     // summed over readers: on a core or queued for one
  double slowest_read = 0;    // longest ticket
};

struct Limits {
  bool chooses_readers = true;  // false: the number was configured
  int cores = 1;                // CPU-bound readers do not outnumber them
  int max_readers = 64;         // sleeping ones do not outnumber this
  std::size_t tickets = 1;      // of a batch
  std::size_t max_ahead = 2;    // what the byte budget allows
};

struct Stages {
  int readers = 0;
  std::size_t ahead = 2;
  friend bool operator==(const Stages&, const Stages&) = default;
};

struct Change {
  Stages stages;
  std::string reason;  // one line for people
};

// Waiting makes it take more, until waiting ends or the rate gets no better; it never takes less than it began with. Rules:
//   readers  the time inside reads over the time the consumer does not wait, at most doubled at a time. Readers that
//            compute stay within the cores, those that sleep a share s of their time within cores / (1 - s).
//   ahead    slowest read / time of a batch + 1, and enough tickets for all readers: a slow sample then holds up nobody. Only
//            while readers pause, and taken back when it gives nothing.
class Tuner {
 public:
  explicit Tuner(Limits limits) : limits_(limits) {}
  // Whether so much was seen that looking makes sense; else measure on: a slow read in a short interval says nothing.
  [[nodiscard]] static bool enough(const Measured& measured) noexcept;
  // nullopt = leave it.
  std::optional<Change> look(const Stages& now, const Measured& measured);

 private:
  [[nodiscard]] int readers_for(int now, const Measured& measured) const;
  [[nodiscard]] std::size_t ahead_for(const Stages& now, int readers, const Measured& measured) const;

  Limits limits_;
  Stages before_;           // the last change began here ...
  double rate_before_ = 0;  // ... at so many batches a second; 0 = nothing to compare with
  bool settled_ = false;    // more readers made it worse: no more of them
  bool ahead_settled_ = false;
};

}  // namespace millrace::data::detail
