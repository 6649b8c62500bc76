#include "millrace/base/shallow_json.h"

#include <gtest/gtest.h>

#include <string>

namespace millrace {
namespace {

std::string nested(std::size_t depth, char open, char close, const std::string& inside = "") {
  return std::string(depth, open) + inside + std::string(depth, close);
}

TEST(ShallowJson, TakesWhatIsNotDeep) {
  EXPECT_EQ(parse_shallow(R"({"a": [1, {"b": null}]})")["a"][0], 1);
  EXPECT_FALSE(parse_shallow(nested(kDeepestJson, '[', ']')).is_discarded());
}

TEST(ShallowJson, RefusesWhatIsDeepWhereverItStands) {
  EXPECT_TRUE(parse_shallow(nested(kDeepestJson + 1, '[', ']')).is_discarded());
  EXPECT_TRUE(parse_shallow(nested(1'000'000, '[', ']')).is_discarded());
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_TRUE(parse_shallow(objects).is_discarded());
  EXPECT_TRUE(parse_shallow("{\"a\": 1, \"b\": " + nested(1'000, '[', ']') + "}").is_discarded());
}

TEST(ShallowJson, BracketsInTextAreText) {
  const Json json = parse_shallow("{\"a\": \"\\\"" + std::string(1'000, '[') + "\\\\\"}");
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["a"].get<std::string>().size(), 1'002U);
}

TEST(ShallowJson, RefusesWhatIsNoJson) {
  for (const char* text : {"", "{", "[1", "]]]]", "\"", "\"\\", "{\"a\": 1e999}", "\xff\xfe", "nan"})
    EXPECT_TRUE(parse_shallow(text).is_discarded()) << text;
}

}  // namespace
}  // namespace millrace
