#include "millrace/data/loader/sample.h"

#include <algorithm>

#include "millrace/base/error.h"
#include "millrace/base/format.h"

namespace millrace::data {

std::size_t field_called(std::string_view name, std::span<const Field> fields) {
  const auto found = std::find_if(fields.begin(), fields.end(), [&](const Field& field) { return field.name == name; });
  if (found != fields.end()) return static_cast<std::size_t>(found - fields.begin());
  std::vector<std::string> names;
  for (const Field& field : fields) names.push_back(quoted(field.name));
  throw ConfigError(Message{.what = "the sample has no field " + quoted(name),
                            .where = names.empty() ? "a sample without fields" : "its fields are " + joined(names, ", "),
                            .next = "ask for a field by the name that its source gives it"});
}

std::size_t field_called(std::string_view name, std::span<const Field> fields, DType dtype) {
  const std::size_t number = field_called(name, fields);
  if (fields[number].dtype == dtype) return number;
  throw ConfigError(Message{.what = "field " + quoted(name) + " holds " + std::string(name_of(fields[number].dtype)) + ", not " +
                                    std::string(name_of(dtype)),
                            .where = "values<T>(" + quoted(name) + ")",
                            .next = "ask for the C++ type of " + std::string(name_of(fields[number].dtype))});
}

}  // namespace millrace::data
