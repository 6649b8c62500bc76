#include "millrace/base/format.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <map>

#include "millrace/base/hash.h"
#include "millrace/base/median.h"
#include "millrace/base/utf8.h"

namespace millrace {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(Format, WithCommas) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(-1000), "-1,000");
  EXPECT_EQ(with_commas(1115394), "1,115,394");
  EXPECT_EQ(with_commas(std::numeric_limits<std::int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(Format, HumanBytes) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(17), "17 B");
  EXPECT_EQ(human_bytes(1000), "1.0 kB");
  EXPECT_EQ(human_bytes(812e3), "812 kB");
  EXPECT_EQ(human_bytes(9.96e5), "996 kB");
  EXPECT_EQ(human_bytes(999.9e3), "1.0 MB");
  EXPECT_EQ(human_bytes(3.1e9), "3.1 GB");
  EXPECT_EQ(human_bytes(kInf), "inf B");
}

TEST(Format, HumanDuration) {
  EXPECT_EQ(human_duration(0.81), "0.8 s");
  EXPECT_EQ(human_duration(9.96), "10 s");
  EXPECT_EQ(human_duration(42), "42 s");
  EXPECT_EQ(human_duration(59.6), "1 min 0 s");
  EXPECT_EQ(human_duration(190), "3 min 10 s");
  EXPECT_EQ(human_duration(3599.6), "1 h 00 min");
  EXPECT_EQ(human_duration(2 * 3600 + 5 * 60), "2 h 05 min");
  EXPECT_EQ(human_duration(86399), "1 d 0 h");
  EXPECT_EQ(human_duration(3 * 86400 + 4 * 3600), "3 d 4 h");
  EXPECT_EQ(human_duration(-5), "-5.0 s");
  EXPECT_EQ(human_duration(kNan), "nan s");
  EXPECT_EQ(human_duration(1e300), "1e+300 s");
}

TEST(Format, HumanRate) {
  EXPECT_EQ(human_rate(0.52), "0.52");
  EXPECT_EQ(human_rate(742), "742");
  EXPECT_EQ(human_rate(18400), "18.4k");
  EXPECT_EQ(human_rate(3.21e6), "3.21M");
  EXPECT_EQ(human_rate(999999), "1.00M");
}

TEST(Format, FixedAndSignificant) {
  EXPECT_EQ(fixed(2.317, 4), "2.3170");
  EXPECT_EQ(fixed(kNan, 2), "nan");
  EXPECT_EQ(fixed(-kInf, 2), "-inf");
  EXPECT_EQ(significant(0.001, 3), "0.001");
  EXPECT_EQ(significant(0.0099996, 3), "0.01");
  EXPECT_EQ(significant(0.00099996, 3), "0.001");
  EXPECT_EQ(significant(0.00051, 3), "5.1e-04");
  EXPECT_EQ(lasting(0.001, 3), "1e-03") << "texts of snapshots hold it so";
  EXPECT_EQ(lasting(0.0523, 3), "0.0523");
  EXPECT_EQ(significant(0.05231, 3), "0.0523");
  EXPECT_EQ(significant(12.44, 3), "12.4");
  EXPECT_EQ(significant(9.996, 3), "10");
  EXPECT_EQ(significant(-3e-4, 2), "-3e-04");
  EXPECT_EQ(significant(123456, 2), "120000");
  EXPECT_EQ(significant(0, 3), "0");
  EXPECT_EQ(percent(0.1234), "12 %");
  EXPECT_EQ(percent(0.1234, 1), "12.3 %");
}

TEST(Format, QuotedEscapesWhatMovesATerminal) {
  EXPECT_EQ(quoted("a"), "\"a\"");
  EXPECT_EQ(quoted("\"\\\n\t"), "\"\\\"\\\\\\n\\t\"");
  EXPECT_EQ(quoted(std::string_view("\x1B\0\x7F", 3)), "\"\\x1b\\x00\\x7f\"");
  EXPECT_EQ(quoted("\xC2\x9B"), "\"\\u009b\"");
  EXPECT_EQ(quoted("\xFF\xC3"), "\"\\xff\\xc3\"");
  EXPECT_EQ(quoted("größe"), "\"größe\"");
}

TEST(Format, NearestKnowsSwapsAndGivesUp) {
  const std::array<std::string, 4> words = {"learning_rate", "momentum", "eps", "betas"};
  const auto near = [&](std::string_view word) { return nearest(word, words.data(), words.data() + words.size()); };
  EXPECT_EQ(near("lerning_rate"), "learning_rate");
  EXPECT_EQ(near("learning-rate"), "learning_rate");
  EXPECT_EQ(near("esp"), "eps");
  EXPECT_EQ(near("batas"), "betas");
  EXPECT_EQ(near("dropout"), "");
  EXPECT_EQ(near(""), "");
  EXPECT_EQ(near(std::string(100000, 'x')), "");
}

