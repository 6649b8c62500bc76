// A model's parameters and buffers by name, as snapshots and safetensors files hold them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "millrace/core/batch.h"
#include "millrace/train/assembly/weights.h"
#include "millrace/train/step/stepper.h"

namespace torch::nn {
class Module;
}

namespace millrace {

// {"model": everything} for one objective; for several "model.<objective>" has that objective's parameters, "model" the rest.
// `frozen`: a record of weights that are left out, as record_of_frozen() makes it; null = none.
[[nodiscard]] std::map<std::string, Tensors> model_tensors(const torch::nn::Module& model, const Stepper& stepper,
                                                           const Json& frozen = {});

// Names of the parameters that no objective trains, in the model's order.
[[nodiscard]] std::vector<std::string> frozen_names(const torch::nn::Module& model, const Stepper& stepper);

// {"source": where the recipe has them from, "sha256": {name: of the values}} of those. Reads every value.
[[nodiscard]] Json record_of_frozen(const torch::nn::Module& model, const Stepper& stepper, const std::string& source);

// Copies values in by name, dtype converted. SnapshotError lists what is missing, left over or of another shape. What `frozen`
// records must be in the model already, and the same: SnapshotError names the first weight that is not, and its source. `known`:
// a record of the model's own frozen weights as they are now, whose values then need not be read again; null = none.
void load_model_tensors(torch::nn::Module& model, const std::map<std::string, Tensors>& models, const Json& frozen = {},
                        const Json& known = {});

// The same of weights wherever they are from, whose tensors go. What wrappers put into the names of a file is passed over, which
// the answer says, "" where there was nothing; see pass_over_wrappers(). Where a file does not fit, the remedy names what would
// help.
std::string load_model_weights(torch::nn::Module& model, Weights& weights);

}  // namespace millrace
