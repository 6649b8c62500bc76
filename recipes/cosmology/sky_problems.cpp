#include "recipes/cosmology/sky_problems.h"

#include <string>

namespace millrace::recipes::cosmology {
namespace {

constexpr std::size_t kMostListed = 50;

std::string list_of(const std::vector<Problem>& problems) {
  std::string text = std::to_string(problems.size()) + " problems of the data";
  for (std::size_t i = 0; i < problems.size() && i < kMostListed; ++i) text += "\n" + to_text(std::to_string(i + 1), problems[i]);
  if (problems.size() > kMostListed) text += "\nand " + std::to_string(problems.size() - kMostListed) + " more";
  return text;
}

}  // namespace

SkyProblems::SkyProblems(std::vector<Problem> problems)
    : DataError({list_of(problems), "", "repair these, then repeat the command"}), problems_(std::move(problems)) {}

void refuse_all(const std::vector<Problem>& problems) {
  if (problems.size() == 1) throw DataError(problems.front());
  if (!problems.empty()) throw SkyProblems(problems);
}

}  // namespace millrace::recipes::cosmology
