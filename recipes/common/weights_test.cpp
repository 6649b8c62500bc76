#include "recipes/common/weights.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <string>
#include <vector>

namespace millrace::recipes {
namespace {

TEST(FindsWeights, AFileMayBeGoneOnceASnapshotHasItsWeights) {
  std::vector<std::string> said;
  Context context;
  context.notice = [&](const std::string& text) { said.push_back(text); };
  const std::string gone = (std::filesystem::path(testing::TempDir()) / "millrace-no-such-weights.pt").string();
  EXPECT_FALSE(finds_weights(context, "recipe.pretrained", "", false));
  EXPECT_FALSE(finds_weights(context, "recipe.pretrained", "", true));
  EXPECT_TRUE(finds_weights(context, "recipe.pretrained", gone, false)) << "the reader refuses the path";
  EXPECT_TRUE(finds_weights(context, "recipe.pretrained", testing::TempDir(), true));
  EXPECT_THAT(said, testing::IsEmpty());
  EXPECT_FALSE(finds_weights(context, "recipe.pretrained", gone, true));
  EXPECT_THAT(said, testing::ElementsAre("recipe.pretrained does not exist any more and is not used: " + gone));
}

}  // namespace
}  // namespace millrace::recipes
