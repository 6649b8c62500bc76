// Adapters and projector in the format of the Python package PEFT (adapter_model.safetensors and adapter_config.json), and whole
// weights into which the adapters are merged.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "millrace/base/fs.h"
#include "recipes/image_pairs/model.h"

namespace millrace::recipes::image_pairs {

// Writes adapter_model.safetensors and adapter_config.json into `folder`, which is created if it is missing. The projector is
// stored as one of PEFT's "modules to save". Names are those of transformers 5. Returns a line about the result. Throws
// SnapshotError if the model has no adapters or the folder can't be written.
std::string write_adapter(Fs& fs, const PairModel& model, const RecipeConfig& config, const std::filesystem::path& folder);

// Reads a folder that write_adapter() or PEFT's save_pretrained() wrote, or a file of tensors. Names of earlier versions are
// accepted too. If the file has no projector, the model's projector stays unchanged. Returns a line about the weights that were
// read. Throws SnapshotError if rank, scale, kind or projections differ from the model's; the message names the key that would
// change the model.
std::string read_adapter(PairModel& model, const std::filesystem::path& from);

// Writes W + (lora_alpha / lora_r) B A for every projection, and all other weights. They have the types in which they are kept,
// and their published names. Writes model.safetensors, or several files with an index, each of at most `shard_bytes` (unless a
// single weight is larger). Also writes a config.json for Python, in which the vision tower ends with its last built block.
// Holds one weight at a time. Throws SnapshotError if `folder` has weights already or can't be written.
inline constexpr std::uint64_t kShardBytes = 5'000'000'000;
std::string merge_adapters(Fs& fs, const PairModel& model, const RecipeConfig& config, const std::filesystem::path& folder,
                           std::uint64_t shard_bytes = kShardBytes);

}  // namespace millrace::recipes::image_pairs
