// Chooses the number of readers and of batches ahead from measurements. It uses neither clocks nor threads, so that tests can
// give it numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace millrace::data::detail {

// Measurements since the last call of look().
struct Measured {
  double seconds = 0;         // wall time
  double waited = 0;          // the part of `seconds` that the consumer waited in next()
  std::uint64_t batches = 0;  // number of batches that were delivered
  double read_seconds = 0;    // time inside Source::read, summed over readers
  double cpu_seconds = 0;     // time on a core or waiting for one, summed over readers
  double slowest_read = 0;    // the longest time that a ticket took
};

struct Limits {
  bool chooses_readers = true;  // false: the config sets the number of readers
  int cores = 1;                // the most readers, if readers compute
  int max_readers = 64;         // the most readers, if readers wait for a disk or a network
  std::size_t tickets = 1;      // number of tickets in a batch
  std::size_t max_ahead = 2;    // the number of batches ahead for which the loader's buffer has room
};

struct Stages {
  int readers = 0;
  std::size_t ahead = 2;
  friend bool operator==(const Stages&, const Stages&) = default;
};

struct Change {
  Stages stages;
  std::string reason;  // the reason, as a line for people
};

// While the consumer waits, raises the number of readers and of batches ahead, until the waiting ends or the rate stops
// improving. Neither number falls below its initial value. The rules for the two numbers:
//   readers = 1.2 * time inside reads / time in which the consumer does not wait; at most doubled in one change. At most the
//             number of cores if readers compute; at most cores / (1 - s) if readers sleep a share s of their time.
//   ahead   = enough tickets for all readers and, while readers have pauses, at least slowest read / time of a batch + 1, so that
//             a slow sample does not block the consumer. Lowered again if it did not help.
class Tuner {
 public:
  explicit Tuner(Limits limits) : limits_(limits) {}
  // Returns true if there is enough data to decide. Otherwise the caller should continue to measure, because a slow read in a
  // short interval means little.
  [[nodiscard]] static bool enough(const Measured& measured) noexcept;
  // Returns the next setting and the reason; nullopt = no change.
  std::optional<Change> look(const Stages& now, const Measured& measured);

 private:
  [[nodiscard]] int readers_for(int now, const Measured& measured) const;
  [[nodiscard]] std::size_t ahead_for(const Stages& now, int readers, const Measured& measured) const;

  Limits limits_;
  Stages before_;           // the setting before the last change
  double rate_before_ = 0;  // batches per second with the setting before_; 0 = no rate to compare with
  bool settled_ = false;    // true: more readers made the loader slower, so no more are added
  bool ahead_settled_ = false;
};

}  // namespace millrace::data::detail
