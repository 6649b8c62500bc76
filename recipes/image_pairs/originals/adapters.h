// Adapters and projector in PEFT's format (adapter_model.safetensors and adapter_config.json), and whole weights with the
// adapters merged in.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "millrace/base/fs.h"
#include "recipes/image_pairs/model.h"

namespace millrace::recipes::image_pairs {

// Writes both files into `folder`, which is created if missing; the projector is one of PEFT's "modules to save". Names are those
// of transformers 5. Returns one line about the result. SnapshotError if there are no adapters or the folder can't be written.
std::string write_adapter(Fs& fs, const PairModel& model, const RecipeConfig& config, const std::filesystem::path& folder);

// The inverse: reads a folder written by write_adapter() or PEFT's save_pretrained(), also with names of earlier versions, or a
// file of tensors alone. The projector stays unchanged if the file has none. Returns one line about the weights that were read.
// SnapshotError if rank, scale, kind or projections differ from the model's, with the key that would change that.
std::string read_adapter(PairModel& model, const std::filesystem::path& from);

// Writes W + (lora_alpha / lora_r) B A for every projection, and all other weights, in their kept types and under their published
// names: model.safetensors, or files of at most `shard_bytes` each (except for a larger weight) with their index, and a
// config.json for Python. There the vision tower ends with its last built block. Holds one weight at a time. SnapshotError if
// `folder` already has weights or can't be written.
inline constexpr std::uint64_t kShardBytes = 5'000'000'000;
std::string merge_adapters(Fs& fs, const PairModel& model, const RecipeConfig& config, const std::filesystem::path& folder,
                           std::uint64_t shard_bytes = kShardBytes);

}  // namespace millrace::recipes::image_pairs
