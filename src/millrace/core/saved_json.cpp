#include "millrace/core/saved_json.h"

#include <cmath>

#include "millrace/base/error.h"
#include "millrace/base/format.h"

namespace millrace {
namespace {

std::string shown_value(const Json& json) {
  constexpr std::size_t kMost = 60;
  if (json.is_structured() && json.size() > kMost) return json.is_array() ? "a long list" : "a large object";
  const std::string text = json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

}  // namespace

void refuse_part(const std::string& part, const std::string& problem) {
  throw SnapshotError({"the snapshot's " + part + " part can't be used: " + problem, "part \"" + part + "\"",
                       "resume from another snapshot, or start over with --fresh"});
}

void SavedJson::refuse(const std::string& expected) const {
  refuse_part(part_, (place_.empty() ? "it" : place_.substr(1)) + " is " + shown_value(*json_) + ", not " + expected);
}

SavedJson SavedJson::operator[](const std::string& key) const {
  if (auto found = find(key)) return *std::move(found);
  refuse("an object with \"" + key + "\"");
}

std::optional<SavedJson> SavedJson::find(const std::string& key) const {
  if (!json_->is_object()) refuse("an object");
  const auto found = json_->find(key);
  return found == json_->end() ? std::nullopt : std::optional(below(*found, key));
}

std::vector<std::pair<std::string, SavedJson>> SavedJson::members() const {
  if (!json_->is_object()) refuse("an object");
  std::vector<std::pair<std::string, SavedJson>> all;
  for (const auto& [key, value] : json_->items()) all.emplace_back(key, below(value, key));
  return all;
}

std::vector<SavedJson> SavedJson::list(std::optional<std::size_t> size) const {
  if (!json_->is_array() || (size && json_->size() != *size)) refuse("a list" + (size ? " of " + std::to_string(*size) : ""));
  std::vector<SavedJson> all;
  for (std::size_t i = 0; i < json_->size(); ++i) all.push_back(below((*json_)[i], std::to_string(i)));
  return all;
}

std::int64_t SavedJson::integer(std::int64_t lowest, std::int64_t highest) const {
  const bool too_large = json_->is_number_unsigned() &&
                         json_->get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  const bool fits =
      json_->is_number_integer() && !too_large && json_->get<std::int64_t>() >= lowest && json_->get<std::int64_t>() <= highest;
  if (fits) return json_->get<std::int64_t>();
  const bool open = highest == std::numeric_limits<std::int64_t>::max();
  refuse("an integer >= " + std::to_string(lowest) + (open ? "" : " and <= " + std::to_string(highest)));
}

double SavedJson::number() const {
  if (!json_->is_number()) refuse("a number");
  return json_->get<double>();
}

double SavedJson::number_or_nan() const { return json_->is_null() ? std::nan("") : number(); }

bool SavedJson::boolean() const {
  if (!json_->is_boolean()) refuse("true or false");
  return json_->get<bool>();
}

std::string SavedJson::text() const {
  if (!json_->is_string()) refuse("text");
  return json_->get<std::string>();
}

Json number_or_text(double value) { return std::isfinite(value) ? Json(value) : Json(fixed(value, 0)); }
Json number_or_text(std::optional<double> value) { return value ? number_or_text(*value) : Json(); }
Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

}  // namespace millrace
