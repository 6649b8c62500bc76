#include "recipes/registry.h"

#include <array>

// Each recipe by its namespace, which has the name of the recipe's folder and contains the function entry().
#define MILLRACE_RECIPES(RECIPE) \
  RECIPE(autoencoder_3d)         \
  RECIPE(cosmology)              \
  RECIPE(image_pairs)            \
  RECIPE(language_model)         \
  RECIPE(neural_response)

namespace millrace::recipes {

#define MILLRACE_DECLARED(recipe) \
  namespace recipe {              \
  Entry entry();                  \
  }
MILLRACE_RECIPES(MILLRACE_DECLARED)
#undef MILLRACE_DECLARED

std::span<const Entry> all() {
#define MILLRACE_ROW(recipe) recipe::entry(),
  static const std::array kEntries = {MILLRACE_RECIPES(MILLRACE_ROW)};
#undef MILLRACE_ROW
  return kEntries;
}

}  // namespace millrace::recipes
