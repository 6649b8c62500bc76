#include "millrace/hdf5/stored_axis.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "millrace/base/axis_text.h"
#include "millrace/base/error.h"
#include "millrace/hdf5/stored_numbers.h"

namespace millrace::hdf5 {

std::string unit_attribute(const File& file, const std::string& of) {
  const auto sets = file.datasets();
  if (of != "/" && std::ranges::find(sets, of, &Dataset::name) == sets.end()) return "";
  const Attributes& attributes = file.attributes(of);
  for (const char* name : {"unit", "units"}) {
    const Attribute* attribute = attributes.find(name);
    if (attribute == nullptr) continue;
    if (const auto* text = std::get_if<std::string>(&attribute->value)) return *text;
  }
  return "";
}

std::vector<double> numbers_of(const File& file, const Dataset& set) {
  std::vector<double> values(static_cast<std::size_t>(element_count(set.shape).value_or(0)));
  std::vector<std::byte> bytes(values.size() * size_of(set.dtype));
  file.read(set.name, Shape(set.shape.size(), 0), set.shape, bytes);
  MR_CHECK(convert_numbers<double>(set.dtype, bytes, values), "the data set is of real numbers");
  return values;
}

std::vector<StoredAxis> axes_of(const File& file) {
  constexpr std::int64_t kMost = std::int64_t{1} << 20U;
  std::vector<StoredAxis> axes;
  for (const Dataset& set : file.datasets()) {
    if (set.shape.size() != 1 || set.shape[0] < 2 || set.shape[0] > kMost || !is_real(set.dtype)) continue;
    std::vector<double> values = numbers_of(file, set);
    if (direction_of(values) != 0) axes.push_back({set.name, unit_attribute(file, set.name), std::move(values)});
  }
  return axes;
}

}  // namespace millrace::hdf5
