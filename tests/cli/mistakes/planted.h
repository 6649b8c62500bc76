// What the recipes with mistakes share.
#pragma once

#include <string>

#include "millrace/recipe.h"

namespace mistakes {

struct PlantConfig {
  std::string mistake;
  static consteval auto fields() {
    return std::tuple{millrace::config::field<&PlantConfig::mistake>("Which mistake is made.").free_on_resume()};
  }
};

[[nodiscard]] millrace::Entry waves_entry();  // waves.cpp

}  // namespace mistakes
