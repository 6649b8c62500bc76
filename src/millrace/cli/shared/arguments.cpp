#include "millrace/cli/shared/arguments.h"

#include <algorithm>

#include "millrace/base/format.h"

namespace millrace::cli {

const Entry& take_recipe(Arguments& arguments, std::span<const Entry> recipes, std::string_view command) {
  const auto find = [&](std::string_view name) {
    return std::find_if(recipes.begin(), recipes.end(), [&](const Entry& entry) { return entry.name == with_underscores(name); });
  };
  const std::vector<std::string> names = names_of(recipes);
  const auto& words = arguments.words();
  std::size_t index = 0;
  if (words.empty() || config::looks_like_option(words.front())) {
    const auto named = std::find_if(words.begin(), words.end(), [&](const std::string& w) { return find(w) != recipes.end(); });
    index = static_cast<std::size_t>(named - words.begin());
  }
  const std::string place = "millrace " + std::string(command);
  if (index >= words.size())
    throw UsageError({place + " needs the name of a recipe", place, "write it first: " + place + " " + joined(names, " | ")});
  const auto entry = find(words[index]);
  if (entry == recipes.end()) {
    throw UsageError({"there is no recipe " + millrace::quoted(words[index]), place,
                      suggestion(with_underscores(words[index]), names) + "recipes: " + joined(names, ", ")});
  }
  arguments.remove(index);
  return *entry;
}

std::vector<std::string> names_of(std::span<const Entry> recipes) {
  std::vector<std::string> names;
  names.reserve(recipes.size());
  for (const auto& entry : recipes) names.push_back(entry.name);
  return names;
}

}  // namespace millrace::cli
