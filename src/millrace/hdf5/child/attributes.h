// Attributes of an open object, in both directions.
#pragma once

#include <cstddef>

#include "millrace/hdf5/attribute.h"
#include "millrace/hdf5/child/library.h"

namespace millrace::hdf5::child {

// Of a data set, or of a file's root by the file's identifier: at most `room` of them, which becomes less by as many. What the
// library refuses stands in the answer.
[[nodiscard]] Attributes attributes_of(hid_t object, std::size_t& room);
// Puts a new one there. LibraryError that names it.
void write_attribute(hid_t object, const Attribute& attribute);

}  // namespace millrace::hdf5::child
