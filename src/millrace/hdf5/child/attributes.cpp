#include "millrace/hdf5/child/attributes.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace millrace::hdf5::child {
namespace {

struct Names {
  std::vector<std::string> all;
  std::size_t most = 0;
};

herr_t collect_attribute(hid_t, const char* name, const H5A_info_t*, void* to) {
  auto& names = *static_cast<Names*>(to);
  if (names.all.size() == names.most) return 1;
  if (std::strlen(name) <= kMaxAttributeName) names.all.emplace_back(name);
  return 0;
}

// Reads the names in the file's order, because in order of name the library would hold all names before it returns the first.
std::vector<std::string> names_of(hid_t object, std::size_t most) {
  Names names{.all = {}, .most = most};
  check(H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, collect_attribute, &names));
  std::sort(names.all.begin(), names.all.end());
  return std::move(names.all);
}

const char* words_for(H5T_class_t kind) {
  switch (kind) {
    case H5T_TIME:
      return "a time";
    case H5T_BITFIELD:
      return "a bit field";
    case H5T_OPAQUE:
      return "opaque bytes";
    case H5T_COMPOUND:
      return "a compound";
    case H5T_REFERENCE:
      return "a reference";
    case H5T_ENUM:
      return "a member of an enumeration";
    case H5T_VLEN:
      return "a row of variable length";
    case H5T_ARRAY:
      return "an array";
    default:
      return "of an unknown type";
  }
}

template <class Number>
Number read_number(hid_t attribute, hid_t memory_type) {
  Number value{};
  check(H5Aread(attribute, memory_type, &value));
  return value;
}

AttributeValue whole_of(hid_t attribute, hid_t type) {
  if (H5Tget_sign(type) != H5T_SGN_NONE) return read_number<std::int64_t>(attribute, H5T_STD_I64LE);
  const auto value = read_number<std::uint64_t>(attribute, H5T_STD_U64LE);
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (value > kMost) return value;
  return static_cast<std::int64_t>(value);
}

AttributeValue text_of(hid_t attribute, hid_t type, hid_t space) {
  const auto read = [&](void* to) { return H5Aread(attribute, type, to); };
  std::optional<std::string> text = read_text(type, space, kMaxAttributeText, read);
  if (!text) throw LibraryError("a text of more than " + std::to_string(kMaxAttributeText) + " bytes");
  return *std::move(text);
}

AttributeValue truth_of(hid_t attribute, hid_t type) {
  const Id boolean = memory_type_of(DType::boolean);
  if (H5Tequal(type, boolean.get()) <= 0) throw LibraryError(words_for(H5T_ENUM));
  const auto value = read_number<std::int8_t>(attribute, boolean.get());
  if (value != 0 && value != 1) throw LibraryError("a boolean that is neither FALSE nor TRUE");
  return value == 1;
}

AttributeValue value_of(hid_t attribute) {
  const Id space = owned(H5Aget_space(attribute));
  if (H5Sget_simple_extent_type(space.get()) == H5S_NULL) throw LibraryError("nothing (a null data space)");
  const hssize_t elements = H5Sget_simple_extent_npoints(space.get());
  if (elements < 0) throw LibraryError(library_words());
  if (elements != 1) throw LibraryError("an array of " + std::to_string(elements) + " elements");
  const Id type = owned(H5Aget_type(attribute));
  const H5T_class_t kind = H5Tget_class(type.get());
  if (kind == H5T_STRING) return text_of(attribute, type.get(), space.get());
  if (kind == H5T_ENUM) return truth_of(attribute, type.get());
  if (kind != H5T_INTEGER && kind != H5T_FLOAT) throw LibraryError(words_for(kind));
  const std::size_t size = H5Tget_size(type.get());
  if (size > 8) throw LibraryError("a number of " + std::to_string(size) + " bytes");
  if (kind == H5T_INTEGER) return whole_of(attribute, type.get());
  return read_number<double>(attribute, H5T_IEEE_F64LE);
}

Attribute read_attribute(hid_t object, const std::string& name) {
  Attribute attribute;
  attribute.name = name;
  try {
    const Id opened = owned(H5Aopen(object, name.c_str(), H5P_DEFAULT));
    attribute.value = value_of(opened.get());
  } catch (const LibraryError& error) {
    H5Eclear2(H5E_DEFAULT);
    attribute.reason = error.what();
  }
  return attribute;
}

}  // namespace

Attributes attributes_of(hid_t object, std::size_t& room) {
  Attributes found;
  try {
    H5O_info_t info{};
    check(H5Oget_info2(object, &info, H5O_INFO_NUM_ATTRS));
    if (info.num_attrs == 0) return found;
    const std::vector<std::string> names = names_of(object, std::min(room, kMaxAttributes));
    for (const std::string& name : names) found.all.push_back(read_attribute(object, name));
    room -= names.size();
    if (info.num_attrs > names.size()) found.left_out = info.num_attrs - names.size();
  } catch (const LibraryError& error) {
    found = Attributes();
    found.failure = error.what();
  }
  return found;
}

void write_attribute(hid_t object, const Attribute& attribute) {
  try {
    const Id space = owned(H5Screate(H5S_SCALAR));
    const auto write = [&](const Id& type, const void* value) {
      const Id made = owned(H5Acreate2(object, attribute.name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT));
      check(H5Awrite(made.get(), type.get(), value));
    };
    if (const auto* text = std::get_if<std::string>(&attribute.value)) {
      const Id type = owned(H5Tcopy(H5T_C_S1));
      check(H5Tset_size(type.get(), H5T_VARIABLE));
      check(H5Tset_cset(type.get(), H5T_CSET_UTF8));
      const char* const words = text->c_str();
      write(type, static_cast<const void*>(&words));
    } else if (const auto* truth = std::get_if<bool>(&attribute.value)) {
      const auto byte = static_cast<std::int8_t>(*truth ? 1 : 0);
      write(memory_type_of(DType::boolean), &byte);
    } else if (const auto* whole = std::get_if<std::int64_t>(&attribute.value)) {
      write(memory_type_of(DType::i64), whole);
    } else if (const auto* large = std::get_if<std::uint64_t>(&attribute.value)) {
      write(memory_type_of(DType::u64), large);
    } else if (const auto* real = std::get_if<double>(&attribute.value)) {
      write(memory_type_of(DType::f64), real);
    }
  } catch (const LibraryError& error) {
    throw LibraryError("attribute " + attribute.name + ": " + error.what());
  }
}

}  // namespace millrace::hdf5::child
