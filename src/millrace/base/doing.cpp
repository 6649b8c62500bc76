#include "millrace/base/doing.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstring>
#include <tuple>

namespace millrace {
namespace {

constexpr std::size_t kLevels = 3;
constexpr std::size_t kWords = 32;  // number of 8-byte words that hold an operation's detail
constexpr std::size_t kTextWords = std::tuple_size_v<Doing::Text> / 8;
constexpr auto kRelaxed = std::memory_order_relaxed;

// Texts are copied, because the watchdog's thread may read a text after its scope has ended.
using TextWords = std::array<std::atomic<std::uint64_t>, kTextWords>;

struct State {
  std::array<TextWords, kLevels> levels{};
  std::atomic<std::int64_t> step{0};
  std::atomic<const char*> operation{nullptr};
  std::array<std::atomic<std::uint64_t>, kWords> detail{};
  std::atomic<std::uint64_t> beat{0};
  std::atomic<const void*> owner{nullptr};  // the thread whose scopes are recorded; null while it has no open scope
};
constinit State state;
static_assert(std::atomic<const char*>::is_always_lock_free && std::atomic<std::uint64_t>::is_always_lock_free,
              "read by signal handlers");

TextWords& of(Doing::Level level) noexcept { return state.levels[static_cast<std::size_t>(level)]; }

void write(TextWords& to, const Doing::Text& text) noexcept {
  for (std::size_t i = 0; i < kTextWords; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + 8 * i, 8);
    to[i].store(word, kRelaxed);
  }
}

Doing::Text cut(const char* text) noexcept {
  Doing::Text copy{};
  std::memcpy(copy.data(), text, std::min(std::strlen(text), copy.size() - 1));
  return copy;
}

// A plain load and store suffice: if several threads write at once, some beats may be lost, but not all of them.
void moved() noexcept { state.beat.store(state.beat.load(kRelaxed) + 1, kRelaxed); }

// Number of this thread's open scopes that are recorded. If several loops run in one process, only the scopes of the first loop
// are recorded, because scopes of different loops do not nest.
thread_local int nesting = 0;

bool enter() noexcept {
  const void* none = nullptr;
  if (nesting == 0 && !state.owner.compare_exchange_strong(none, &nesting, kRelaxed)) return false;
  ++nesting;
  return true;
}

void leave() noexcept {
  if (--nesting == 0) state.owner.store(nullptr, kRelaxed);
}

struct Text {
  char* begin;
  std::size_t room, used = 0;
  void add(const char* more) noexcept {
    for (; *more != '\0' && used + 1 < room; ++more) begin[used++] = *more;
  }
};

}  // namespace

Doing::Doing(Level level, const char* text) noexcept : level_(level), counts_(enter()) {
  if (counts_) {
    before_ = doing_now(level);
    write(of(level), cut(text));
  }
  moved();
}

Doing::~Doing() {
  if (counts_) {
    write(of(level_), before_);
    state.operation.store(nullptr, kRelaxed);
    leave();
  }
  moved();
}

void doing_step(std::int64_t step) noexcept {
  state.step.store(step, kRelaxed);
  moved();
}

void doing_operation(const char* name, const char* detail) noexcept {
  const std::size_t size = std::min(std::strlen(detail), 8 * kWords - 1);
  for (std::size_t i = 0; i <= size / 8; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, detail + 8 * i, std::min<std::size_t>(8, size - 8 * i));
    state.detail[i].store(word, kRelaxed);
  }
  state.operation.store(name, kRelaxed);
  moved();
}

void doing_moved() noexcept { moved(); }

std::uint64_t doing_beat() noexcept { return state.beat.load(kRelaxed); }

Doing::Text doing_now(Doing::Level level) noexcept {
  const TextWords& from = of(level);
  Doing::Text text{};
  for (std::size_t i = 0; i < kTextWords; ++i) {
    const std::uint64_t word = from[i].load(kRelaxed);
    std::memcpy(text.data() + 8 * i, &word, 8);
  }
  text.back() = '\0';
  return text;
}

std::size_t describe_doing(char* text, std::size_t size) noexcept {
  if (size == 0) return 0;
  Text out{text, size};
  const auto separate = [&out] {
    if (out.used > 0) out.add(", ");
  };
  out.add(doing_now(Doing::Level::task).data());
  if (const std::int64_t step = state.step.load(kRelaxed); step > 0 && out.used == 0) {
    std::array<char, 24> digits{};
    std::to_chars(digits.data(), digits.data() + digits.size() - 1, step);
    out.add("step ");
    out.add(digits.data());
  }
  const Doing::Text phase = doing_now(Doing::Level::phase);
  const Doing::Text subject = doing_now(Doing::Level::subject);
  const bool has_phase = phase.front() != '\0';
  if (has_phase) {
    separate();
    out.add(phase.data());
  }
  if (subject.front() != '\0') {  // even without a phase the subject shows whether a rank waits for others
    if (has_phase) out.add(" of ");
    if (!has_phase) separate();
    out.add(subject.data());
  }
  if (const char* operation = state.operation.load(kRelaxed)) {
    separate();
    out.add(operation);
    std::array<char, 8 * kWords + 1> detail{};
    for (std::size_t i = 0; i < kWords; ++i) {
      const std::uint64_t word = state.detail[i].load(kRelaxed);
      std::memcpy(detail.data() + 8 * i, &word, 8);
    }
    if (detail[0] != '\0') out.add(" ");
    out.add(detail.data());
  }
  text[out.used] = '\0';
  return out.used;
}

}  // namespace millrace
