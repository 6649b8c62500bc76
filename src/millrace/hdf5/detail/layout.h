// Checks the answers of millrace-hdf5 about a file, because a hostile file that took over that process must not harm this one.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/hdf5/detail/blocks.h"
#include "millrace/hdf5/detail/wire.h"
#include "millrace/hdf5/file.h"

namespace millrace::hdf5::detail {

// A block that the library has decoded.
struct Digest {
  Shape offset;
  Shape count;
  std::string failure;  // the library's message if it could not decode the block
  std::uint32_t crc32c = 0;
};

struct Layout {
  Dataset dataset;
  std::size_t element_bytes = 1;
  std::string fill;                    // the fill value, as the bytes of one element; empty: undefined
  std::uint64_t address = kNoAddress;  // offset of contiguous data in the file
  std::vector<std::uint32_t> filters;
  Shape grid;                     // number of chunks along each axis
  std::vector<Chunk> chunks;      // the chunks in C order over the grid
  std::uint64_t chunk_bytes = 0;  // bytes of a decoded chunk
  std::vector<Digest> digests;
  Attributes attributes;
};

struct Contents {
  Attributes attributes;  // attributes of the root group
  std::vector<Layout> readable;
  std::vector<Unreadable> unreadable;
};

// Parses `answer`, in which millrace-hdf5 describes a file. `file` names the file in errors; `file_bytes` is the file's size.
// Throws DataError if millrace-hdf5 rejected the file or died, or if the contents are inconsistent or lie beyond the end of the
// file.
[[nodiscard]] Contents read_contents(std::string_view answer, const std::filesystem::path& file, std::uint64_t file_bytes);

}  // namespace millrace::hdf5::detail
