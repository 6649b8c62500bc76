// A decoded part in a file of its own: whose part it is, checksums of its blocks, its bytes.
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
// Of a part that is told apart by this text.
[[nodiscard]] PartKey part_key(std::string_view text);
[[nodiscard]] std::string part_file_name(const PartKey& key);
[[nodiscard]] bool is_part_file_name(std::string_view name);  // or that of one being written

[[nodiscard]] std::uint64_t part_file_bytes(std::size_t part_bytes);

enum class PartRead : std::uint8_t { done, missing, damaged };
// Writes `ranges` (ordered, apart; none: all) of the part to their places in `out`, which has the size of the whole part; other
// bytes of `out` may change too. `damaged`: what lies there is no file of this part, or not as it was written, in what was looked
// at. Thread-safe, never throws.
[[nodiscard]] PartRead read_part(const std::filesystem::path& path, const PartKey& key, std::span<const PartRange> ranges,
                                 std::span<std::byte> out) noexcept;

// Advises the system that the ranges will be read soon; false when there is no such file.
bool will_need_part(const std::filesystem::path& path, std::span<const PartRange> ranges, std::size_t part_bytes) noexcept;

// Whole or not at all; not synced, since whoever reads it checks it. FsError.
void write_part(Fs& fs, const std::filesystem::path& path, const PartKey& key, std::span<const std::byte> bytes);

}  // namespace millrace::data::detail
