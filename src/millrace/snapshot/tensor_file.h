// One file of tensors alone, without the manifest that a snapshot has: input and output of predict, weights from and for
// elsewhere.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "millrace/base/fs.h"
#include "millrace/core/batch.h"

namespace millrace::snapshot {

// All tensors of one safetensors file or file of Python's torch.save, which its first bytes tell apart. DataError when it
// can't be read, is damaged, or holds what would be code.
[[nodiscard]] Tensors read_tensors(const std::filesystem::path& file);
[[nodiscard]] bool is_pt_name(const std::filesystem::path& file);  // .pt, .pth
// The opposite; torch.save's form when the name says so, which has no place for `metadata`. Written whole or not at all;
// DataError when that can't be.
void write_tensors(Fs& fs, const std::filesystem::path& file, const Tensors& tensors,
                   const std::map<std::string, std::string>& metadata = {});

}  // namespace millrace::snapshot
