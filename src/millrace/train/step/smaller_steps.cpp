#include "millrace/train/step/smaller_steps.h"

#include <algorithm>

#include "millrace/base/format.h"

namespace millrace {

std::vector<SmallerStep> smaller_steps(std::uint64_t fixed, std::uint64_t peak, std::int64_t rows,
                                       const std::vector<Shrink>& ways) {
  const auto samples = static_cast<double>(peak - std::min(fixed, peak));
  const auto with = [&](double part) { return fixed + static_cast<std::uint64_t>(samples * part); };
  std::vector<SmallerStep> steps;
  if (rows > 1) {
    const std::int64_t half = rows / 2;
    steps.push_back({"data.batch_size=" + std::to_string(half), with(static_cast<double>(half) / static_cast<double>(rows))});
  }
  for (const Shrink& way : ways) steps.push_back({way.setting, with(way.part)});
  return steps;
}

std::string to_text(const std::vector<SmallerStep>& steps) {
  return joined(steps, ", ",
                [](const SmallerStep& step) { return step.setting + " " + human_bytes(static_cast<double>(step.bytes)); });
}

}  // namespace millrace
