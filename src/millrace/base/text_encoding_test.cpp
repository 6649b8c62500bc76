#include "millrace/base/text_encoding.h"

#include <gmock/gmock.h>

namespace millrace {
namespace {

using testing::HasSubstr;
using namespace std::string_literals;

NoText found(const std::string& text) { return problem_of_text(text, "a b.txt").value_or(NoText{"is text"}); }

std::string wide(const std::string& ascii, std::size_t width, bool little) {
  std::string text;
  for (const char c : ascii) {
    const std::string rest(width - 1, '\0');
    text += little ? c + rest : rest + c;
  }
  return text;
}

TEST(TextEncoding, TextIsText) {
  for (const std::string& text : {"plain"s, ""s, "\xEF\xBB\xBFmarked"s, "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80"s, "P.K."s})
    EXPECT_EQ(found(text).is, "is text");
}

TEST(TextEncoding, WideTextIsNamedWithTheEncodingThatMendsIt) {
  EXPECT_EQ(found("\xFF\xFE" + wide("abc", 2, true)).is, "is UTF-16 text with a byte-order mark, not UTF-8");
  EXPECT_EQ(found("\xFF\xFE" + wide("abc", 2, true)).next,
            "convert it in place: mv 'a b.txt' 'a b.txt.orig' && iconv -f UTF-16 -t UTF-8 < 'a b.txt.orig' > 'a b.txt'");
  EXPECT_EQ(found("\xFF\xFE\0\0"s + wide("abc", 4, true)).is, "is UTF-32 text with a byte-order mark, not UTF-8");
  EXPECT_THAT(found(wide("Some words.\n", 2, true)).next, HasSubstr("-f UTF-16LE "));
  EXPECT_THAT(found(wide("Some words.\n", 2, false)).next, HasSubstr("-f UTF-16BE "));
  EXPECT_THAT(found(wide("Some words.\n", 4, true)).next, HasSubstr("-f UTF-32LE "));
  EXPECT_THAT(found(wide("Some words.\n", 4, false)).next, HasSubstr("-f UTF-32BE "));
}

TEST(TextEncoding, ARemedyIsNamedWhereItIsPlausible) {
  EXPECT_THAT(found("fr\xFCh am Morgen").next, HasSubstr("iconv -f LATIN1 -t UTF-8"));
  EXPECT_THAT(found("\x93no\x94 is what he said").next, HasSubstr("iconv -f CP1252 -t UTF-8"));
  EXPECT_THAT(found("\xC7\xE8\xEC\xE0 \xE1\xFB\xEB\xE0").next, HasSubstr("iconv -l lists the names"));
  EXPECT_THAT(found("a word, \xE1\xFB\xEB\xE0, in a text of other letters").next, HasSubstr("iconv -l lists the names"));
  EXPECT_THAT(found("\xE2\x82\xAC and \xE2\x82\xAC, but \xFF").is, HasSubstr("has bytes that are not valid UTF-8"));
  EXPECT_THAT(found("some words\0 and more of them"s).next, HasSubstr("tr -d '\\000'"));
  EXPECT_EQ(found("some words\0 and more of them"s).byte, 10U);
  EXPECT_THAT(found("fr\xC3\xBCh a\0 and more of them"s).is, HasSubstr("holds NUL characters"));
  EXPECT_THAT(found(std::string(200, 'a') + "\0\1\2\3"s).is, HasSubstr("holds NUL characters")) << "no text of 16 bits";
  EXPECT_EQ(found("\x01\x02\x03\x04\xFF\x05").next, "name only files that hold UTF-8 text");
}

}  // namespace
}  // namespace millrace