TEST(Utf8, DecodesAndFindsTheFirstBadByte) {
  EXPECT_EQ(decode_utf8("a", 0).code_point, U'a');
  EXPECT_EQ(decode_utf8("€", 0).code_point, U'€');
  EXPECT_EQ(decode_utf8("😀", 0).code_point, U'😀');
  EXPECT_EQ(decode_utf8("😀", 0).size, 4U);
  EXPECT_FALSE(decode_utf8("€", 1).valid);
  EXPECT_EQ(first_invalid_utf8("aé€😀\xF4\x8F\xBF\xBF"), std::nullopt);
  EXPECT_EQ(first_invalid_utf8("é\x80"), 2U);
  EXPECT_EQ(first_invalid_utf8("a\xE2\x82"), 1U);         // cut short
  EXPECT_EQ(first_invalid_utf8("\xC0\x80"), 0U);          // overlong
  EXPECT_EQ(first_invalid_utf8("\xE0\x80\x80"), 0U);      // overlong
  EXPECT_EQ(first_invalid_utf8("\xF0\x80\x80\x80"), 0U);  // overlong
  EXPECT_EQ(first_invalid_utf8("\xED\xA0\x80"), 0U);      // surrogate
  EXPECT_EQ(first_invalid_utf8("\xF4\x90\x80\x80"), 0U);  // above U+10FFFF
  EXPECT_EQ(first_invalid_utf8("\xFF"), 0U);
}

TEST(Utf8, EveryCodePointRoundTrips) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    const Utf8Step step = decode_utf8(text, 0);
    ASSERT_TRUE(step.valid && step.code_point == c && step.size == text.size()) << static_cast<std::uint32_t>(c);
  }
}

TEST(LowerCase, IsTheSimpleMapping) {
  EXPECT_EQ(to_lower(U'A'), U'a');
  EXPECT_EQ(to_lower(U'z'), U'z');
  EXPECT_EQ(to_lower(U'Ä'), U'ä');
  EXPECT_EQ(to_lower(U'Σ'), U'σ');
  EXPECT_EQ(to_lower(U'Ж'), U'ж');
  EXPECT_EQ(to_lower(U'İ'), U'i');
  EXPECT_EQ(to_lower(U'Ÿ'), U'ÿ');
  EXPECT_EQ(to_lower(U'ß'), U'ß');
  EXPECT_EQ(to_lower(U'×'), U'×');
  EXPECT_EQ(to_lower(U'\U0001E900'), U'\U0001E922');
  EXPECT_EQ(to_lower(std::string_view("GRÖSSE \xFF Ω")), "grösse \xFF ω");
  int changed = 0;
  std::string all;
  for (char32_t c = 0; c < 0x110000; ++c) {
    changed += to_lower(c) != c ? 1 : 0;
    for (unsigned shift = 0; shift < 32; shift += 8) all += static_cast<char>(to_lower(c) >> shift);
  }
  EXPECT_EQ(changed, 1433);
  Sha256 hash;  // token files made with another mapping would not fit
  hash.update(all);
  EXPECT_EQ(hash.hex(), "2f1a7b3137115900193356ea8bad9367aa91a90cb168978abf46bf0592a94945");
}

TEST(Joined, PutsSeparatorsBetweenWordsOrWhatNamesThem) {
  EXPECT_EQ(joined(std::vector<std::string>{}, ", "), "");
  EXPECT_EQ(joined(std::vector<std::string>{"", "a", "b"}, ", "), ", a, b");
  const std::map<std::string, int> ages = {{"Ada", 36}, {"Bob", 7}};
  EXPECT_EQ(joined(ages, "; ", &std::pair<const std::string, int>::first), "Ada; Bob");
  EXPECT_EQ(joined(ages, "+", [](const auto& age) { return std::to_string(age.second); }), "36+7");
}

TEST(Median, IsTheMiddleOrTheUpperOfTwo) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 3, 2}), 3);
}

TEST(Figure, HasSixDigitsAtMost) {
  EXPECT_EQ(figure(2.317), "2.3170");
  EXPECT_EQ(figure(0.99456554), "0.9946");
  EXPECT_EQ(figure(-12.5), "-12.5000");
  EXPECT_EQ(figure(0.0523), "0.05230");
  EXPECT_EQ(figure(-0.0041234), "-0.004123");
  EXPECT_EQ(figure(0), "0.0000");
  EXPECT_EQ(figure(1234.5678), "1234.57");
  EXPECT_EQ(figure(3200000.4), "3.2e+06");
  EXPECT_EQ(figure(0.000123456), "1.235e-04");
  EXPECT_EQ(figure(std::numeric_limits<double>::quiet_NaN()), "nan");
}

TEST(Wrapped, PartsStayWholeAndFurtherLinesAreIndented) {
  EXPECT_EQ(wrapped({}, "  ", 20, "    "), "");
  EXPECT_EQ(wrapped({"done", "a 0.10", "b 0.20"}, "  ", 20, "    "), "done  a 0.10  b 0.20");
  EXPECT_EQ(wrapped({"done", "a 0.10", "b 0.20", "c"}, "  ", 19, "    "), "done  a 0.10\n    b 0.20  c");
  EXPECT_EQ(wrapped({"größe"}, "  ", 3, "    "), "größe") << "a part that is too long stands alone";
  EXPECT_EQ(wrapped({"ää", "ää"}, " ", 5, ""), "ää ää") << "columns, not bytes";
}

TEST(Printable, QuotesWhatIsNoPlainLine) {
  EXPECT_EQ(printable("runs/größe \"a\""), "runs/größe \"a\"");
  EXPECT_EQ(printable(""), "");
  EXPECT_EQ(printable("a\nb"), "\"a\\nb\"");
  EXPECT_EQ(printable("a\x1b[2J"), "\"a\\x1b[2J\"");
  EXPECT_EQ(printable("a\xff"), "\"a\\xff\"");
  EXPECT_EQ(printable("a\xc2\x9bJ"), "\"a\\u009bJ\"");
  EXPECT_EQ(printable("a\x7f"), "\"a\\x7f\"");
}

}  // namespace
}  // namespace millrace
