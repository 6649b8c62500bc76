// Which of a run's accounts two runs of the same steps have alike.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace millrace::runs {

// Not what comes once, what a short run has too much of, what is recorded for a person, and what other programs took.
[[nodiscard]] constexpr bool is_steady(std::string_view account) noexcept {
  constexpr std::array<std::string_view, 5> kOther = {"startup", "trials", "validate", "profile", "others"};
  return std::ranges::find(kOther, account) == kOther.end();
}

}  // namespace millrace::runs
