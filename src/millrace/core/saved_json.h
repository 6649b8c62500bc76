// Reads the JSON of a snapshot's part and checks each value, because another program may have written it with correct checksums.
// Also converts numbers that may not be finite to JSON, which has no NaN.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/base/json.h"

namespace millrace {

// A value in the JSON of a snapshot's part. The JSON must outlive this object. A value that is missing, of another kind or out
// of range causes a SnapshotError that names the part, the place in its JSON and the value.
class SavedJson {
 public:
  SavedJson(const Json& json, std::string part) : SavedJson(json, std::move(part), "") {}

  [[nodiscard]] const Json& json() const noexcept { return *json_; }
  [[nodiscard]] SavedJson operator[](const std::string& key) const;           // returns the value of an object at this key
  [[nodiscard]] std::optional<SavedJson> find(const std::string& key) const;  // like operator[]; nullopt if the key is missing
  [[nodiscard]] std::vector<std::pair<std::string, SavedJson>> members() const;
  // Returns the elements of an array. If `size` is given, the array must have that length.
  [[nodiscard]] std::vector<SavedJson> list(std::optional<std::size_t> size = {}) const;

  [[nodiscard]] std::int64_t integer(std::int64_t lowest, std::int64_t highest = std::numeric_limits<std::int64_t>::max()) const;
  [[nodiscard]] double number() const;
  [[nodiscard]] double number_or_nan() const;  // returns NaN for null
  [[nodiscard]] bool boolean() const;
  [[nodiscard]] std::string text() const;

  [[noreturn]] void refuse(const std::string& expected) const;  // throws a SnapshotError: "… is 5, not `expected`"

 private:
  SavedJson(const Json& json, std::string part, std::string place)
      : json_(&json), part_(std::move(part)), place_(std::move(place)) {}
  [[nodiscard]] SavedJson below(const Json& json, const std::string& key) const { return {json, part_, place_ + "/" + key}; }

  const Json* json_;
  std::string part_;
  std::string place_;
};

// Throws a SnapshotError which says that the part `part` can't be used because of `problem`.
[[noreturn]] void refuse_part(const std::string& part, const std::string& problem);

// Converts a number for people and logs: if it is not finite it becomes text, so that it is not silently lost.
[[nodiscard]] Json number_or_text(double value);
[[nodiscard]] Json number_or_text(std::optional<double> value);  // returns null for nullopt

// Converts a number for saved state: if it is not finite it becomes null, which number_or_nan() reads as NaN.
[[nodiscard]] Json number_or_null(double value);

}  // namespace millrace
