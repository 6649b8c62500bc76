// An open file whose contents are not known yet. open.cpp gives it the answer of millrace-hdf5 or of an index.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

#include "millrace/hdf5/detail/index.h"
#include "millrace/hdf5/file.h"

namespace millrace::hdf5::detail {

// An open file that is not usable before load(). Call load() once, before the object is shared between threads.
class LoadableFile : public File {
 public:
  [[nodiscard]] virtual Stamp stamp() const = 0;     // throws DataError if the file can't be read
  [[nodiscard]] virtual int descriptor() const = 0;  // owned by this object; valid until load()
  // Takes an answer of millrace-hdf5. `all`: the answer describes the whole file. With `compares`, compares blocks decoded here
  // with blocks decoded by the library, and returns false if some differ; the library then reads the data sets whose blocks
  // differ. Throws DataError as open() does.
  virtual bool load(std::string_view answer, bool all, bool compares) = 0;
  // Makes the library read all data sets from now on. Call it after load().
  virtual void read_by_library() = 0;
};

// Opens the file. Throws DataError if that fails.
[[nodiscard]] std::shared_ptr<LoadableFile> open_loadable(const std::filesystem::path& path);

}  // namespace millrace::hdf5::detail
