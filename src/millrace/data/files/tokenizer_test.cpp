#include "millrace/data/files/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/base/error.h"
#include "tests/support/refusal.h"

namespace millrace::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Tokenizer, basic_numbers_lower_case_characters_in_order_from_four) {
  const auto tokenizer = Tokenizer::basic(U"cabBÄ ");
  EXPECT_EQ(tokenizer->characters(), U" abcä");
  EXPECT_EQ(tokenizer->vocab_size(), 9);
  EXPECT_THAT(tokenizer->encode("Ab Äc!"), ElementsAre(5, 6, 4, 8, 7, 1));
  EXPECT_EQ(tokenizer->decode(std::vector<std::int64_t>{2, 5, 6, 4, 8, 7, 1, 3, 0}), "ab äc\uFFFD");
  EXPECT_EQ(tokenizer->decode(std::vector<std::int64_t>{-1, 9, 1'000'000'000'000}), "\uFFFD\uFFFD\uFFFD");
}

TEST(Tokenizer, bytes_lose_nothing) {
  const auto tokenizer = Tokenizer::bytes();
  EXPECT_EQ(tokenizer->vocab_size(), 260);
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  const auto tokens = tokenizer->encode(all);
  EXPECT_EQ(tokens.front(), 4);
  EXPECT_EQ(tokens.back(), 259);
  EXPECT_EQ(tokenizer->decode(tokens), all);
}

TEST(Tokenizer, names_the_byte_that_is_not_utf8) {
  try {
    (void)Tokenizer::basic(U"ab")->encode("ab\xFF");
    FAIL();
  } catch (const DataError& error) {
    EXPECT_EQ(error.message().where, "byte 2");
  }
}

TEST(Tokenizer, comes_back_from_json) {
  for (const auto& tokenizer : {Tokenizer::basic(U"\n a€\U0001F600z"), Tokenizer::basic(U""), Tokenizer::bytes()}) {
    const auto again = Tokenizer::from_json(Json::parse(tokenizer->to_json().dump()));
    EXPECT_EQ(again->kind(), tokenizer->kind());
    EXPECT_EQ(again->characters(), tokenizer->characters());
    EXPECT_EQ(again->fingerprint(), tokenizer->fingerprint());
  }
  EXPECT_NE(Tokenizer::basic(U"ab")->fingerprint(), Tokenizer::basic(U"ac")->fingerprint());
}

TEST(Tokenizer, damaged_json_is_refused) {
  const auto what = [](const char* text) {
    return refusal_message<SnapshotError>([&] { (void)Tokenizer::from_json(Json::parse(text)); }).what;
  };
  EXPECT_THAT(what("1"), HasSubstr("no \"kind\""));
  EXPECT_THAT(what(R"({"kind": 3})"), HasSubstr("no \"kind\""));
  EXPECT_THAT(what(R"({"kind": "bpe"})"), HasSubstr("kind is \"bpe\""));
  EXPECT_THAT(what(R"({"kind": "basic"})"), HasSubstr("no \"characters\""));
  EXPECT_THAT(what(R"({"kind": "basic", "characters": "ba"})"), HasSubstr("sorted and distinct at byte 1"));
  EXPECT_THAT(what(R"({"kind": "basic", "characters": "aa"})"), HasSubstr("sorted and distinct at byte 1"));
  EXPECT_THAT(what(R"({"kind": "basic", "characters": "A"})"), HasSubstr("not lower-case"));
}

}  // namespace
}  // namespace millrace::data
