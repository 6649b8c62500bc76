// A file of tensors without a snapshot's manifest: the input and output of predict, and weights from and for other programs.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "millrace/base/fs.h"
#include "millrace/core/batch.h"

namespace millrace::snapshot {

// Reads all tensors of a safetensors file or a file of Python's torch.save. The file is read as torch.save's if its name ends in
// .pt or .pth, or if it begins like a zip archive. Throws DataError if the file can't be read, is damaged, or holds code.
[[nodiscard]] Tensors read_tensors(const std::filesystem::path& file);
[[nodiscard]] bool is_pt_name(const std::filesystem::path& file);  // true for names that end in .pt or .pth
// Writes a file that read_tensors() reads. A name that ends in .pt or .pth selects torch.save's form, which has no room for
// `metadata`. The file is written whole or not at all; throws DataError on failure.
void write_tensors(Fs& fs, const std::filesystem::path& file, const Tensors& tensors,
                   const std::map<std::string, std::string>& metadata = {});

}  // namespace millrace::snapshot
