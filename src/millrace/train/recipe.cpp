#include "millrace/train/recipe.h"

#include "millrace/base/error.h"

namespace millrace {

Tensors Recipe::predict(const Tensors& /*inputs*/) {
  throw UsageError({"this recipe does not predict", "Recipe::predict is not overridden",
                    "use millrace eval, or give the recipe a predict method"});
}

}  // namespace millrace
