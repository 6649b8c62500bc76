// Attributes of an open object, in both directions.
#pragma once

#include <cstddef>

#include "millrace/hdf5/attribute.h"
#include "millrace/hdf5/child/library.h"

namespace millrace::hdf5::child {

// The attributes of a data set, or of a file's root, given the file's identifier: at most `room`, which is lowered by their
// number. If the library fails, its words are in the result.
[[nodiscard]] Attributes attributes_of(hid_t object, std::size_t& room);
// Adds a new attribute. LibraryError names it.
void write_attribute(hid_t object, const Attribute& attribute);

}  // namespace millrace::hdf5::child
