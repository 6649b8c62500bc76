// Loads weights from a file into a module, and defines parts of a model whose weights come from a file and are not trained.
//
//   nn::load_weights(*encoder, "vgg16.pt", {.prefix = "features."});
//
//   struct FeaturesImpl : torch::nn::Module { ... };  // as any module
//   nn::Frozen<FeaturesImpl> features{config.features, nn::LoadOptions{.prefix = "features."}};  // then FeaturesImpl's arguments
//   register_module("features", features);
//
// The weights of a frozen part get no gradient (its input gets one) and are in no optimiser. The part is in evaluation mode also
// while the model trains. A run reads its file before the first step. Snapshots keep the part's weights, or with
// snapshot.frozen=leave_out only their hashes; in both cases a run is refused if it resumes with other weights in that file.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::nn {

struct LoadOptions {
  // Only tensors whose names begin with `prefix` ("features.") are used, and the prefix is removed from their names. `prefix` is
  // looked for in the file's names; if no name begins with it, in the names without the parts that wrappers add.
  std::string prefix = "";
  // Maps the beginning of a name in the file, after `prefix`, to its beginning in the module: {{"conv1.", "first.conv."}}. If
  // several beginnings fit, the longest is replaced.
  std::map<std::string, std::string> rename = {};
  // False: tensors that are missing in the file keep their values, and tensors that the module does not have are ignored.
  // Whether true or false, shapes must agree, and at least one tensor must be taken.
  bool strict = true;
};

struct LoadedWeights {
  std::size_t taken = 0;                // number of tensors that were loaded
  std::vector<std::string> missing;     // names in the module that the file does not have; only if `strict` is false
  std::vector<std::string> unexpected;  // names in the file that the module does not have; only if `strict` is false
  std::vector<std::string> notices;     // one line each: prefixes of wrappers, converted number formats, ignored tensors
};

// Copies the tensors of a .safetensors file or a file of Python's torch.save into the parameters and buffers of `module`, by
// name, in the module's number format and on its device. Only tensors that are taken are read, one at a time. If a file has a
// part "state_dict" or "model_state_dict" (checkpoints of Lightning and others), only that part counts. Text that wrappers add
// to names is ignored: see plain_name(). All names and shapes are checked before the first value is changed. Throws DataError,
// which names what is missing, unexpected or of another shape or type, with the nearest name. Throws DataError also if the file
// can't be read.
LoadedWeights load_weights(torch::nn::Module& module, const std::filesystem::path& file, const LoadOptions& options = {});

// The name without the parts that Python's wrappers add: each "module." (DistributedDataParallel) and "_orig_mod."
// (torch.compile), and at the beginning "model.", "state_dict." and "model_state_dict." (Lightning and many trainers).
[[nodiscard]] std::string plain_name(std::string_view name);

// The part of Frozen that does not depend on the module's type; the runtime finds frozen modules by this class.
class FrozenPart {
 public:
  FrozenPart(std::filesystem::path file, LoadOptions options) : file_(std::move(file)), options_(std::move(options)) {}
  virtual ~FrozenPart() = default;

  [[nodiscard]] const std::filesystem::path& file() const noexcept { return file_; }
  // Loads `module`, which is this object, from the file. Returns LoadedWeights::notices. Throws as load_weights() does.
  std::vector<std::string> load_file(torch::nn::Module& module);
  // SHA-256 of names and values after load_file(), in hexadecimal digits; "" before load_file(). Equal for the same weights in
  // another file.
  [[nodiscard]] const std::string& identity() const noexcept { return identity_; }
  // For weights that come from a snapshot instead of load_file().
  void set_identity(std::string identity) { identity_ = std::move(identity); }

 private:
  std::filesystem::path file_;
  LoadOptions options_;
  std::string identity_;
};

template <class Impl>
class FrozenImpl final : public Impl, public FrozenPart {
 public:
  template <class... Arguments>
  explicit FrozenImpl(std::filesystem::path file, LoadOptions options, Arguments&&... arguments)
      : Impl(std::forward<Arguments>(arguments)...), FrozenPart(std::move(file), std::move(options)) {
    Impl::train(false);
    for (auto& parameter : Impl::parameters()) parameter.requires_grad_(false);
  }
  void train(bool /*on*/ = true) override { Impl::train(false); }
};

// Holds a FrozenImpl, as torch::nn::Linear holds a LinearImpl. The arguments of its constructor are the file, the options, and
// then those of Impl's constructor.
template <class Impl>
using Frozen = torch::nn::ModuleHolder<FrozenImpl<Impl>>;

// A frozen part of a model and its name in the model.
struct NamedPart {
  std::string name;
  FrozenPart* part = nullptr;
  torch::nn::Module* module = nullptr;  // the same object as the frozen part, seen as a module
};
[[nodiscard]] std::vector<NamedPart> frozen_parts(torch::nn::Module& model);

}  // namespace millrace::nn
