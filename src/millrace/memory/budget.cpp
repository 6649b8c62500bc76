#include "millrace/memory/budget.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <system_error>

namespace millrace::memory {

std::uint64_t Budget::bytes(std::uint64_t plain_peak) const noexcept {
  return static_cast<std::uint64_t>(std::llround(is_share ? amount * static_cast<double>(plain_peak) : amount));
}

std::optional<Budget> parse_budget(std::string_view text) {
  double amount = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), amount);
  if (error != std::errc() || !std::isfinite(amount) || amount <= 0) return std::nullopt;
  std::string_view unit(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  if (unit == "%") return Budget{amount / 100, true};
  struct Unit {
    std::string_view name;
    double factor;
  };
  constexpr double kKi = 1024;
  constexpr std::array kUnits = {
      Unit{"", 1},     Unit{"B", 1},     Unit{"kB", 1e3},  Unit{"KB", 1e3},        Unit{"MB", 1e6},
      Unit{"GB", 1e9}, Unit{"TB", 1e12}, Unit{"KiB", kKi}, Unit{"MiB", kKi * kKi}, Unit{"GiB", kKi * kKi * kKi}};
  const auto found = std::ranges::find(kUnits, unit, &Unit::name);
  constexpr double kMost = 1e15;  // a petabyte: a larger amount is a typing error
  if (found == kUnits.end() || amount * found->factor > kMost) return std::nullopt;
  return Budget{amount * found->factor, false};
}

}  // namespace millrace::memory
