// Weights that another program or run trained.
#pragma once

#include <filesystem>
#include <string>

#include "recipes/autoencoder_3d/model.h"

namespace millrace::recipes::autoencoder_3d {

// Copies in what `from` holds: a folder with autoencoder.pt and perhaps discriminator.pt (or .safetensors) as MONAI's users save
// them, a file of one of them, or anything that load_weights() takes. Names may begin with "module." (DistributedDataParallel).
// Returns one line about what was taken. SnapshotError when a network is there in part, or of other sizes, or when neither is
// there.
std::string take_pretrained(VolumeGan& model, const std::filesystem::path& from);

}  // namespace millrace::recipes::autoencoder_3d
