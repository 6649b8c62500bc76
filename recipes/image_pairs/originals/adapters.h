// Adapters and projector as PEFT keeps them (adapter_model.safetensors and adapter_config.json), and whole weights with the
// adapters multiplied in.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "millrace/base/fs.h"
#include "recipes/image_pairs/model.h"

namespace millrace::recipes::image_pairs {

// Writes both files into `folder`, which is made where it is missing; the projector is one of PEFT's "modules to save". Names are
// those of transformers 5. Returns one line about it. SnapshotError where there are no adapters, or where it can't be written.
std::string write_adapter(Fs& fs, const PairModel& model, const RecipeConfig& config, const std::filesystem::path& folder);

// The opposite: a folder as write_adapter() or PEFT's save_pretrained() left it, also with names of earlier versions, or a file
// of tensors alone. The projector stays as it is where the file has none. Returns one line about what was taken. SnapshotError
// where rank, scale, kind or projections are others than the model's, with the key that would change that.
std::string read_adapter(PairModel& model, const std::filesystem::path& from);

// W + (lora_alpha / lora_r) B A for every projection, and all other weights, in the types they are kept in and under their
// published names: model.safetensors, or files of at most `shard_bytes` each (but for a larger weight) with their index, and a
// config.json for Python. The vision tower ends with its last built block there. Holds one weight at a time. SnapshotError where
// `folder` has weights already, or where it can't be written.
inline constexpr std::uint64_t kShardBytes = 5'000'000'000;
std::string merge_adapters(Fs& fs, const PairModel& model, const RecipeConfig& config, const std::filesystem::path& folder,
                           std::uint64_t shard_bytes = kShardBytes);

}  // namespace millrace::recipes::image_pairs
