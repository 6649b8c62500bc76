#include "millrace/snapshot/detail/json_text.h"

#include <cmath>
#include <limits>

namespace millrace::snapshot::detail {
namespace {

constexpr const char* kNumber = "$number";
constexpr int kMostLevels = 100;  // code that recurses into the JSON is safe up to this depth

Json sealed(const Json& value) {
  if (value.is_number_float()) {
    const auto number = value.get<double>();
    if (std::isnan(number)) return {{kNumber, "nan"}};
    if (std::isinf(number)) return {{kNumber, number > 0 ? "inf" : "-inf"}};
    return value;
  }
  if (!value.is_structured()) return value;
  Json result = value;
  for (Json& item : result) item = sealed(item);
  return result;
}

void unseal(Json& value) {
  if (!value.is_structured()) return;
  if (value.is_object() && value.size() == 1 && value.begin().key() == kNumber) {
    const Json& word = *value.begin();
    if (word == "nan") return void(value = std::numeric_limits<double>::quiet_NaN());
    if (word == "inf") return void(value = std::numeric_limits<double>::infinity());
    if (word == "-inf") return void(value = -std::numeric_limits<double>::infinity());
  }
  for (Json& item : value) unseal(item);
}

struct TooDeep {};

}  // namespace

std::string to_canonical(const Json& value, int indent) { return sealed(value).dump(indent); }

std::optional<Json> from_canonical(std::string_view text) {
  try {
    Json value = Json::parse(text, [](int depth, Json::parse_event_t, Json&) {
      if (depth > kMostLevels) throw TooDeep{};
      return true;
    });
    unseal(value);
    return value;
  } catch (const Json::exception&) {
    return std::nullopt;
  } catch (const TooDeep&) {
    return std::nullopt;
  }
}

}  // namespace millrace::snapshot::detail
