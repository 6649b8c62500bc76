// A file of tensors without a snapshot's manifest: input and output of predict, weights from and for other programs.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "millrace/base/fs.h"
#include "millrace/core/batch.h"

namespace millrace::snapshot {

// All tensors of a safetensors file or a file of Python's torch.save, distinguished by the first bytes. DataError if the file
// can't be read, is damaged, or holds code.
[[nodiscard]] Tensors read_tensors(const std::filesystem::path& file);
[[nodiscard]] bool is_pt_name(const std::filesystem::path& file);  // .pt, .pth
// The inverse of read_tensors(). Uses torch.save's form if the name demands it; that form has no room for `metadata`. Written
// whole or not at all; DataError on failure.
void write_tensors(Fs& fs, const std::filesystem::path& file, const Tensors& tensors,
                   const std::map<std::string, std::string>& metadata = {});

}  // namespace millrace::snapshot
