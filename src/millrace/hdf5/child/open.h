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
  bool same_in_memory = false;  // the elements in the file equal those in this machine's memory, byte for byte
  bool big_endian = false;
};

[[nodiscard]] Id open_file(int descriptor);
// Opens a data set. MissingError if the name does not exist. LibraryError if it is not a data set or has a type without a DType.
[[nodiscard]] OpenDataset open_dataset(hid_t file, const std::string& name);
// Reads a block. Raises the limit on memory by what the library needs for the chunks of this data set.
void read_block(const OpenDataset& dataset, std::span<const std::int64_t> offset, std::span<const std::int64_t> count, void* out);

}  // namespace millrace::hdf5::child
