// Work of a device that is recorded once and can then be launched repeatedly as a whole.
#pragma once

namespace millrace::device {

// Belongs to the thread that recorded it. Keeps the memory of the recorded work until it is destroyed.
class Recording {
 public:
  Recording() = default;
  virtual ~Recording() = default;
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // Launches the whole work on the thread's current stream. The work reads and writes the same memory as when it was recorded,
  // so the launch overwrites the results of the previous replay.
  virtual void replay() = 0;
  // True if the work draws random numbers from the device's default generator. Each replay then starts at the generator's
  // present seed and position, and advances the generator as the work itself would.
  [[nodiscard]] virtual bool draws() const = 0;
};

}  // namespace millrace::device
