// Finds parameters that are frozen when a run begins and thawed later. No optimiser holds such parameters, so they would get
// gradients but never change.
#pragma once

#include <cstdint>
#include <vector>

#include "millrace/optim/optimizer.h"

namespace torch::nn {
class Module;
}

namespace millrace {

// Belongs to the loop's thread.
class ThawWatch {
 public:
  explicit ThawWatch(const torch::nn::Module& model);  // notes the parameters that require no gradient
  // Throws RecipeError if a parameter that was frozen at the start requires a gradient now. `step`: number of steps made. Reads
  // nothing from a device.
  void look(std::int64_t step) const;

 private:
  std::vector<optim::NamedParameter> frozen_;
};

}  // namespace millrace
