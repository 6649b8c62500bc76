// Copies weights that another program or another run trained.
#pragma once

#include <filesystem>
#include <string>

#include "recipes/autoencoder_3d/model.h"

namespace millrace::recipes::autoencoder_3d {

// Copies weights from `from` into the model. `from` is a folder with autoencoder.pt and perhaps discriminator.pt (or
// .safetensors) as users of MONAI save them, one of these files, or anything that load_weights() accepts. Names may begin with
// "module." (DistributedDataParallel). Returns a line about the weights that were copied. Throws SnapshotError if a network is
// incomplete or has other sizes than the model, or if neither network is there.
std::string take_pretrained(VolumeGan& model, const std::filesystem::path& from);

}  // namespace millrace::recipes::autoencoder_3d
