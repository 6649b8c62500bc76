// What millrace-hdf5 says about a file, checked: a process that a hostile file took over must not harm this one.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/hdf5/detail/blocks.h"
#include "millrace/hdf5/detail/wire.h"
#include "millrace/hdf5/file.h"

namespace millrace::hdf5::detail {

// A block as the library decodes it.
struct Digest {
  Shape offset;
  Shape count;
  std::string failure;  // the library's words when it could not
  std::uint32_t crc32c = 0;
};

struct Layout {
  Dataset dataset;
  std::size_t element_bytes = 1;
  std::string fill;                    // one element; empty: none is defined
  std::uint64_t address = kNoAddress;  // contiguous
  std::vector<std::uint32_t> filters;
  Shape grid;                     // chunks along each axis
  std::vector<Chunk> chunks;      // in C order over the grid
  std::uint64_t chunk_bytes = 0;  // decoded
  std::vector<Digest> digests;
  Attributes attributes;
};

struct Contents {
  Attributes attributes;  // of the root
  std::vector<Layout> readable;
  std::vector<Unreadable> unreadable;
};

// `answer`: the child's to "describe". `file` names the file in errors, `file_bytes` is its size. Throws DataError: what the
// child refuses, how it died, contents that do not fit together or lie behind the end of the file.
[[nodiscard]] Contents read_contents(std::string_view answer, const std::filesystem::path& file, std::uint64_t file_bytes);

}  // namespace millrace::hdf5::detail
