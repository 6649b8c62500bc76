#include "recipes/autoencoder_3d/originals/pretrained.h"

#include <ATen/core/grad_mode.h>

#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "recipes/common/weights.h"

namespace millrace::recipes::autoencoder_3d {
namespace {

constexpr std::string_view kOfParallel = "module.";

// Returns the files of weights in the folder `from`, or only `from` itself if it has no such files.
std::vector<std::filesystem::path> files_of(const std::filesystem::path& from) {
  std::vector<std::filesystem::path> files;
  for (const char* network : {"autoencoder", "discriminator"}) {
    for (const char* extension : {".safetensors", ".pt"}) {
      std::filesystem::path file = from / network;
      file += extension;
      std::error_code none;
      if (!std::filesystem::is_regular_file(file, none)) continue;
      files.push_back(std::move(file));
      break;
    }
  }
  return files.empty() ? std::vector{from} : files;
}

Tensors original_tensors_of(const std::filesystem::path& from) {
  Tensors all;
  for (const std::filesystem::path& file : files_of(from)) {
    for (const auto& [name, value] : recipes::tensors_of(quiet_weights(file)))
      all[name.starts_with(kOfParallel) ? name.substr(kOfParallel.size()) : name] = value;
  }
  return all;
}

// Copies the weights of a network. If `tensors` lacks the network, returns false and copies nothing.
bool take(torch::nn::Module& network, const Tensors& tensors, const std::string& which, const std::filesystem::path& from) {
  const at::NoGradGuard no_grad;
  auto parameters = network.named_parameters();
  std::size_t found = 0;
  for (const auto& item : parameters) found += tensors.contains(item.key()) ? 1 : 0;
  if (found == 0) return false;
  for (auto& item : parameters) {
    const auto it = tensors.find(item.key());
    if (it != tensors.end() && it->second.sizes() == item.value().sizes()) {
      item.value().copy_(it->second);
      continue;
    }
    const std::string what = it == tensors.end() ? "the " + which + "'s weights have no " + item.key()
                                                 : "the " + which + "'s " + item.key() + " has shape " + shape_text(it->second) +
                                                       ", the model's has " + shape_text(item.value());
    throw SnapshotError({what, from.string(), "set the keys of section recipe to those of the trained network"});
  }
  return true;
}

}  // namespace

std::string take_pretrained(VolumeGan& model, const std::filesystem::path& from) {
  const Tensors tensors = original_tensors_of(from);
  const bool autoencoder = take(model.autoencoder(), tensors, "autoencoder", from);
  const bool discriminator = model.has_discriminator() && take(model.discriminator(), tensors, "discriminator", from);
  if (!autoencoder && !discriminator) {
    throw SnapshotError({"there are no weights of an AutoencoderKL or a PatchDiscriminator among its " +
                             std::to_string(tensors.size()) + " tensors",
                         from.string(), "give the file that torch.save(autoencoder.state_dict()) wrote"});
  }
  return std::string("pretrained: ") + (autoencoder ? "autoencoder" : "") + (autoencoder && discriminator ? " and " : "") +
         (discriminator ? "discriminator" : "") + " from " + from.string();
}

}  // namespace millrace::recipes::autoencoder_3d
