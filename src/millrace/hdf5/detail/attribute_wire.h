// Reads and writes attributes in the frames between this process and millrace-hdf5. Any bytes decode to some attributes; a
// DataError is thrown only if the bytes end too early.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <variant>

#include "millrace/hdf5/attribute.h"
#include "millrace/hdf5/detail/wire.h"

namespace millrace::hdf5::detail {

// On the wire, the kind of a value is its index in this variant.
static_assert(
    std::is_same_v<AttributeValue, std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string>>);

inline void put_attribute(WireWriter& out, const Attribute& attribute) {
  out.text(attribute.name).put(static_cast<std::uint8_t>(attribute.value.index()));
  if (const auto* truth = std::get_if<bool>(&attribute.value)) {
    out.put(*truth);
  } else if (const auto* whole = std::get_if<std::int64_t>(&attribute.value)) {
    out.put(*whole);
  } else if (const auto* large = std::get_if<std::uint64_t>(&attribute.value)) {
    out.put(*large);
  } else if (const auto* real = std::get_if<double>(&attribute.value)) {
    out.put(*real);
  } else if (const auto* text = std::get_if<std::string>(&attribute.value)) {
    out.text(*text);
  } else {
    out.text(attribute.reason);
  }
}

inline Attribute get_attribute(WireReader& in) {
  Attribute attribute;
  attribute.name = in.text();
  switch (in.get<std::uint8_t>()) {
    case 1:
      attribute.value = in.get<std::uint8_t>() != 0;
      break;
    case 2:
      attribute.value = in.get<std::int64_t>();
      break;
    case 3:
      attribute.value = in.get<std::uint64_t>();
      break;
    case 4:
      attribute.value = in.get<double>();
      break;
    case 5:
      attribute.value = in.text();
      break;
    default:
      attribute.reason = in.text();
  }
  return attribute;
}

inline void put_attributes(WireWriter& out, const Attributes& attributes) {
  out.text(attributes.failure).put(attributes.left_out).put(static_cast<std::uint32_t>(attributes.all.size()));
  for (const Attribute& attribute : attributes.all) put_attribute(out, attribute);
}

inline Attributes get_attributes(WireReader& in) {
  Attributes attributes;
  attributes.failure = in.text();
  attributes.left_out = in.get<std::uint64_t>();
  const std::size_t count = std::min<std::size_t>(in.get<std::uint32_t>(), kMaxAttributes);
  while (attributes.all.size() < count) attributes.all.push_back(get_attribute(in));
  return attributes;
}

}  // namespace millrace::hdf5::detail
