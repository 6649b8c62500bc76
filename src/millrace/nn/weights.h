// Weights from a file for a module, and parts of a model whose weights come from a file and are not trained.
//
//   nn::load_weights(*encoder, "vgg16.pt", {.prefix = "features."});
//
//   struct FeaturesImpl : torch::nn::Module { ... };  // as any module
//   nn::Frozen<FeaturesImpl> features{config.features, nn::LoadOptions{.prefix = "features."}};  // then FeaturesImpl's arguments
//   register_module("features", features);
//
// A frozen part has no gradient of its own (its input gets one), is in evaluation mode also while the model trains, and is in no
// optimiser. A run reads its file before the first step. Snapshots keep its weights, or with snapshot.frozen=leave_out only their
// hashes; in both cases a run that is resumed with other weights in that file is refused.
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
  // Only tensors whose names begin with it are looked at, and their names continue after it: "features.". It is looked for in
  // the file's names, then in those without what wrappers add.
  std::string prefix = "";
  // The beginning of a name in the file, after the prefix -> its beginning in the module: {{"conv1.", "first.conv."}}. Of several
  // beginnings that fit, the longest is replaced.
  std::map<std::string, std::string> rename = {};
  // False: tensors that are missing keep their values, and those that the module does not have are left aside. Shapes must agree
  // in both cases, and at least one tensor must be taken.
  bool strict = true;
};

struct LoadedWeights {
  std::size_t taken = 0;                // tensors
  std::vector<std::string> missing;     // names in the module; only without `strict`
  std::vector<std::string> unexpected;  // names in the file; only without `strict`
  std::vector<std::string> notices;     // one line each: prefixes of wrappers, converted number formats, what was left aside
};

// Copies the tensors of a .safetensors file or a file of Python's torch.save into the parameters and buffers of `module`, by
// name, in the module's number format and on its device. Only tensors that are taken are read, one at a time. Of a file that has
// a part "state_dict" or "model_state_dict" (Lightning's and others' checkpoints) only that part counts. What wrappers add to
// names is passed over: see plain_name(). All names and shapes are checked before the first value is changed. DataError names
// what is missing, unexpected or of another shape or type, with the nearest name; also if the file can't be read.
LoadedWeights load_weights(torch::nn::Module& module, const std::filesystem::path& file, const LoadOptions& options = {});

// The name without what Python's wrappers add: each "module." (DistributedDataParallel) and "_orig_mod." (torch.compile), and at
// the beginning "model.", "state_dict." and "model_state_dict." (Lightning and many trainers).
[[nodiscard]] std::string plain_name(std::string_view name);

// What Frozen adds to a module; the runtime finds it by this class.
class FrozenPart {
 public:
  FrozenPart(std::filesystem::path file, LoadOptions options) : file_(std::move(file)), options_(std::move(options)) {}
  virtual ~FrozenPart() = default;

  [[nodiscard]] const std::filesystem::path& file() const noexcept { return file_; }
  // Loads `module`, which is this object, from the file. Returns LoadedWeights::notices. Throws as load_weights() does.
  std::vector<std::string> load_file(torch::nn::Module& module);
  // SHA-256 of names and values after load_file(), in hexadecimal digits: equal for the same weights in another file. "" before.
  [[nodiscard]] const std::string& identity() const noexcept { return identity_; }
  void set_identity(std::string identity) { identity_ = std::move(identity); }  // for weights that a snapshot brings

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

// A holder, as torch::nn::Linear is one of LinearImpl. Its arguments: the file, options, and then what Impl's constructor takes.
template <class Impl>
using Frozen = torch::nn::ModuleHolder<FrozenImpl<Impl>>;

// A frozen part of a model, with its name there.
struct NamedPart {
  std::string name;
  FrozenPart* part = nullptr;
  torch::nn::Module* module = nullptr;  // the same object
};
[[nodiscard]] std::vector<NamedPart> frozen_parts(torch::nn::Module& model);

}  // namespace millrace::nn
