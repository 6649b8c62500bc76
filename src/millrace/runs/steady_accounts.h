// Selects the accounts of time that can be compared between two runs of the same steps.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace millrace::runs {

// True for accounts that can be compared. False for the time of other programs, and for accounts that occur once in a run, have
// too much weight in a short run or contain the time for recording a profile.
[[nodiscard]] constexpr bool is_steady(std::string_view account) noexcept {
  constexpr std::array<std::string_view, 5> kOther = {"startup", "trials", "validate", "profile", "others"};
  return std::ranges::find(kOther, account) == kOther.end();
}

}  // namespace millrace::runs
