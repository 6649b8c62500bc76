#include "millrace/config/value_type.h"

#include <gmock/gmock.h>

#include <cmath>

#include "millrace/config/detail/test_config.h"
#include "millrace/config/schema_of.h"

namespace millrace::config {
namespace {

using ::testing::HasSubstr;

// The canonical value as JSON text, or "what | next" of each problem.
std::string canonical(const char* path, const Json& value, bool scalar_text = false) {
  std::vector<Problem> problems;
  const Leaf* leaf = test::settings_schema().find(path);
  const Json result = leaf->canonical(value, scalar_text, problems);
  if (problems.empty()) return result.dump();
  EXPECT_EQ(result, leaf->default_value);
  std::string text;
  for (const Problem& problem : problems) text += (text.empty() ? "" : "; ") + problem.what + " | " + problem.next;
  return text;
}

std::string from_text(const char* path, const char* text) { return canonical(path, text, true); }

TEST(Boolean, AcceptsOnlyTruthValues) {
  EXPECT_EQ(canonical("data.shuffle", false), "false");
  EXPECT_EQ(canonical("data.shuffle", 1), "true") << "as Python takes it";
  EXPECT_EQ(canonical("data.shuffle", 0), "false");
  EXPECT_EQ(canonical("data.shuffle", 2), "data.shuffle is 2, expected true or false | write true or false");
  EXPECT_EQ(canonical("data.shuffle", "true"), "data.shuffle is \"true\", expected true or false | write true without quotes");
  for (const char* text : {"true", "Yes", "ON", "1"}) EXPECT_EQ(from_text("data.shuffle", text), "true") << text;
  for (const char* text : {"false", "no", "off", " 0 "}) EXPECT_EQ(from_text("data.shuffle", text), "false") << text;
  EXPECT_THAT(from_text("data.shuffle", "maybe"), HasSubstr("expected true or false"));
}

TEST(Integer, AcceptsWholeNumbersInRange) {
  EXPECT_EQ(canonical("data.batch_size", 5), "5");
  EXPECT_EQ(canonical("data.batch_size", 1e3), "1000");
  EXPECT_EQ(from_text("data.batch_size", "1e3"), "1000");
  EXPECT_EQ(from_text("data.batch_size", " +7 "), "7");
  EXPECT_EQ(canonical("data.batch_size", 0), "data.batch_size is 0, out of range | choose a value >= 1");
  EXPECT_EQ(canonical("data.batch_size", 2.5), "data.batch_size is 2.5, expected an integer >= 1 | write an integer >= 1");
  EXPECT_EQ(canonical("data.batch_size", "8"), "data.batch_size is \"8\", expected an integer >= 1 | write it without quotes");
  EXPECT_EQ(canonical("data.batch_size", "6-8"),
            "data.batch_size is \"6-8\", expected an integer >= 1 | 6-8 is a range: choose one number in it, such as 6");
  EXPECT_EQ(canonical("data.batch_size", nullptr), "data.batch_size is null, expected an integer >= 1 | write an integer >= 1");
  EXPECT_EQ(canonical("data.workers", 257), "data.workers is 257, out of range | choose a value >= 0 and <= 256");
}

TEST(FromText, NoDepthCrashes) {
  const std::string deep = std::string(60'000, '[') + std::string(60'000, ']');
  std::string object;
  for (int i = 0; i < 20'000; ++i) object += "{\"a\":";
  object += "1" + std::string(20'000, '}');
  for (const std::string& text : {deep, "[" + deep + ", 0.9]", "[0.9, " + object + "]", object, "[" + deep, object.substr(1)}) {
    for (const Leaf& leaf : test::settings_schema().leaves) {
      std::vector<Problem> problems;
      static_cast<void>(leaf.canonical(text, true, problems));
      if (leaf.path == "optim.betas" || leaf.path == "model.sizes" || leaf.path == "model.blocks") {
        EXPECT_FALSE(problems.empty()) << leaf.path;
      }
    }
  }
}

TEST(Integer, KnowsTheRangeOfItsType) {
  EXPECT_EQ(canonical("model.bits", 255), "255");
  EXPECT_EQ(canonical("model.bits", 256), "model.bits is 256, out of range | choose an integer from 0 to 255");
  EXPECT_EQ(canonical("model.bits", -1), "model.bits is -1, out of range | choose an integer from 0 to 255");
  EXPECT_EQ(canonical("data.batch_size", 1e18),
            "data.batch_size is 1e+18, out of range | choose an integer from 1 to 9007199254740991");
  EXPECT_EQ(from_text("data.batch_size", "9223372036854775808"),
            "data.batch_size is 9223372036854775808, out of range | choose an integer from 1 to 9223372036854775807");
  EXPECT_EQ(canonical("data.workers", 1e18), "data.workers is 1e+18, out of range | choose a value >= 0 and <= 256");
  EXPECT_THAT(canonical("data.batch_size", 18446744073709551615ULL), HasSubstr("out of range"));
  EXPECT_THAT(canonical("data.batch_size", 1e300), HasSubstr("out of range"));
  EXPECT_EQ(canonical("data.batch_size", 9223372036854775807LL), "9223372036854775807");
  EXPECT_THAT(from_text("data.batch_size", "99999999999999999999999"), HasSubstr("out of range"));
  EXPECT_THAT(from_text("data.batch_size", "nan"), HasSubstr("expected an integer"));
}

TEST(Number, AcceptsFiniteNumbersInRange) {
  EXPECT_EQ(canonical("optim.learning_rate", 1), "1.0");
  EXPECT_EQ(from_text("optim.learning_rate", ".5"), "0.5");
  EXPECT_EQ(canonical("optim.learning_rate", 0), "optim.learning_rate is 0, out of range | choose a value > 0");
  EXPECT_EQ(canonical("optim.momentum", 1.0), "optim.momentum is 1.0, out of range | choose a value >= 0 and < 1");
  EXPECT_EQ(from_text("optim.learning_rate", "1e999"),
            "optim.learning_rate is 1e999, too large for a number | choose a smaller number");
  EXPECT_EQ(from_text("optim.momentum", "1e-999"), "0.0");
  EXPECT_EQ(canonical("optim.learning_rate", std::nan("")),
            "optim.learning_rate is nan, expected a number > 0 | write a number > 0");
  EXPECT_THAT(from_text("optim.learning_rate", "inf"), HasSubstr("too large for a number"));
  EXPECT_THAT(canonical("model.scale", 1e39), HasSubstr("too large for a number"));
  for (const char* text : {"", "0x10", "1e", "1.2.3", "++1", "1,5", "fast"}) {
    EXPECT_THAT(from_text("optim.learning_rate", text), HasSubstr("expected a number > 0")) << text;
  }
}

TEST(Text, IsTakenAsItIs) {
  EXPECT_EQ(from_text("data.cache", " 5 "), "\" 5 \"");
  EXPECT_EQ(canonical("data.cache", nullptr), "\"\"");
  EXPECT_EQ(canonical("data.cache", 5), "data.cache is 5, expected a path | write it in quotes");
  EXPECT_THAT(canonical("data.cache", std::string("a\0b", 3)), HasSubstr("data.cache holds a NUL byte"));
}

TEST(Word, ListsAndSuggests) {
  EXPECT_EQ(canonical("optim.name", "sgd"), "\"sgd\"");
  EXPECT_EQ(canonical("optim.name", "sdg"), "optim.name is \"sdg\", expected one of adamw, adam, sgd | did you mean \"sgd\"?");
  EXPECT_EQ(canonical("optim.name", "lion"),
            "optim.name is \"lion\", expected one of adamw, adam, sgd | write one of adamw, adam, sgd");
  EXPECT_THAT(canonical("optim.name", 1), HasSubstr("optim.name is 1, expected one of"));
}

TEST(Optional, AcceptsNull) {
  EXPECT_EQ(canonical("model.dropout", nullptr), "null");
  EXPECT_EQ(from_text("model.dropout", "none"), "null");
  EXPECT_EQ(from_text("model.dropout", "0.5"), "0.5");
  EXPECT_EQ(canonical("model.dropout", true),
            "model.dropout is true, expected a number >= 0 and < 1 or null | write a number >= 0 and < 1 or null");
  EXPECT_EQ(canonical("model.start_from", "a"), "\"a\"");
}

TEST(Automatic, AcceptsAuto) {
  EXPECT_EQ(canonical("data.workers", "auto"), "\"auto\"");
  EXPECT_EQ(from_text("data.workers", "4"), "4");
  EXPECT_EQ(canonical("data.workers", "some"),
            "data.workers is \"some\", expected \"auto\" or an integer >= 0 and <= 256 | "
            "write \"auto\" or an integer >= 0 and <= 256");
  EXPECT_EQ(from_text("model.solver", "autp"),
            "model.solver is \"autp\", expected \"auto\" or one of adamw, adam, sgd | "
            "write \"auto\" or one of adamw, adam, sgd");
}

struct Sizes {
  std::vector<std::int64_t> some = {1};
  std::vector<std::int64_t> few = {1, 2};
  static consteval auto fields() {
    return std::tuple{field<&Sizes::some>("Some.").not_empty().min(1), field<&Sizes::few>("Few.").size(1, 3)};
  }
};

TEST(List, HasALeastAndAGreatestSize) {
  const Schema schema = schema_of<Sizes>();
  const auto told = [&](const char* path, const Json& value) {
    std::vector<Problem> problems;
    static_cast<void>(schema.find(path)->canonical(value, false, problems));
    return problems.empty() ? "" : problems.front().what + " | " + problems.front().next;
  };
  EXPECT_EQ(told("some", Json::array()), "some has 0 values, expected at least 1 | write a list of at least 1 integers >= 1");
  EXPECT_EQ(told("some", Json({1, 2, 3, 4})), "");
  EXPECT_EQ(told("few", Json({1, 2, 3, 4})), "few has 4 values, expected 1 to 3 | write a list of 1 to 3 integers");
  EXPECT_EQ(told("few", Json({1, 2, 3})), "");
  EXPECT_EQ(schema.find("some")->range, "at least 1 value, >= 1");
}

TEST(List, IsCheckedElementByElement) {
  EXPECT_EQ(canonical("optim.betas", Json({0, 0.5})), "[0.0,0.5]");
  EXPECT_EQ(from_text("optim.betas", "0.25, 0.5"), "[0.25,0.5]");
  EXPECT_EQ(from_text("optim.betas", "[0.25, 0.5]"), "[0.25,0.5]");
  EXPECT_EQ(canonical("optim.betas", Json({0.5})),
            "optim.betas has 1 value, expected 2 | write a list of 2 numbers >= 0 and < 1");
  EXPECT_EQ(canonical("optim.betas", Json({2, "x"})),
            "optim.betas[0] is 2, out of range | choose a value >= 0 and < 1; "
            "optim.betas[1] is \"x\", expected a number >= 0 and < 1 | "
            "write a number >= 0 and < 1");
  EXPECT_EQ(canonical("data.sources", "a.txt"),
            "data.sources is \"a.txt\", expected a list of texts | write it in brackets: [\"a.txt\"]");
  EXPECT_EQ(from_text("data.sources", "a,b"), "[\"a\",\"b\"]");
  EXPECT_EQ(from_text("data.sources", ""), "[]");
}

TEST(Map, IsCheckedValueByValue) {
  EXPECT_EQ(canonical("model.sizes", Json({{"a", 1}})), "{\"a\":1}");
  EXPECT_EQ(from_text("model.sizes", "{\"a\": 2}"), "{\"a\":2}");
  EXPECT_EQ(canonical("model.sizes", Json({{"a", 0}})), "model.sizes.a is 0, out of range | choose a value >= 1");
  EXPECT_EQ(from_text("model.sizes", "a=1"),
            "model.sizes is \"a=1\", expected a map of integers | write an object: {\"name\": value}");
}

TEST(Choice, TakesTheFirstAlternativeThatFits) {
  EXPECT_EQ(canonical("model.stride", 3), "3");
  EXPECT_EQ(canonical("model.stride", "half"), "\"half\"");
  EXPECT_EQ(from_text("model.stride", "3"), "3");
  EXPECT_EQ(from_text("model.stride", "half"), "\"half\"");
  EXPECT_EQ(canonical("model.stride", true), "model.stride is true, expected an integer or text | write an integer or text");
}

TEST(Record, IsCheckedKeyByKey) {
  EXPECT_EQ(canonical("model.blocks", Json::parse(R"([{"gated": true}, {"width": 2}])")),
            R"([{"gated":true,"width":8},{"gated":false,"width":2}])");
  EXPECT_EQ(canonical("model.blocks", Json::parse(R"([{"width": 0, "gatde": 1}, 3])")),
            "model.blocks[0].width is 0, out of range | choose a value >= 1; "
            "unknown key \"model.blocks[0].gatde\" | did you mean \"model.blocks[0].gated\"?; "
            "model.blocks[1] is 3, expected an object {width, gated} | write an object {width, gated}");
}

TEST(Shown, IsShortAndSafe) {
  EXPECT_EQ(shown(std::string("a\x1B[31m\xFF")), "\"a\\x1b[31m\\xff\"");
  EXPECT_EQ(shown(Json(std::string(100, 'x'))), "\"" + std::string(59, 'x') + "…");
  EXPECT_EQ(shown(std::nan("")), "nan");
}

TEST(Guessed, TakesTextForWhatItLooksLike) {
  EXPECT_EQ(guessed("true"), true);
  EXPECT_EQ(guessed("null"), nullptr);
  EXPECT_EQ(guessed("3"), 3);
  EXPECT_EQ(guessed("0.5"), 0.5);
  EXPECT_EQ(guessed("nan"), "nan");
  EXPECT_EQ(guessed("cuda:0"), "cuda:0");
}

}  // namespace
}  // namespace millrace::config
