#include "millrace/train/recipe/entry.h"

#include <algorithm>

#include "millrace/train/recipe/switchboard.h"

namespace millrace {

bool reaches(const Entry& entry, const SwitchRow& row) {
  return !row.occasion.named || entry.switches.empty() || std::ranges::count(entry.switches, row.name) > 0;
}

}  // namespace millrace
