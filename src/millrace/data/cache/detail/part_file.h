// The file of a decoded part. A part is what the cache keeps as one piece (Source::keeps()). The file holds the part's key,
// checksums of the part's blocks, and the part's bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "millrace/base/fs.h"
#include "millrace/data/loader/source.h"

namespace millrace::data::detail {

using PartKey = std::array<std::uint8_t, 32>;
// Returns the key of the part that `text` identifies. The name of the part's file is made from the key.
[[nodiscard]] PartKey part_key(std::string_view text);
[[nodiscard]] std::string part_file_name(const PartKey& key);
[[nodiscard]] bool is_part_file_name(std::string_view name);  // returns true also for a file that is still being written

[[nodiscard]] std::uint64_t part_file_bytes(std::size_t part_bytes);

enum class PartRead : std::uint8_t { done, missing, damaged };
// Reads `ranges` of the part to the same places in `out`, which has the size of the whole part; other bytes of `out` may change
// too. The ranges are sorted and do not overlap; an empty list means the whole part. The result `damaged` means that the file is
// not this part's or that its checksums are wrong. Thread-safe, never throws.
[[nodiscard]] PartRead read_part(const std::filesystem::path& path, const PartKey& key, std::span<const PartRange> ranges,
                                 std::span<std::byte> out) noexcept;

// Tells the system that the ranges will be read soon. Returns false if the file can't be opened.
bool will_need_part(const std::filesystem::path& path, std::span<const PartRange> ranges, std::size_t part_bytes) noexcept;

// Writes the whole file or nothing. The file is not synced to the disk, because every reader checks it. Throws FsError.
void write_part(Fs& fs, const std::filesystem::path& path, const PartKey& key, std::span<const std::byte> bytes);

}  // namespace millrace::data::detail
