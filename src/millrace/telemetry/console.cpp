#include "millrace/telemetry/console.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "millrace/base/clock.h"
#include "millrace/base/format.h"
#include "millrace/base/utf8.h"

namespace millrace::telemetry {
namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr int kUsualWidth = 80;
constexpr double kSmall = 0.1;           // below this, four decimals show fewer than four significant digits
constexpr std::string_view kGap = "  ";  // between the parts of a progress line
constexpr std::string_view kEraseLine = "\r\x1b[2K";
constexpr std::string_view kBold = "\x1b[1m";
constexpr std::string_view kYellow = "\x1b[33m";
constexpr std::string_view kPlain = "\x1b[0m";

// Writes the whole text. Returns false if part of it was lost.
bool write_all(int descriptor, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {  // another program on the same terminal may have set O_NONBLOCK
      pollfd ready{.fd = descriptor, .events = POLLOUT, .revents = 0};
      if (::poll(&ready, 1, -1) < 0 && errno != EINTR) return false;
      continue;
    }
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

bool is_capable_terminal(int descriptor) {
  const char* kind = std::getenv("TERM");
  return ::isatty(descriptor) == 1 && !(kind != nullptr && std::string_view(kind) == "dumb");
}

// Returns false if the environment turns colours off: NO_COLOR is present and not empty (https://no-color.org).
bool wants_colour() {
  const char* word = std::getenv("NO_COLOR");
  return word == nullptr || *word == '\0';
}

std::size_t columns_of(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); at += decode_utf8(text, at).size) ++count;
  return count;
}

std::string first_columns(std::string_view text, std::size_t most) {
  std::size_t at = 0;
  for (std::size_t count = 0; at < text.size() && count < most; ++count) at += decode_utf8(text, at).size;
  return std::string(text.substr(0, at));
}

std::string step_part(const Console::Progress& progress) {
  std::string step = std::to_string(progress.step);
  if (progress.total_steps <= 0) return "step " + step;
  const std::string total = std::to_string(progress.total_steps);
  if (step.size() < total.size()) step.insert(0, total.size() - step.size(), ' ');
  return "step " + step + "/" + total;
}

// Returns the parts of a progress line, most important first, because a narrow terminal omits the last ones.
std::vector<std::string> parts_of(const Console::Progress& progress) {
  if (progress.step == 0 && !progress.extra.empty()) return {progress.extra};
  std::vector<std::string> parts = {
      step_part(progress), "epoch " + std::to_string(progress.epoch),
      "loss " + (std::abs(progress.loss) < kSmall ? figure(progress.loss) : fixed(progress.loss, 4))};
  if (progress.learning_rate) parts.push_back("lr " + significant(*progress.learning_rate, 3));
  if (!progress.rate_unit.empty()) parts.push_back(human_rate(progress.rate) + " " + progress.rate_unit);
  parts.push_back("wait " + percent(progress.data_wait_share));
  if (progress.eta_seconds) parts.push_back("ETA " + human_duration(*progress.eta_seconds));
  if (!progress.extra.empty()) parts.push_back(progress.extra);
  return parts;
}

std::string fitted(const Console::Progress& progress, int width) {
  const auto most = static_cast<std::size_t>(width > 1 ? width - 1 : 1);  // text in the last column wraps on some terminals
  std::vector<std::string> parts = parts_of(progress);
  while (parts.size() > 1 && columns_of(joined(parts, kGap)) > most) parts.pop_back();
  return first_columns(joined(parts, kGap), most);
}

}  // namespace

std::string in_lines(const Console& console, const std::vector<std::string>& parts) {
  constexpr int kWithoutTerminal = 100;
  const int width = console.is_terminal() ? console.width() : kWithoutTerminal;
  return wrapped(parts, kGap, static_cast<std::size_t>(width), "    ");
}

std::string to_text(const Console::Progress& progress) { return joined(parts_of(progress), kGap); }

struct Console::Impl {
  Impl(Mode mode, int file_descriptor)
      : descriptor(file_descriptor),
        is_quiet(mode == Mode::quiet),
        is_terminal(mode == Mode::automatic && is_capable_terminal(file_descriptor)),
        has_colour(is_terminal && wants_colour()),
        warns_in_colour(mode == Mode::automatic && is_capable_terminal(STDERR_FILENO) && wants_colour()) {}

  [[nodiscard]] int width() const noexcept {
    winsize size{};
    return is_terminal && ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsualWidth;
  }
  // Prints the text, and below it the progress line again, in a single write, so that nothing flickers.
  void print(std::string_view text) {
    std::string out = drawn.empty() ? "" : std::string(kEraseLine);
    out.append(text).append("\n").append(drawn);
    has_failed = !write_all(descriptor, out) || has_failed;
  }

  const int descriptor;
  const bool is_quiet;
  const bool is_terminal;
  const bool has_colour;
  const bool warns_in_colour;
  std::mutex mutex;   // guards the members below and the order of output
  std::string drawn;  // the progress line on the screen
  double drawn_at = 0;
  bool has_failed = false;
};

Console::Console(Mode mode, int file_descriptor) : impl_(std::make_unique<Impl>(mode, file_descriptor)) {}

Console::~Console() { end_progress(); }

void Console::line(std::string_view text) {
  if (impl_->is_quiet) return;
  const std::lock_guard lock(impl_->mutex);
  impl_->print(text);
}

void Console::heading(std::string_view text) {
  if (!impl_->has_colour) return line(text);
  line(std::string(kBold).append(text).append(kPlain));
}

void Console::notice(std::string_view text) { line("note: " + std::string(text)); }

void Console::warning(std::string_view text) {
  std::string out = "warning: " + std::string(text);
  if (impl_->warns_in_colour) out = std::string(kYellow).append(out).append(kPlain);
  const std::lock_guard lock(impl_->mutex);
  if (!impl_->drawn.empty()) write_all(impl_->descriptor, kEraseLine);
  write_all(STDERR_FILENO, out.append("\n"));
  if (!impl_->drawn.empty()) write_all(impl_->descriptor, impl_->drawn);
}

void Console::progress(const Progress& progress) {
  if (!impl_->is_terminal) return;
  const std::lock_guard lock(impl_->mutex);
  const double now = steady_seconds();
  if (!impl_->drawn.empty() && now - impl_->drawn_at < kRedrawSeconds) return;
  impl_->drawn_at = now;
  impl_->drawn = fitted(progress, impl_->width());
  write_all(impl_->descriptor, std::string(kEraseLine).append(impl_->drawn));
}

void Console::end_progress() {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->drawn.empty()) return;
  write_all(impl_->descriptor, kEraseLine);
  impl_->drawn.clear();
}

bool Console::has_failed() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->has_failed;
}

bool Console::is_terminal() const noexcept { return impl_->is_terminal; }

int Console::width() const noexcept { return impl_->width(); }

}  // namespace millrace::telemetry
