// Attributes of HDF5 files: what stands beside the data, such as a rate or a unit. Single numbers and short texts are read; of
// all others their name is known, and why they are not read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace millrace::hdf5 {

inline constexpr std::size_t kMaxAttributes = 1000;          // of one object
inline constexpr std::size_t kMaxAttributesOfFile = 10'000;  // of its root and its data sets together
inline constexpr std::size_t kMaxAttributeName = 1024;       // bytes
inline constexpr std::size_t kMaxAttributeText = 4096;       // bytes

// Whole numbers are std::int64_t, above its range std::uint64_t; floats of all sizes are double. A text ends before its first
// zero byte and may be no UTF-8. std::monostate: the value can't be read.
using AttributeValue = std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string>;

// Also one of an array with a single element.
struct Attribute {
  std::string name;
  AttributeValue value;
  std::string reason = {};  // why the value can't be read: "an array of 3 elements", "a compound"
  friend bool operator==(const Attribute&, const Attribute&) = default;
};

// Those of one object, in the order of their names.
struct Attributes {
  std::vector<Attribute> all;
  std::uint64_t left_out = 0;  // more of them, beyond the limits above
  std::string failure = {};    // the library's words when it can't list them; `all` is empty then
  // Null when it is not in `all`.
  [[nodiscard]] const Attribute* find(std::string_view name) const;
};

// Of a number; nullopt for all else.
[[nodiscard]] std::optional<double> number_of(const Attribute& attribute);
// For people: 240, true, "allen_0216" in quotation marks; the reason of one that can't be read.
[[nodiscard]] std::string value_text(const Attribute& attribute);

}  // namespace millrace::hdf5
