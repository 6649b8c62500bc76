// manifest.json lists a snapshot's contents with checksums, so that any changed byte is found and named.
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
  std::optional<std::uint32_t> header_crc32c;    // only for files of tensors: checksum of the header
  std::map<std::string, std::uint32_t> tensors;  // for each tensor: its name and its CRC32C
};

struct Manifest {
  std::int64_t step = 0;
  std::map<std::string, FileRecord> files;  // records of all files except the manifest
};

// Returns true if the name has 1 to 200 letters, digits, '_', '-' and '.', and does not begin with '.'. Names of models and
// parts must be plain, because they become names of files.
[[nodiscard]] bool is_plain_name(std::string_view name) noexcept;

// The manifest as text, which begins with the CRC32C of the rest of the text.
[[nodiscard]] std::string to_text(const Manifest& manifest);

// A manifest, or the reason why the text is not a manifest.
struct ParsedManifest {
  Manifest manifest;
  std::string problem;
};
[[nodiscard]] ParsedManifest parse_manifest(std::string_view text);

[[nodiscard]] std::string hex(std::uint32_t value);

// Returns true if the folder is exactly what Millrace made: a manifest of that step, the files that it lists with their sizes,
// and no other entry. Contents of files are not checked. Never throws.
[[nodiscard]] bool is_our_snapshot(Fs& fs, const std::filesystem::path& folder, std::int64_t step) noexcept;
// The files that the manifest lists, then the manifest. Other entries of the folder are ignored. Empty if the folder is not
// Millrace's. Never throws.
[[nodiscard]] std::vector<std::string> files_of_snapshot(Fs& fs, const std::filesystem::path& folder, std::int64_t step) noexcept;
// Returns true if an interrupted save may have left this folder: all its files have names that snapshots use. Never throws.
[[nodiscard]] bool is_our_leftover(Fs& fs, const std::filesystem::path& folder) noexcept;

}  // namespace millrace::snapshot::detail
