// Records what the process's loop (training, for example) is doing now, so that a run's watchdog and the crash handler can
// report it when the loop itself can't. Any thread and any signal handler may read the record; a write costs a few stores. If
// several threads have scopes (objects of class Doing), only the scopes of one thread are recorded: the first thread that opens
// a scope, until its outermost scope has ended.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace millrace {

// Names what the loop does while this object exists; scopes nest. The text is copied (cut to fit), so it can be read after the
// scope has ended.
class Doing {
 public:
  enum class Level : std::uint8_t { task, phase, subject };  // an example of each: "trial of bf16", "backward", "generator"
  using Text = std::array<char, 64>;                         // the text ends with a zero byte
  Doing(Level level, const char* text) noexcept;
  ~Doing();
  Doing(const Doing&) = delete;
  Doing& operator=(const Doing&) = delete;

 private:
  Level level_;
  bool counts_;
  Text before_{};
};

void doing_step(std::int64_t step) noexcept;  // 1-based; 0 = no step
// Records the operation that begins now. `name` must stay valid until the process ends; `detail` (shapes) is copied and cut to
// fit.
void doing_operation(const char* name, const char* detail) noexcept;
void doing_moved() noexcept;  // call when an operation has ended; changes doing_beat()

// Returns a number that changes whenever a scope begins or ends, an operation begins, or doing_moved() is called.
[[nodiscard]] std::uint64_t doing_beat() noexcept;
// Writes "step 12, backward of generator, aten::convolution_backward [2, 8] x [16, 8]" into `text`, zero-terminated, and returns
// its length. Writes "" if nothing is known. Allocates nothing, takes no lock.
std::size_t describe_doing(char* text, std::size_t size) noexcept;
[[nodiscard]] Doing::Text doing_now(Doing::Level level) noexcept;  // "" = nothing; during a write, old and new text may be mixed

}  // namespace millrace
