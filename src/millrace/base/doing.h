// What the process's loop is doing, for whoever has to say it when the loop itself can't: the watchdog of a run, and the line of
// a crash. Read by any thread and by signal handlers; a write costs a few stores. Where several threads have scopes, those of
// the first one count until they have ended.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace millrace {

// Until destruction; scopes nest. The text is copied, as far as there is room: who reads it may do so when the scope is gone.
class Doing {
 public:
  enum class Level : std::uint8_t { task, phase, subject };  // "trial of bf16", "backward", "generator"
  using Text = std::array<char, 64>;                         // ended by 0
  Doing(Level level, const char* text) noexcept;
  ~Doing();
  Doing(const Doing&) = delete;
  Doing& operator=(const Doing&) = delete;

 private:
  Level level_;
  bool counts_;
  Text before_{};
};

void doing_step(std::int64_t step) noexcept;  // 1-based; 0 = none
// The operation that begins now; `name` lives for ever, `detail` (shapes) is copied as far as there is room.
void doing_operation(const char* name, const char* detail) noexcept;
void doing_moved() noexcept;  // something came to an end: see doing_beat()

// Changes whenever a scope begins or ends, an operation begins, or doing_moved() is called.
[[nodiscard]] std::uint64_t doing_beat() noexcept;
// Writes "step 12, backward of generator, aten::convolution_backward [2, 8] x [16, 8]" into `text`, ended by 0; "" when nothing
// is known. Returns its length. Allocates nothing, takes no lock.
std::size_t describe_doing(char* text, std::size_t size) noexcept;
[[nodiscard]] Doing::Text doing_now(Doing::Level level) noexcept;  // "": nothing. While it changes it may be a mixture

}  // namespace millrace
