// Reads and writes the attributes of an open object.
#pragma once

#include <cstddef>

#include "millrace/hdf5/attribute.h"
#include "millrace/hdf5/child/library.h"

namespace millrace::hdf5::child {

// Returns the attributes of a data set, or of a file's root if `object` is the file. Reads at most `room` of them, and lowers
// `room` by the number read. If the library fails, the result has the library's message.
[[nodiscard]] Attributes attributes_of(hid_t object, std::size_t& room);
// Adds a new attribute. A LibraryError names the attribute.
void write_attribute(hid_t object, const Attribute& attribute);

}  // namespace millrace::hdf5::child
