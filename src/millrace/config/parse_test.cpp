#include <gmock/gmock.h>

#include "millrace/config/schema.h"

namespace millrace::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Parsed {
  Json tree;
  std::map<std::string, std::string> origins;
  std::vector<Problem> problems;
  std::vector<std::string> notices;
  bool scalars_are_text = false;
  bool is_complete = false;
};

Parsed parse(std::string_view text, std::string_view suffix) {
  Parsed parsed;
  parsed.tree = parse_text(text, suffix, "f", parsed.origins, parsed.problems, parsed.notices, parsed.scalars_are_text,
                           &parsed.is_complete);
  return parsed;
}

// "what | where | next" of the only problem in the text.
std::string problem_of(std::string_view text, std::string_view suffix) {
  const Parsed parsed = parse(text, suffix);
  if (parsed.problems.size() != 1) return std::to_string(parsed.problems.size()) + " problems";
  return parsed.problems[0].what + " | " + parsed.problems[0].where + " | " + parsed.problems[0].next;
}

TEST(ParseJson, KeepsTypesAndLines) {
  const Parsed parsed =
      parse("{\n  \"a\": {\"b\": 1, // one\n \"c\": 1.0},\n /* two\n */ \"d\": [true, \"x\"], \"e.f\": null\n}", ".json");
  EXPECT_THAT(parsed.problems, IsEmpty());
  EXPECT_TRUE(parsed.is_complete);
  EXPECT_FALSE(parsed.scalars_are_text);
  EXPECT_EQ(parsed.tree, Json::parse(R"({"a": {"b": 1, "c": 1.0}, "d": [true, "x"], "e.f": null})"));
  EXPECT_TRUE(parsed.tree["a"]["c"].is_number_float());
  EXPECT_EQ(parsed.origins.at("a.b"), "f:2");
  EXPECT_EQ(parsed.origins.at("a.c"), "f:3");
  EXPECT_EQ(parsed.origins.at("d"), "f:5");
  EXPECT_EQ(parsed.origins.at("e.f"), "f:5");
}

TEST(ParseJson, SyntaxErrorsHavePlaceAndRemedy) {
  EXPECT_THAT(problem_of("{\"a\": 1,\n}", ".json"), HasSubstr("| f:2:1 | remove the comma before it"));
  EXPECT_THAT(problem_of("{\"a\":\n  6-8}", ".json"), HasSubstr("| a range such as 6-8 is not a value: choose one number in it"));
  EXPECT_THAT(problem_of("{'a': 1}", ".json"), HasSubstr("| f:1:2 | JSON puts text in double quotes"));
  EXPECT_THAT(problem_of("{\"a\" \"b\"}", ".json"), HasSubstr("| a comma or colon is missing before it"));
  EXPECT_THAT(problem_of("{\"a\": [1", ".json"), HasSubstr("the file ends too early"));
  EXPECT_THAT(problem_of("{a: 1}", ".json"), HasSubstr("syntax error in JSON: invalid literal"));
  EXPECT_THAT(problem_of("{} {}", ".json"), HasSubstr("| f:1:4 |"));
  EXPECT_EQ(problem_of("{\"a\":\n 1e999}", ".json"), "1e999 is too large for a number | f:2 | write a smaller number");
  EXPECT_THAT(problem_of("{\"a\": NaN}", ".json"), HasSubstr("syntax error"));
  EXPECT_EQ(problem_of(" \n", ".json"), "the file is empty | f:1 | write {} for a config without settings");
}

TEST(ParseJson, WhatCameBeforeTheErrorIsStillThere) {
  const Parsed parsed = parse("{\"a\": {\"b\": 1}, \"c\": [2, }", ".json");
  EXPECT_EQ(parsed.tree["a"]["b"], 1);
  EXPECT_FALSE(parsed.is_complete);
}

