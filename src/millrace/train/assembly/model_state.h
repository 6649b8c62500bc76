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

// {"model": everything} for one objective; for several, "model.<objective>" has that objective's parameters and "model" the rest.
// `frozen`: a record, by record_of_frozen(), of weights to leave out; null = all weights.
[[nodiscard]] std::map<std::string, Tensors> model_tensors(const torch::nn::Module& model, const Stepper& stepper,
                                                           const Json& frozen = {});

// Names of the parameters that no objective trains, in the model's order.
[[nodiscard]] std::vector<std::string> frozen_names(const torch::nn::Module& model, const Stepper& stepper);

// {"source": the origin of the recipe's frozen weights, "sha256": {name: hash of the values}}. Reads every value.
[[nodiscard]] Json record_of_frozen(const torch::nn::Module& model, const Stepper& stepper, const std::string& source);

// Reads the files of the model's frozen parts (nn/weights.h) and ends their training. A part whose file does not exist is left as
// it is: see require_frozen_parts(). DataError if a file does not fit its part. `told` receives what loading has to say.
void load_frozen_parts(torch::nn::Module& model, const std::function<void(const std::string&)>& notices);
// {"encoder": identity}, see nn::FrozenPart::identity(); empty if the model has no frozen part with weights.
[[nodiscard]] Json identities_of_frozen_parts(torch::nn::Module& model);
// Compares the parts with `saved`, the identities in a snapshot; a part that has no weights yet takes its identity, unless the
// snapshot left its weights out. Null = a snapshot without identities. SnapshotError names a part that is another one now.
void check_frozen_parts(torch::nn::Module& model, const Json& saved, bool left_out);
// DataError if a part has weights neither from its file nor from a snapshot.
void require_frozen_parts(torch::nn::Module& model);

// Copies values in by name, converting the dtype. `known`: a record of the model's own frozen weights in their present state,
// whose values then need not be read again; null = no record. SnapshotError lists tensors that are missing, left over or of
// another shape. The weights that `frozen` records must be in the model already, unchanged: SnapshotError names the first that is
// not, and its source.
void load_model_tensors(torch::nn::Module& model, const std::map<std::string, Tensors>& models, const Json& frozen = {},
                        const Json& known = {});

// The same for weights of any origin; uses up the tensors of `weights`. Returns a note about the wrappers' prefixes that were
// removed from a file's names, "" if no prefix was; see pass_over_wrappers(). If a file does not fit, the error's remedy names
// what would help.
std::string load_model_weights(torch::nn::Module& model, Weights& weights);

}  // namespace millrace
