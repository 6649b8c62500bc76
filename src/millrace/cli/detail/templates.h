// The files that `millrace new` writes. They are copies of the files in templates/, which folder.cmake turns into a source file.
#pragma once

#include <span>
#include <string_view>

namespace millrace::cli {

struct Template {
  std::string_view kind;
  std::string_view name;
  std::string_view text;  // "my_recipe" and "MyRecipe" stand for the recipe's name
};

// All templates, sorted by kind.
[[nodiscard]] std::span<const Template> templates();

}  // namespace millrace::cli
