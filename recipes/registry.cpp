#include "recipes/registry.h"

#include <array>

#include "recipes/autoencoder_3d/entry.h"
#include "recipes/cosmology/entry.h"
#include "recipes/image_pairs/entry.h"
#include "recipes/language_model/entry.h"
#include "recipes/neural_response/entry.h"

namespace millrace::recipes {

std::span<const Entry> all() {
  static const std::array kEntries = {
      autoencoder_3d::entry(), cosmology::entry(), image_pairs::entry(), language_model::entry(), neural_response::entry(),
  };
  return kEntries;
}

}  // namespace millrace::recipes
