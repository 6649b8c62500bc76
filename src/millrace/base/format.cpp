#include "millrace/base/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "millrace/base/utf8.h"

namespace millrace {
namespace {

// Longer words are not compared, because the cost is quadratic and the words come from users.
constexpr std::size_t kLongestWord = 128;

// Returns "nan", "inf" or "-inf"; "" for a finite number.
std::string spelled_out(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return "";
}

std::string without_trailing_zeros(std::string text) {
  if (text.find('.') == std::string::npos) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

// Returns the optimal string alignment distance: an insertion, deletion, substitution or swap of neighbours costs 1.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> previous(b.size() + 1);
  std::vector<std::size_t> current(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    current[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      current[j] = std::min({previous[j] + 1, current[j - 1] + 1, previous[j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) current[j] = std::min(current[j], before[j - 2] + 1);
    }
    std::swap(before, previous);
    std::swap(previous, current);
  }
  return previous[b.size()];
}

struct Step {
  double size;
  const char* name;
};

bool is_numeric(const std::string& cell) {
  return cell.empty() || std::isdigit(static_cast<unsigned char>(cell[0])) != 0 || cell[0] == '-' || cell[0] == '+';
}

// Returns the columns of UTF-8 text on a terminal: the number of bytes that do not continue a character.
std::size_t columns_of(const std::string& cell) {
  return static_cast<std::size_t>(
      std::count_if(cell.begin(), cell.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

}  // namespace

std::string with_commas(std::int64_t value) {
  std::string digits = std::to_string(value);
  const std::size_t first = value < 0 ? 1 : 0;
  for (std::size_t at = digits.size(); at > first + 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

std::string human_bytes(double bytes) {
  if (!std::isfinite(bytes)) return spelled_out(bytes) + " B";
  constexpr std::array<Step, 7> kSteps = {
      {{1, "B"}, {1e3, "kB"}, {1e6, "MB"}, {1e9, "GB"}, {1e12, "TB"}, {1e15, "PB"}, {1e18, "EB"}}};
  std::size_t k = 0;
  while (k + 1 < kSteps.size() && std::abs(bytes) >= kSteps[k + 1].size * (k == 0 ? 1 : 0.9995)) ++k;
  const double value = bytes / kSteps[k].size;
  // Shows at most three digits: 3.1 GB, 31 GB, 312 GB.
  const bool shows_tenth = k > 0 && std::abs(value) < 9.95;
  return fmt::format("{:.{}f} {}", value, shows_tenth ? 1 : 0, kSteps[k].name);
}

std::string human_duration(double seconds) {
  if (!std::isfinite(seconds)) return spelled_out(seconds) + " s";
  if (seconds < 0) return "-" + human_duration(-seconds);
  if (seconds < 9.95) return fmt::format("{:.1f} s", seconds);
  if (seconds < 59.5) return fmt::format("{:.0f} s", seconds);
  if (seconds >= 1e15) return fmt::format("{:.0e} s", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  const std::int64_t minutes = (whole + 30) / 60;
  constexpr std::int64_t day_minutes = 1440;
  if (minutes < day_minutes) return fmt::format("{} h {:02} min", minutes / 60, minutes % 60);
  const std::int64_t hours = (whole + 1800) / 3600;
  return fmt::format("{} d {} h", hours / 24, hours % 24);
}

std::string human_rate(double per_second) {
  if (!std::isfinite(per_second)) return spelled_out(per_second);
  constexpr std::array<Step, 5> kSteps = {{{1, ""}, {1e3, "k"}, {1e6, "M"}, {1e9, "G"}, {1e12, "T"}}};
  std::size_t k = 0;
  while (k + 1 < kSteps.size() && std::abs(per_second) >= kSteps[k + 1].size * 0.9995) ++k;
  const double value = per_second / kSteps[k].size;
  const double magnitude = std::abs(value);
  const int digits = magnitude >= 99.95 ? 0 : magnitude >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}", value, digits, kSteps[k].name);
}

std::string fixed(double value, int digits) {
  const std::string special = spelled_out(value);
  return special.empty() ? fmt::format("{:.{}f}", value, std::max(digits, 0)) : special;
}

namespace {

std::string with_digits(double value, int digits, int least_exponent) {
  std::string special = spelled_out(value);
  if (!special.empty()) return special;
  if (value == 0) return "0";
  const std::string scientific = fmt::format("{:.{}e}", value, std::max(digits, 1) - 1);
  const std::size_t e = scientific.find('e');
  const int exponent = std::stoi(scientific.substr(e + 1));
  if (exponent < least_exponent || exponent >= 6) return without_trailing_zeros(scientific.substr(0, e)) + scientific.substr(e);
  // Formats the rounded number without an exponent. `exponent` already accounts for a carry such as 9.99 -> 10.
  return without_trailing_zeros(fmt::format("{:.{}f}", std::stod(scientific), std::max(digits - 1 - exponent, 0)));
}

}  // namespace

std::string significant(double value, int digits) { return with_digits(value, digits, -3); }

std::string lasting(double value, int digits) { return with_digits(value, digits, -2); }

std::string figure(double value) {
  constexpr double kLeast = 1e-3, kMost = 100;  // numbers in this range are readable as decimals
  const double size = std::abs(value);
  if (size >= kLeast && size < 0.1)
    return fixed(value, size < 0.01 ? 6 : 5);  // small numbers get more decimals, so that four significant digits are shown
  return size == 0 || (size >= kLeast && size < kMost) || !std::isfinite(value) ? fixed(value, 4)
                                                                                : significant(value, size < kLeast ? 4 : 6);
}

std::string wrapped(const std::vector<std::string>& parts, std::string_view gap, std::size_t width, std::string_view indent) {
  const auto columns = [](std::string_view text) {
    return static_cast<std::size_t>(
        std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
  };
  std::string text;
  std::size_t used = 0;
  for (const std::string& part : parts) {
    const bool begins = text.empty();
    const std::size_t more = columns(part) + (begins ? 0 : gap.size());
    const bool breaks = !begins && used + more > width;
    text.append(begins ? "" : breaks ? "\n" : gap).append(breaks ? indent : "").append(part);
    used = breaks ? indent.size() + columns(part) : used + more;
  }
  return text;
}

std::string percent(double fraction, int digits) { return fixed(fraction * 100, digits) + " %"; }

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    const auto byte = static_cast<unsigned char>(text[at]);
    if (!step.valid) {
      result += fmt::format("\\x{:02x}", byte);
      ++at;
      continue;
    }
    if (step.code_point == '"' || step.code_point == '\\') {
      result += '\\';
      result += static_cast<char>(byte);
    } else if (step.code_point == '\n') {
      result += "\\n";
    } else if (step.code_point == '\t') {
      result += "\\t";
    } else if (step.code_point < 0x20 || step.code_point == 0x7F) {
      result += fmt::format("\\x{:02x}", byte);
    } else if (step.code_point >= 0x80 && step.code_point < 0xA0) {
      result += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(step.code_point));  // terminals obey C1 controls too
    } else {
      result += text.substr(at, step.size);
    }
    at += step.size;
  }
  return result + '"';
}

std::string printable(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    const bool is_control = step.code_point < 0x20 || (step.code_point >= 0x7F && step.code_point < 0xA0);
    if (!step.valid || is_control) return quoted(text);
    at += step.size;
  }
  return std::string(text);
}

std::string nearest(std::string_view word, const std::string* begin, const std::string* end) {
  if (word.empty() || word.size() > kLongestWord) return "";
  const std::size_t allowed = std::max<std::size_t>(1, word.size() / 3);
  std::size_t best_distance = allowed + 1;
  std::string best;
  for (const std::string* candidate = begin; candidate != end; ++candidate) {
    if (candidate->size() > kLongestWord) continue;
    const std::size_t distance = edit_distance(word, *candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = *candidate;
    }
  }
  return best;
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  std::vector<bool> to_the_right;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    widths.resize(std::max(widths.size(), rows[r].size()));
    to_the_right.resize(widths.size(), true);
    for (std::size_t c = 0; c < rows[r].size(); ++c) {
      widths[c] = std::max(widths[c], columns_of(rows[r][c]));
      to_the_right[c] = to_the_right[c] && (r == 0 || is_numeric(rows[r][c]));
    }
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string padding(widths[c] - columns_of(row[c]), ' ');
      line += (c == 0 ? "" : "  ") + (to_the_right[c] ? padding + row[c] : row[c] + padding);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace millrace
