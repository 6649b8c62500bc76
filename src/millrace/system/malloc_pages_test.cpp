#include "millrace/system/malloc_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using testing::HasSubstr;

TEST(MallocPages, KnowsWhetherSomebodyChose) {
  const char* const nothing[] = {"PATH=/bin", "MY_GLIBC_TUNABLES=x", nullptr};
  const char* const other[] = {"PATH=/bin", "GLIBC_TUNABLES=glibc.malloc.check=1", nullptr};
  const char* const ours[] = {kMallocPages, nullptr};
  EXPECT_FALSE(configures_malloc(nullptr));
  EXPECT_FALSE(configures_malloc(nothing));
  EXPECT_TRUE(configures_malloc(other));
  EXPECT_TRUE(configures_malloc(ours));
}

TEST(MallocPages, SaysWhatIsGotAndWhy) {
  const std::string asks = "always [madvise] never";
  EXPECT_EQ(malloc_pages("glibc.malloc.hugetlb=1", asks).size, "2 MB");
  EXPECT_EQ(malloc_pages("glibc.malloc.hugetlb=0", asks).size, "as asked");
  EXPECT_EQ(malloc_pages(nullptr, asks).size, "4 kB");
  EXPECT_THAT(malloc_pages("glibc.malloc.check=1", asks).reason, HasSubstr("glibc.malloc.check=1 does not ask for larger pages"));
  EXPECT_EQ(malloc_pages(nullptr, "[always] madvise never").size, "2 MB");
  EXPECT_EQ(malloc_pages("glibc.malloc.hugetlb=1", "always madvise [never]").size, "4 kB");
  EXPECT_EQ(malloc_pages("glibc.malloc.hugetlb=1", "").size, "4 kB");
  EXPECT_FALSE(malloc_pages().reason.empty());
}

}  // namespace
}  // namespace millrace
