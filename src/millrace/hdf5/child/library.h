// Calls libhdf5 with identifiers that are owned and errors that are thrown.
#pragma once

#include <hdf5.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/base/field.h"

namespace millrace::hdf5::child {

// Carries the library's own description of an error.
class LibraryError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Thrown for a data set or group that does not exist; `has` lists those that exist.
class MissingError : public std::runtime_error {
 public:
  MissingError(const std::string& name, std::string has) : std::runtime_error(name), has_(std::move(has)) {}
  [[nodiscard]] const std::string& has() const noexcept { return has_; }

 private:
  std::string has_;
};

// Owns any identifier of the library.
class Id {
 public:
  Id() = default;
  explicit Id(hid_t id) noexcept : id_(id) {}
  ~Id() {
    if (id_ >= 0) H5Idec_ref(id_);
  }
  Id(Id&& other) noexcept : id_(std::exchange(other.id_, -1)) {}
  Id& operator=(Id&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  Id(const Id&) = delete;
  Id& operator=(const Id&) = delete;
  [[nodiscard]] hid_t get() const noexcept { return id_; }

 private:
  hid_t id_ = -1;
};

// Returns the library's pending errors as text, namely the outermost and the innermost error of the stack, and clears them.
[[nodiscard]] std::string library_words();
// The following functions throw LibraryError if the library's result is negative.
Id owned(hid_t id);
void check(herr_t result);
inline void check_bool(htri_t result) { check(static_cast<herr_t>(result)); }

// Makes the library quiet, disables plug-ins, and registers Millrace's filters.
void start_library();

// How Millrace holds an element in memory.
struct Element {
  DType dtype;
  Id memory_type;
};
// Returns the DType and the memory type for elements of `file_type`. Throws LibraryError if no DType fits.
[[nodiscard]] Element element_of(hid_t file_type);
[[nodiscard]] Id memory_type_of(DType dtype);  // returns the memory type from which elements are written

// Returns a text of class H5T_STRING, of fixed or variable length, up to its first zero byte; nullopt if the text has more than
// `most` bytes. `space` must hold one element; read(to) must read that element as `type`.
[[nodiscard]] std::optional<std::string> read_text(hid_t type, hid_t space, std::size_t most,
                                                   const std::function<herr_t(void*)>& read);

// Selects the block [offset, offset + count) of a data set's space.
[[nodiscard]] Id block_of(hid_t dataset, std::span<const std::int64_t> offset, std::span<const std::int64_t> count);

// Registers the filters that the library lacks: 32000 (lzf), 32004 (lz4), 32008 (bitshuffle) and 32015 (zstd).
void register_filters();

}  // namespace millrace::hdf5::child