TEST(ParseToml, KeepsTypesAndLines) {
  const Parsed parsed = parse("x = 1\n[a]\nb.c = 1.5\nd = [\"y\", 2]\n[[e]]\nf = true\n[[e]]\nf = 1979-05-27\n", ".toml");
  EXPECT_THAT(parsed.problems, IsEmpty());
  EXPECT_EQ(parsed.tree,
            Json::parse(R"({"x": 1, "a": {"b": {"c": 1.5}, "d": ["y", 2]}, "e": [{"f": true}, {"f": "1979-05-27"}]})"));
  EXPECT_EQ(parsed.origins.at("a.b.c"), "f:3");
  EXPECT_EQ(parsed.origins.at("a.d"), "f:4");
}

TEST(ParseToml, NullIsTakenAsEmptyWithANotice) {
  const Parsed parsed = parse("resume = null  # none\ntext = \"\"\nlong = '''\nx = null\n'''\n", ".toml");
  EXPECT_THAT(parsed.problems, IsEmpty());
  EXPECT_EQ(parsed.tree, Json::parse(R"({"resume": null, "text": "", "long": "x = null\n"})"));
  EXPECT_THAT(parsed.notices, ElementsAre("f:1: null is not TOML; it is read as an empty text"));
}

TEST(ParseToml, SyntaxErrorsHavePlaceAndRemedy) {
  EXPECT_THAT(problem_of("a = 1\nb = hello\n", ".toml"), HasSubstr("| f:2:"));
  EXPECT_THAT(problem_of("a = 1\nb = 6-8\n", ".toml"),
              HasSubstr("| a range such as 6-8 is not a value: choose one number in it"));
  EXPECT_THAT(problem_of("a = 1\na = 2\n", ".toml"), HasSubstr("| f:2:"));
  EXPECT_THAT(problem_of("[a\n", ".toml"), HasSubstr("syntax error in TOML: "));
  EXPECT_THAT(problem_of("a = 99999999999999999999\n", ".toml"), HasSubstr("syntax error in TOML: "));
}

TEST(ParseYaml, ScalarsStayText) {
  const Parsed parsed = parse("a:\n  b: no\n  c: [1, \"2\"]\nd: ~\ne: 1e-3\n", ".yaml");
  EXPECT_THAT(parsed.problems, IsEmpty());
  EXPECT_TRUE(parsed.scalars_are_text);
  EXPECT_EQ(parsed.tree, Json::parse(R"({"a": {"b": "no", "c": ["1", "2"]}, "d": null, "e": "1e-3"})"));
  EXPECT_EQ(parsed.origins.at("a.c"), "f:3");
}

TEST(ParseYaml, RefusesWhatAConfigDoesNotNeed) {
  EXPECT_THAT(problem_of("a: &x 1\nb: *x\n", ".yml"), HasSubstr("anchors (&name) are not accepted in a config | f:1 |"));
  EXPECT_THAT(problem_of("? [1, 2]\n: 3\n", ".yml"), HasSubstr("a key is a list or a map | f:1 |"));
  EXPECT_THAT(problem_of("a: 1\na: 2\n", ".yml"),
              HasSubstr("key \"a\" appears twice | f:2 | remove one of them; the first is at f:1"));
  EXPECT_THAT(problem_of("a: [1\n", ".yml"), HasSubstr("syntax error in YAML: "));
  EXPECT_THAT(problem_of("- 1\n- 2\n", ".yml"), HasSubstr("the file holds a list, expected sections with keys"));
  EXPECT_THAT(problem_of("just text\n", ".yml"), HasSubstr("the file holds a single value"));
}

TEST(ParseYaml, RefusesTagsThatAskForMoreThanAValue) {
  EXPECT_EQ(problem_of("a: 1\nb: !env DIR\n", ".yml"),
            "the tag \"!env\" is not accepted in a config | f:2 | remove it and write the value out");
  for (const char* text : {"b: !include [x]\n", "b: !x {c: 1}\n"})
    EXPECT_THAT(problem_of(text, ".yml"), HasSubstr(" is not accepted in a config | f:1 |")) << text;
  const Parsed parsed = parse("a: !!float 1\nb: !!str 2\nc: !!seq [3]\nd: !!map {e: \"4\"}\nf: !!python/tuple [5]\n", ".yaml");
  EXPECT_THAT(parsed.problems, IsEmpty());
  EXPECT_EQ(parsed.tree, Json::parse(R"({"a": "1", "b": "2", "c": ["3"], "d": {"e": "4"}, "f": ["5"]})"));
}

