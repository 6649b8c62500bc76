// Work of a device that is recorded once and then launched again as one piece.
#pragma once

namespace millrace::device {

// Belongs to the thread that recorded it; keeps the memory of its work until it is destroyed.
class Recording {
 public:
  Recording() = default;
  virtual ~Recording() = default;
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // Launches the whole work on the thread's current stream. It reads and writes the memory that it was recorded with: results of
  // the replay before are overwritten.
  virtual void replay() = 0;
  // Whether the work draws numbers of the device's default generator. If so, each replay begins at the generator's seed and
  // position of that moment, and moves it on as the work itself would.
  [[nodiscard]] virtual bool draws() const = 0;
};

}  // namespace millrace::device
