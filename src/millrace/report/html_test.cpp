#include "millrace/report/html.h"

#include <gmock/gmock.h>

namespace millrace::report {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Html, EscapedTextIsTextEverywhere) {
  EXPECT_EQ(escaped("a<b>&\"'"), "a&lt;b&gt;&amp;&quot;&#39;");
  EXPECT_EQ(escaped("\xff\x01é"), "\xef\xbf\xbd é");
  EXPECT_EQ(escaped(std::string_view("\0", 1)), " ");
}

TEST(Html, Base64OfRfc4648) {
  for (const auto& [bytes, text] :
       {std::pair{"", ""}, std::pair{"f", "Zg=="}, std::pair{"fo", "Zm8="}, std::pair{"foo", "Zm9v"},
        std::pair{"foob", "Zm9vYg=="}, std::pair{"fooba", "Zm9vYmE="}, std::pair{"foobar", "Zm9vYmFy"}})
    EXPECT_EQ(base64(bytes), text);
  EXPECT_EQ(base64("\xff\xfe"), "//4=");
}

TEST(Html, AColumnOfNumbersStandsToTheRight) {
  const std::string numbers = table({{"block", "seconds"}, {"1", "12.5 s"}, {"2", ""}, {"3", "9 min 1 s"}});
  EXPECT_THAT(numbers,
              testing::AllOf(HasSubstr("<th class=\"n\">seconds"), HasSubstr("<td class=\"n\">12.5 s"), HasSubstr("<td>1")));
  const std::string words = table({{"key", "value"}, {"a", "3"}, {"b", "three"}});
  EXPECT_THAT(words, testing::AllOf(HasSubstr("class=\"words\""), Not(HasSubstr("class=\"n\""))));
}

TEST(Html, SharesOfWhatSumsToSomething) {
  EXPECT_EQ(shares({}), "");
  EXPECT_EQ(shares({{"a", 0, "0"}, {"b", -1, "-1"}}), "");
  EXPECT_EQ(shares({{"a", 1e308, ""}, {"b", 1e308, ""}}), "");
  EXPECT_THAT(shares({{"a", 3, "3 s"}, {"<b>", 1, "1 s"}}),
              testing::AllOf(HasSubstr("width:75.00%"), HasSubstr("25.0 %"), Not(HasSubstr("<b>"))));
}

TEST(Html, ThePageNeedsNoNetwork) {
  std::string html = page("</title><script>", "");
  const std::string name_space = "http://www.w3.org/2000/svg";  // only a name; nothing fetches it
  if (const auto at = html.find(name_space); at != std::string::npos) html.erase(at, name_space.size());
  EXPECT_THAT(html, Not(HasSubstr("</title><script>")));
  for (const char* word : {"http:", "https:", "src=", "@import", "url("}) EXPECT_THAT(html, Not(HasSubstr(word))) << word;
}

}  // namespace
}  // namespace millrace::report
