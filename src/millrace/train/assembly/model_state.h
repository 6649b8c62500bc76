// A model's parameters and buffers by name, as snapshots and safetensors files hold them.
#pragma once

#include <functional>
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

// {"model": all tensors} for one objective. With several objectives, "model.<objective>" has that objective's parameters and
// "model" the rest. `frozen`: a record made by record_of_frozen(), whose weights are left out; null = no weights are left out.
[[nodiscard]] std::map<std::string, Tensors> model_tensors(const torch::nn::Module& model, const Stepper& stepper,
                                                           const Json& frozen = {});

// Names of the parameters that no objective trains, in the model's order.
[[nodiscard]] std::vector<std::string> frozen_names(const torch::nn::Module& model, const Stepper& stepper);

// A record of the frozen weights: {"source": where they come from, "sha256": {name: hash of the values}}. Reads every value.
[[nodiscard]] Json record_of_frozen(const torch::nn::Module& model, const Stepper& stepper, const std::string& source);

// Reads the files of the model's frozen parts (nn/weights.h) and freezes the parts. A part whose file does not exist stays
// unchanged: see require_frozen_parts(). Throws DataError if a file does not fit its part. `notices` gets messages for the user.
void load_frozen_parts(torch::nn::Module& model, const std::function<void(const std::string&)>& notices);
// The identity of each frozen part by the part's name, such as {"encoder": identity}; see nn::FrozenPart::identity(). Empty if
// the model has no frozen part with weights.
[[nodiscard]] Json identities_of_frozen_parts(torch::nn::Module& model);
// Compares the frozen parts with `saved`, the identities in a snapshot. Throws SnapshotError if the identity of a part has
// changed. A part without weights takes the saved identity, unless the snapshot left its weights out (`left_out`). `saved` is
// null if the snapshot has no identities.
void check_frozen_parts(torch::nn::Module& model, const Json& saved, bool left_out);
// Throws DataError if a part got weights neither from its file nor from a snapshot.
void require_frozen_parts(torch::nn::Module& model);

// Copies values into the model by name and converts their dtype. Throws a SnapshotError that lists missing tensors, superfluous
// tensors and tensors of another shape. `frozen`: a record of weights that are not in `models`. The model must already hold them
// unchanged; otherwise SnapshotError names the first weight that differs and its source. `known`: a record of the model's present
// frozen weights, so that they need not be read again; null = no record.
void load_model_tensors(torch::nn::Module& model, const std::map<std::string, Tensors>& models, const Json& frozen = {},
                        const Json& known = {});

// Like load_model_tensors(), for weights of any origin; moves the tensors out of `weights`. Returns a note about the prefixes of
// Python wrappers that were removed from the names, "" if there were no prefixes; see pass_over_wrappers(). If a file does not
// fit, the error says what would help.
std::string load_model_weights(torch::nn::Module& model, Weights& weights);

}  // namespace millrace
