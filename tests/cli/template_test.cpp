// What `millrace new` writes: its files, and that the recipe among them trains, resumes and predicts (compiled as my_recipe).
#include <gmock/gmock.h>

#include "millrace/base/json.h"
#include "process.h"

namespace millrace::test {
namespace {

using testing::HasSubstr;

Result my_recipe(std::vector<std::string> words, const Scratch& scratch) {
  words.insert(words.begin(), MY_RECIPE_PROGRAM);
  return run(words, {.folder = scratch.path()});
}

TEST(Template, FilesCarryTheName) {
  const Scratch scratch;
  ASSERT_EQ(run({MILLRACE_PROGRAM, "new", "star_finder"}, {.folder = scratch.path()}).exit_code, 0);
  const auto folder = scratch.path() / "star_finder";
  for (const char* name : {"CMakeLists.txt", "main.cpp", "recipe.cpp", "smoke.json", "README.md"}) {
    const std::string text = read_text(folder / name);
    EXPECT_FALSE(text.empty()) << name;
    EXPECT_EQ(text.find("my_recipe"), std::string::npos) << name;
    EXPECT_EQ(text.find("MyRecipe"), std::string::npos) << name;
  }
  EXPECT_THAT(read_text(folder / "recipe.cpp"), HasSubstr("class StarFinder final : public Recipe"));
  EXPECT_THAT(read_text(folder / "CMakeLists.txt"), HasSubstr("find_package(Millrace"));
}

TEST(Template, TrainsResumesAndEvaluates) {
  const Scratch scratch;
  const std::string smoke = std::string(MY_RECIPE_FOLDER) + "/smoke.json";
  const auto train = [&](const std::string& steps) {
    return my_recipe({"train", "my_recipe", smoke, "--run", "r", "--max_steps=" + steps, "--device.threads=1", "--json"},
                     scratch);
  };
  const Result first = train("300");
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const Result second = train("600");
  ASSERT_EQ(second.exit_code, 0) << second.err;
  const Json summary = Json::parse(second.out);
  EXPECT_EQ(summary["steps"], 600);
  EXPECT_LT(summary["metrics"]["val_loss"]["last"].get<double>(), 0.01);

  const Result eval = my_recipe({"eval", "my_recipe", "--from", "r", "--json"}, scratch);
  ASSERT_EQ(eval.exit_code, 0) << eval.err;
  const Json metrics = Json::parse(eval.out)["metrics"];
  EXPECT_TRUE(metrics.contains("val_loss") || metrics.contains("loss")) << eval.out;
  EXPECT_THAT(my_recipe({"runs"}, scratch).out, HasSubstr("no runs below runs"));
  EXPECT_THAT(my_recipe({"runs", "--root", "."}, scratch).out, HasSubstr("600"));
  EXPECT_EQ(my_recipe({"inspect", "r"}, scratch).exit_code, 0);
}

// The example of pictures: two terms, augmentation on the readers, a table of counts that becomes a picture.
TEST(Examples, TexturesLearnsResumesAndPredicts) {
  const Scratch scratch;
  const auto textures = [&](std::vector<std::string> words) {
    words.insert(words.begin(), TEXTURES_PROGRAM);
    return run(words, {.folder = scratch.path()});
  };
  const auto train = [&](const std::string& steps) {
    return textures({"train", "textures", "--run", "r", "--recipe.noise=0.5", "--max_steps=" + steps, "--device.threads=1",
                     "--precision.dtype=fp32", "--json"});
  };
  const Result first = train("60");
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const Result second = train("160");
  ASSERT_EQ(second.exit_code, 0) << second.err;
  const Json metrics = Json::parse(second.out)["metrics"];
  EXPECT_GT(metrics["accuracy"]["last"].get<double>(), 0.6) << "chance is 0.1";
  EXPECT_TRUE(metrics.contains("val_loss/direction")) << second.out;
  EXPECT_TRUE(std::filesystem::exists(scratch.path() / "r" / "pictures" / "confusion.png"));
  EXPECT_EQ(second.err.find("recall/"), std::string::npos) << "quiet names stay out of lines for people";
  const Result eval = textures({"eval", "--from", "r", "--json"});
  ASSERT_EQ(eval.exit_code, 0) << eval.err;
  EXPECT_TRUE(Json::parse(eval.out)["metrics"].contains("recall/0")) << eval.out;
  const Result worse = textures({"train", "textures", "--run", "w", "--max_steps=80", "--snapshot.best_is=highest"});
  EXPECT_THAT(worse.out, testing::ContainsRegex(
                             "\nbest val_loss [0-9.]+ at step 40, the last [0-9.]+: predict, eval and export use the best"));
  const Result wrong = textures({"train", "textures", "--recipe.widths=16,32"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("recipe.widths has 2 values, expected 3"));
}

// Two data sets of unlike shape and length: each error is divided by its own count, and each sensor has metrics of its own.
TEST(Examples, TwoSensorsLearnTogether) {
  const Scratch scratch;
  const Result trained = run({TWO_SENSORS_PROGRAM, "train", "two_sensors", "--run", "r", "--device.threads=1", "--json"},
                             {.folder = scratch.path()});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const Json summary = Json::parse(trained.out);
  EXPECT_EQ(summary["steps"], 4 * 50) << "the camera's 2,000 pictures in batches of 40 are an epoch";
  for (const char* sensor : {"camera", "probe"})
    EXPECT_GT(summary["metrics"][std::string(sensor) + "/r2"]["last"].get<double>(), 0.9) << sensor;
  EXPECT_TRUE(summary["metrics"].contains("val_loss/probe")) << trained.out;
}

}  // namespace
}  // namespace millrace::test
