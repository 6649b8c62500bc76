// Reads amounts of memory as people write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace millrace::memory {

// An amount such as "800 MB", "1.5GiB", "123456" (bytes), or "60 %" of the peak without recomputing.
struct Budget {
  double amount = 0;
  bool is_share = false;  // `amount` is a share of the peak without recomputing; 1 = the whole peak
  [[nodiscard]] std::uint64_t bytes(std::uint64_t plain_peak) const noexcept;
};
// Reads an amount above zero; nullopt for any other text.
[[nodiscard]] std::optional<Budget> parse_budget(std::string_view text);

}  // namespace millrace::memory
