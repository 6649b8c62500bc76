// This source is compiled with debug information (CMakeLists.txt), as in a user's debug build.
#include "millrace/base/throw_site.h"

#include <gmock/gmock.h>

#include <map>
#include <stdexcept>
#include <string>

namespace millrace {
namespace {

using testing::EndsWith;

std::string site_of(void (*call)(), std::span<const std::string_view> others = {}) {
  try {
    const ThrowWatch watch;
    call();
  } catch (const std::exception&) {
    return throw_site(others);
  }
  return "nothing was thrown";
}

void throws_itself() { throw std::runtime_error("mine"); }
constexpr int kOwnLine = __LINE__ - 1;

void asks_for_what_is_not_there() {
  const std::map<std::string, int> there = {{"a", 1}};
  EXPECT_EQ(there.at("b"), 0);
}
constexpr int kCallLine = __LINE__ - 2;

std::string place(int line) { return "throw_site_test.cpp:" + std::to_string(line); }

TEST(ThrowSite, IsTheLineOfTheThrow) { EXPECT_THAT(site_of(throws_itself), EndsWith(place(kOwnLine))); }

TEST(ThrowSite, OfALibraryIsTheLineOfTheCall) { EXPECT_THAT(site_of(asks_for_what_is_not_there), EndsWith(place(kCallLine))); }

TEST(ThrowSite, OutlivesAnExceptionThatIsThrownOn) {
  EXPECT_THAT(site_of([] {
                try {
                  throws_itself();
                } catch (const std::exception&) {
                  throw;
                }
              }),
              EndsWith(place(kOwnLine)));
}

TEST(ThrowSite, IsUnknownInSourcesOfOthers) {
  constexpr std::string_view kHere[] = {"throw_site_test"};
  EXPECT_EQ(site_of(throws_itself, kHere), "");
}

TEST(ThrowSite, MayBeInTheFunctionThatWatches) {
  const int line = __LINE__ + 3;
  try {
    const ThrowWatch watch;
    EXPECT_EQ(std::stoi("no number"), 0);
  } catch (const std::exception&) {
    EXPECT_THAT(throw_site({}), EndsWith(place(line)));
  }
}

TEST(ThrowSite, IsUnknownWithoutAWatch) {
  try {
    throws_itself();
  } catch (const std::exception&) {
    EXPECT_EQ(throw_site({}), "");
  }
}

}  // namespace
}  // namespace millrace
