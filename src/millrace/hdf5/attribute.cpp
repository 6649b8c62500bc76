#include "millrace/hdf5/attribute.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "millrace/base/format.h"

namespace millrace::hdf5 {

const Attribute* Attributes::find(std::string_view name) const {
  const auto found = std::find_if(all.begin(), all.end(), [name](const Attribute& attribute) { return attribute.name == name; });
  return found == all.end() ? nullptr : &*found;
}

std::optional<double> number_of(const Attribute& attribute) {
  if (const auto* whole = std::get_if<std::int64_t>(&attribute.value)) return static_cast<double>(*whole);
  if (const auto* large = std::get_if<std::uint64_t>(&attribute.value)) return static_cast<double>(*large);
  if (const auto* real = std::get_if<double>(&attribute.value)) return *real;
  return std::nullopt;
}

std::string value_text(const Attribute& attribute) {
  if (const auto* truth = std::get_if<bool>(&attribute.value)) return *truth ? "true" : "false";
  if (const auto* whole = std::get_if<std::int64_t>(&attribute.value)) return std::to_string(*whole);
  if (const auto* large = std::get_if<std::uint64_t>(&attribute.value)) return std::to_string(*large);
  if (const auto* text = std::get_if<std::string>(&attribute.value)) return quoted(*text);
  if (const auto* real = std::get_if<double>(&attribute.value)) {
    std::array<char, 32> digits{};  // the shortest text that reads back as the same number has at most 24 characters
    return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), *real).ptr};
  }
  return attribute.reason;
}

}  // namespace millrace::hdf5
