// The files that `millrace new` writes, copied from templates/ (made into a source by folder.cmake).
#pragma once

#include <span>
#include <string_view>

namespace millrace::cli {

struct Template {
  std::string_view kind;
  std::string_view name;
  std::string_view text;  // "my_recipe" and "MyRecipe" stand for the recipe's name
};

// Sorted by kind.
[[nodiscard]] std::span<const Template> templates();

}  // namespace millrace::cli
