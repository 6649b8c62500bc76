#include "millrace/recipes/registry.h"

#include <array>

#include "millrace/recipes/cosmology/entry.h"
#include "millrace/recipes/language_model/entry.h"
#include "millrace/recipes/neural_response/entry.h"

namespace millrace::recipes {

std::span<const Entry> all() {
  static const std::array kEntries = {
      cosmology::entry(),
      language_model::entry(),
      neural_response::entry(),
  };
  return kEntries;
}

}  // namespace millrace::recipes