TEST(ParseYaml, HoldsOneDocument) {
  EXPECT_EQ(problem_of("a: 1\n---\nb: 2\n", ".yaml"),
            "the file holds a second document | f:2 | remove it and its --- line: a config is one document");
  EXPECT_THAT(problem_of("--- # one\na: 1\n...\n---\na: 1\n", ".yaml"), HasSubstr("| f:4 |"));
  const Parsed parsed = parse("---\na: 1\n...\n", ".yaml");
  EXPECT_THAT(parsed.problems, IsEmpty());
  EXPECT_EQ(parsed.tree["a"], "1");
}

TEST(ParseText, RepeatedKeysNameBothPlaces) {
  const Parsed parsed = parse("{\"a\": {\"b\": 1,\n\"b\": {\"c\": 3}},\n\"a\": 4}", ".json");
  ASSERT_EQ(parsed.problems.size(), 2U);
  EXPECT_EQ(parsed.problems[0].what, "key \"a.b\" appears twice");
  EXPECT_EQ(parsed.problems[0].where, "f:2");
  EXPECT_EQ(parsed.problems[1].next, "remove one of them; the first is at f:1");
  EXPECT_EQ(parsed.tree, Json::parse(R"({"a": {"b": 1}})"));
  EXPECT_TRUE(parsed.is_complete);
}

TEST(ParseText, EmptyTextIsAnEmptyConfigWhereTheFormatSaysSo) {
  for (const char* suffix : {".toml", ".yaml"}) {
    const Parsed parsed = parse("# nothing\n", suffix);
    EXPECT_THAT(parsed.problems, IsEmpty()) << suffix;
    EXPECT_EQ(parsed.tree, Json::object()) << suffix;
  }
}

TEST(ParseText, ByteOrderMarkIsSkipped) {
  EXPECT_EQ(parse("\xEF\xBB\xBF{\"a\": 1}", ".json").tree["a"], 1);
  EXPECT_EQ(parse("\xEF\xBB\xBF"
                  "a = 1",
                  ".toml")
                .tree["a"],
            1);
  EXPECT_EQ(parse("\xEF\xBB\xBF"
                  "a: 1",
                  ".yaml")
                .tree["a"],
            "1");
}

TEST(ParseText, BytesThatAreNoTextAreRefused) {
  for (const char* suffix : {".json", ".toml", ".yaml"}) {
    EXPECT_EQ(problem_of("a\n\xFF", suffix), "byte 2 of the file is not UTF-8 text | f:2 | save the file as UTF-8");
    EXPECT_THAT(problem_of(std::string_view("{}\0", 3), suffix), HasSubstr("byte 2 of the file"));
    EXPECT_THAT(problem_of(std::string((1U << 20U) + 1, ' '), suffix), HasSubstr("a config has at most 1 MB"));
  }
}

