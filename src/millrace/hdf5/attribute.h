// Attributes of HDF5 files: facts stored with the data, such as a rate or a unit. Single numbers and short texts are read. Any
// other attribute has only its name and the reason why its value is not read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace millrace::hdf5 {

inline constexpr std::size_t kMaxAttributes = 1000;          // limit for the attributes of one object
inline constexpr std::size_t kMaxAttributesOfFile = 10'000;  // limit for the root and all data sets together
inline constexpr std::size_t kMaxAttributeName = 1024;       // limit, in bytes
inline constexpr std::size_t kMaxAttributeText = 4096;       // limit, in bytes

// The value of an attribute. Whole numbers are std::int64_t, or std::uint64_t if they are too large for std::int64_t; floats of
// all sizes are double. A text ends before its first zero byte and may be invalid UTF-8. std::monostate means that the value
// can't be read.
using AttributeValue = std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string>;

// An attribute with a single value, or with an array of a single element.
struct Attribute {
  std::string name;
  AttributeValue value;
  std::string reason = {};  // why the value can't be read: "an array of 3 elements", "a compound"
  friend bool operator==(const Attribute&, const Attribute&) = default;
};

// The attributes of one object, ordered by name.
struct Attributes {
  std::vector<Attribute> all;
  std::uint64_t left_out = 0;  // number of attributes left out because of the limits above
  std::string failure = {};    // the library's message if it can't list the attributes; `all` is then empty
  // Returns the attribute of this name in `all`; null if there is no such attribute.
  [[nodiscard]] const Attribute* find(std::string_view name) const;
};

// The value as a number; nullopt if it is not a number.
[[nodiscard]] std::optional<double> number_of(const Attribute& attribute);
// Returns the value for people: 240, true, "allen_0216" in quotation marks. If the value can't be read, returns the reason.
[[nodiscard]] std::string value_text(const Attribute& attribute);

}  // namespace millrace::hdf5
