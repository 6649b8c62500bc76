#include "millrace/base/foreign_json.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace millrace {
namespace {

std::string nested(std::size_t depth, char open, char close, const std::string& inside = "") {
  return std::string(depth, open) + inside + std::string(depth, close);
}

TEST(ForeignJson, TakesWhatIsNotDeep) {
  EXPECT_EQ(parse_shallow(R"({"a": [1, {"b": null}]})")["a"][0], 1);
  EXPECT_FALSE(parse_shallow(nested(kDeepestJson, '[', ']')).is_discarded());
}

TEST(ForeignJson, RefusesWhatIsDeepWhereverItStands) {
  EXPECT_TRUE(parse_shallow(nested(kDeepestJson + 1, '[', ']')).is_discarded());
  EXPECT_TRUE(parse_shallow(nested(1'000'000, '[', ']')).is_discarded());
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_TRUE(parse_shallow(objects).is_discarded());
  EXPECT_TRUE(parse_shallow("{\"a\": 1, \"b\": " + nested(1'000, '[', ']') + "}").is_discarded());
}

TEST(ForeignJson, BracketsInTextAreText) {
  const Json json = parse_shallow("{\"a\": \"\\\"" + std::string(1'000, '[') + "\\\\\"}");
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["a"].get<std::string>().size(), 1'002U);
}

TEST(ForeignJson, RefusesWhatIsNoJson) {
  for (const char* text : {"", "{", "[1", "]]]]", "\"", "\"\\", "{\"a\": 1e999}", "\xff\xfe", "nan"})
    EXPECT_TRUE(parse_shallow(text).is_discarded()) << text;
}

TEST(ForeignJson, WhatIsMissingOrOfAnotherKindIsNoValue) {
  const Json json = {{"a", {{"text", "b"}, {"number", 2.5}, {"below", -3}, {"large", 1e300}}}, {"list", {1, 2}}};
  EXPECT_EQ(json_at(json, {"a", "number"}), 2.5);
  EXPECT_EQ(json_at(json, {}), json);
  EXPECT_TRUE(json_at(json, {"a", "gone"}).is_null());
  EXPECT_TRUE(json_at(json, {"list", "0"}).is_null());
  EXPECT_TRUE(json_at(Json("text"), {"a"}).is_null());
  EXPECT_EQ(text_at(json, {"a", "text"}), "b");
  EXPECT_EQ(text_at(json, {"a", "number"}), "");
  EXPECT_EQ(number_at(json, {"a", "number"}), 2.5);
  EXPECT_EQ(number_at(json, {"a", "text"}), std::nullopt);
  EXPECT_EQ(number_at(Json(std::numeric_limits<double>::infinity()), {}), std::nullopt);
  EXPECT_EQ(count_at(json, {"a", "number"}), 2);
  EXPECT_EQ(count_at(json, {"a", "below"}), 0);
  EXPECT_EQ(count_at(json, {"a", "large"}), 1'000'000'000'000'000);
  EXPECT_EQ(count_at(json, {"a", "text"}), 0);
}

}  // namespace
}  // namespace millrace
