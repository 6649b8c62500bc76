// Opens a file and its data sets read-only through the driver.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "millrace/hdf5/child/library.h"

namespace millrace::hdf5::child {

struct OpenDataset {
  Id id;
  Id creation;
  Id memory_type;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::size_t element_bytes = 0;
  bool same_in_memory = false;  // true: an element has the same bytes in the file as in this machine's memory
  bool big_endian = false;
};

[[nodiscard]] Id open_file(int descriptor);
// Opens a data set. Throws MissingError if the name does not exist. Throws LibraryError if it is not a data set or has a type
// without a DType.
[[nodiscard]] OpenDataset open_dataset(hid_t file, const std::string& name);
// Reads a block. First raises the limit on memory by what the library needs for the chunks of this data set.
void read_block(const OpenDataset& dataset, std::span<const std::int64_t> offset, std::span<const std::int64_t> count, void* out);

}  // namespace millrace::hdf5::child