TEST(ParseText, DepthAndNumberOfValuesAreBounded) {
  for (const char* suffix : {".json", ".yaml", ".toml"}) {
    const std::string head = std::string_view(suffix) == ".toml"   ? "a = "
                             : std::string_view(suffix) == ".yaml" ? "a: "
                                                                   : "{\"a\": ";
    const std::size_t depth = std::string_view(suffix) == ".json" ? 1'000'000 : 50'000;
    EXPECT_EQ(parse(head + std::string(depth, '['), suffix).problems.size(), 1U) << suffix;
    EXPECT_EQ(parse(head + std::string(depth, '{'), suffix).problems.size(), 1U) << suffix;
    std::string many = head + "[1";
    for (int i = 0; i < 100'000; ++i) many += ",1";
    many += std::string_view(suffix) == ".json" ? "]}" : "]";
    EXPECT_THAT(problem_of(many, suffix), HasSubstr("more than 100,000 values")) << suffix;
  }
  EXPECT_THAT(problem_of(std::string(40, '['), ".json"), HasSubstr("values are nested more than 32 deep | f:1"));
  std::string dashes;
  for (int i = 0; i < 20'000; ++i) dashes += "- ";
  EXPECT_EQ(parse(dashes, ".yaml").problems.size(), 1U);
}

std::string repeated(std::string_view text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

TEST(ParseText, NoDepthCrashes) {
  constexpr int kDeep = 100'000;
  const std::string dots = repeated("a.", kDeep) + "a";
  EXPECT_EQ(problem_of("x = 1\n" + dots + " = 1", ".toml"),
            "a key has more than 32 dots | f:2 | sections hold keys, and keys hold values or lists");
  const std::string quoted_dots = repeated("\"a\" . ", kDeep);
  const std::vector<std::string> deep = {"[" + dots + "]",
                                         "[[" + dots + "]]",
                                         "x = {" + dots + " = 1}",
                                         "x = [{y = 1, " + dots + " = 1}]",
                                         quoted_dots + "a = 1",
                                         "x = { y = \"\"\"b\"\"\"\", " + dots + " = 1}",
                                         "x = { y = '''b''''', " + dots + " = 1}",
                                         "x = { y = \"\\\\\", " + dots + " = 1}",
                                         "x = '\\'\n" + dots + " = 1",
                                         "# \"\"\"\n" + dots + " = 1"};
  for (const std::string& text : deep) {
    EXPECT_THAT(problem_of(text, ".toml"), HasSubstr("a key has more than 32 dots | f:")) << text.substr(0, 40);
  }
  for (const std::string& text : {repeated("? ", kDeep), "a: " + repeated("{a: ", 50'000), repeated("- ? ", 20'000),
                                  repeated("!!map ", 20'000), "a: " + repeated("[{", 20'000)}) {
    EXPECT_EQ(parse(text, ".yaml").problems.size(), 1U) << text.substr(0, 40);
  }
  std::string blocks;
  for (std::size_t i = 0; i < 1000; ++i) blocks += std::string(i, ' ') + "a:\n";
  EXPECT_THAT(problem_of(blocks, ".yaml"), HasSubstr("values are nested more than 32 deep | f:33"));
  EXPECT_EQ(problem_of(repeated("{\"a\":", kDeep), ".json"),
            "values are nested more than 32 deep | f:1 | sections hold keys, and keys hold values or lists");
}

TEST(ParseToml, DotsInTextAreNoDepth) {
  const std::string files = repeated("\"a.b.c\", '.d.e.f', ", 40);
  const std::string many = repeated(".", 40);
  const Parsed parsed =
      parse("files = [" + files + "]\nlong = \"\"\"\n" + many + "\\\"\"\"\"\n# " + many + "\n" + repeated("x.", 20) + "y = 1.5\n",
            ".toml");
  EXPECT_THAT(parsed.problems, IsEmpty());
  EXPECT_EQ(parsed.tree["files"].size(), 80U);
}

TEST(ParseText, EveryTruncationEndsInATreeOrAProblem) {
  const std::vector<std::pair<std::string, std::string>> files = {
      {".json", "{\"a\": {\"b\": [1, -2.5e3, \"x\\u00e9\", null]}, // c\n \"d\": true}"},
      {".toml", "a = 'x'\n[b.c]\nd = [1, {e = 2}]\n\"f\" = 1979-05-27T07:32:00Z\n[[g]]\nh = \"\"\"\ny\"\"\"\n"},
      {".yaml", "a: {b: [1, 'x']}\nc:\n  - d: |\n      text\n  - \"e\\n\"\n? f\n: g\n"}};
  for (const auto& [suffix, text] : files) {
    for (std::size_t size = 0; size <= text.size(); ++size) {
      std::string changed = text.substr(0, size);
      EXPECT_TRUE(parse(changed, suffix).tree.is_object());
      if (size == 0) continue;
      for (const char byte : {'\0', '[', '"', '\xC3', '9', ':', '\n'}) {
        changed = text;
        changed[size - 1] = byte;
        EXPECT_TRUE(parse(changed, suffix).tree.is_object());
      }
    }
  }
}

}  // namespace
}  // namespace millrace::config
