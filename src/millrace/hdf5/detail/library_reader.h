// Reads blocks through millrace-hdf5, for layouts that only the library can read.
#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "millrace/base/field.h"
#include "millrace/base/input_file.h"
#include "millrace/hdf5/detail/blocks.h"
#include "millrace/hdf5/detail/process.h"

namespace millrace::hdf5::detail {

// Reads from one file. Thread-safe, but reads one block at a time. The process is started at the first block, and again after a
// crash.
class LibraryReader {
 public:
  // Reads a valid block of data set `name` into `out`, which must have exactly the block's bytes. `label` names the data set in
  // errors. Throws DataError if the library fails or the process of millrace-hdf5 dies.
  void read(const InputFile& file, std::string_view name, Sizes offset, Sizes count, std::span<std::byte> out,
            const std::string& label);

 private:
  void read_part(const InputFile& file, std::string_view name, Shape offset, Shape count, std::span<std::byte> out,
                 const std::string& label);
  void ask(const InputFile& file, std::string_view name, const Shape& offset, const Shape& count, std::span<std::byte> out,
           const std::string& label);
  std::mutex mutex_;
  std::optional<Process> process_;  // protected by mutex_
};

}  // namespace millrace::hdf5::detail
