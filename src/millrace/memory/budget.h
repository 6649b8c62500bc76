// Amounts of memory as people write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace millrace::memory {

// "800 MB", "1.5GiB", "123456" (bytes), or "60 %" of the peak without recompute.
struct Budget {
  double amount = 0;
  bool is_share = false;  // of the plain peak, 1 = all of it
  [[nodiscard]] std::uint64_t bytes(std::uint64_t plain_peak) const noexcept;
};
// Reads such an amount, which must be above zero; nullopt for other text.
[[nodiscard]] std::optional<Budget> parse_budget(std::string_view text);

}  // namespace millrace::memory
