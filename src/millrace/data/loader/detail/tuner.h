// Chooses the number of readers and of batches ahead from measurements. Without clocks and threads, so that it is tested with
// numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace millrace::data::detail {

// Measurements since the last call of look().
struct Measured {
  double seconds = 0;         // wall time
  double waited = 0;          // of these, seconds the consumer waited in next()
  std::uint64_t batches = 0;  // delivered
  double read_seconds = 0;    // summed over readers: inside Source::read
  double cpu_seconds = 0;     // summed over readers: on a core or queued for one
  double slowest_read = 0;    // longest ticket
};

struct Limits {
  bool chooses_readers = true;  // false: the number was configured
  int cores = 1;                // CPU-bound readers do not exceed them
  int max_readers = 64;         // waiting readers do not exceed this
  std::size_t tickets = 1;      // per batch
  std::size_t max_ahead = 2;    // batches that the byte budget allows
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

// Raises both while the consumer waits, until waiting ends or the rate stops improving; never goes below the initial values.
// Rules:
//   readers  the time inside reads over the time the consumer does not wait, at most doubled at a time. Readers that
//            compute stay within the cores, readers that sleep a share s of their time within cores / (1 - s).
//   ahead    slowest read / time of a batch + 1, and enough tickets for all readers, so that a slow sample does not block the
//            consumer. Raised only while readers pause, and undone if it does not help.
class Tuner {
 public:
  explicit Tuner(Limits limits) : limits_(limits) {}
  // True if there is enough data to decide; otherwise keep measuring: a slow read in a short interval means little.
  [[nodiscard]] static bool enough(const Measured& measured) noexcept;
  // The next setting; nullopt = no change.
  std::optional<Change> look(const Stages& now, const Measured& measured);

 private:
  [[nodiscard]] int readers_for(int now, const Measured& measured) const;
  [[nodiscard]] std::size_t ahead_for(const Stages& now, int readers, const Measured& measured) const;

  Limits limits_;
  Stages before_;           // the setting before the last change ...
  double rate_before_ = 0;  // ... and its batches per second; 0 = nothing to compare with
  bool settled_ = false;    // more readers made it slower: add no more
  bool ahead_settled_ = false;
};

}  // namespace millrace::data::detail
