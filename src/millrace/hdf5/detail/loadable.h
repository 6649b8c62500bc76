// A file that is open and not yet known: what open.cpp fills with what millrace-hdf5 or an index says.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

#include "millrace/hdf5/detail/index.h"
#include "millrace/hdf5/file.h"

namespace millrace::hdf5::detail {

// load() once, before the object is shared between threads.
class LoadableFile : public File {
 public:
  [[nodiscard]] virtual Stamp stamp() const = 0;     // DataError when the file can't be read
  [[nodiscard]] virtual int descriptor() const = 0;  // until load() stays this object's
  // Takes an answer of millrace-hdf5; `all` of the file was asked for. With `compares`, what this process decodes is compared
  // with what the library decoded; false when they differ (the library reads such a data set from then on). DataError as open().
  virtual bool load(std::string_view answer, bool all, bool compares) = 0;
  // After load(): the library reads all data sets from now on.
  virtual void read_by_library() = 0;
};

// DataError when it can't be opened.
[[nodiscard]] std::shared_ptr<LoadableFile> open_loadable(const std::filesystem::path& path);

}  // namespace millrace::hdf5::detail
