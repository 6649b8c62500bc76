// manifest.json: what a snapshot consists of, so that any changed byte is found and named.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/fs.h"

namespace millrace::snapshot::detail {

inline constexpr int kFormat = 1;
inline constexpr std::uintmax_t kMostManifestBytes = std::uintmax_t{32} << 20U;
inline constexpr const char* kManifestFile = "manifest.json";
inline constexpr const char* kStateFile = "state.json";
inline constexpr const char* kTensorSuffix = ".safetensors";

struct FileRecord {
  std::uint64_t bytes = 0;
  std::uint32_t crc32c = 0;
  std::optional<std::uint32_t> header_crc32c;    // of tensor files
  std::map<std::string, std::uint32_t> tensors;  // name -> CRC32C
};

struct Manifest {
  std::int64_t step = 0;
  std::map<std::string, FileRecord> files;  // without the manifest itself
};

// Letters, digits, '_', '-' and '.', not first: what names of models and parts and so of files are made of.
[[nodiscard]] bool is_plain_name(std::string_view name) noexcept;

// The text begins with the CRC32C of all that follows it.
[[nodiscard]] std::string to_text(const Manifest& manifest);

// Either a manifest or why there is none.
struct ParsedManifest {
  Manifest manifest;
  std::string problem;
};
[[nodiscard]] ParsedManifest parse_manifest(std::string_view text);

[[nodiscard]] std::string hex(std::uint32_t value);

// Whether Millrace made this folder and nobody put anything into it: a manifest of that step, and the files that it names, each
// of its size, and no other entry. What is in the files is not looked at. Never throws.
[[nodiscard]] bool is_our_snapshot(Fs& fs, const std::filesystem::path& folder, std::int64_t step) noexcept;
// Those files, the manifest last, also where there are other entries; empty for what is not ours. Never throws.
[[nodiscard]] std::vector<std::string> files_of_snapshot(Fs& fs, const std::filesystem::path& folder, std::int64_t step) noexcept;
// Whether a save that was cut short can have left it: a folder of nothing but files with names of a snapshot's. Never throws.
[[nodiscard]] bool is_our_leftover(Fs& fs, const std::filesystem::path& folder) noexcept;

}  // namespace millrace::snapshot::detail
