// The output of `millrace new`: its files, and that the recipe of each kind learns, resumes, evaluates and predicts (compiled as
// my_table, my_image, ...).
#include <gmock/gmock.h>

#include <algorithm>

#include "millrace/base/fs.h"
#include "millrace/base/json.h"
#include "millrace/format/npy.h"
#include "process.h"

namespace millrace::test {
namespace {

using testing::HasSubstr;
using testing::Not;

// A kind, the metric that shows what it learns, and where good begins.
struct Kind {
  const char* name;
  const char* metric;
  double good;
  const char* picture;
  DType input;
  Shape shape;  // of what predict takes
  const char* own_data;
};
const Kind kKinds[] = {
    {"table", "r2", 0.9, "errors", DType::f32, {5, 2}, "CsvSource"},
    {"image", "accuracy", 0.6, "predicted", DType::f32, {5, 1, 32, 32}, "ImageSource"},
    {"signal", "macro_f1", 0.6, "spectrograms", DType::f32, {5, 1, 768}, "FileSource"},
    {"volume", "r2", 0.6, "slices", DType::f32, {5, 8, 12, 10}, "NiftiSource"},
    {"text", "accuracy", 0.6, "accuracy", DType::u8, {5, 20}, "read_file"},
};

class OfKind : public testing::TestWithParam<Kind> {};

TEST_P(OfKind, FilesCarryTheName) {
  const Scratch scratch;
  const Result made = run({MILLRACE_PROGRAM, "new", "star_finder", "--kind", GetParam().name}, {.folder = scratch.path()});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr(std::string("of the kind ") + GetParam().name));
  EXPECT_THAT(made.out, HasSubstr("-DCMAKE_PREFIX_PATH=PREFIX")) << "a build folder has no headers of Millrace beside it";
  const auto folder = scratch.path() / "star_finder";
  for (const char* name : {"CMakeLists.txt", "recipe.cpp", "smoke.json", "README.md"}) {
    const std::string text = read_text(folder / name);
    EXPECT_FALSE(text.empty()) << name;
    for (const char* placeholder : {"my_recipe", "MyRecipe", "@what", "@part", "@learns"})
      EXPECT_THAT(text, Not(HasSubstr(placeholder))) << name;
  }
  const std::string recipe = read_text(folder / "recipe.cpp");
  EXPECT_THAT(recipe, HasSubstr("class StarFinder final : public Recipe"));
  EXPECT_THAT(recipe, HasSubstr(GetParam().own_data)) << "a comment says how to read files of one's own";
  EXPECT_THAT(read_text(folder / "README.md"), HasSubstr(GetParam().own_data));
  EXPECT_THAT(read_text(folder / "CMakeLists.txt"), HasSubstr(std::string("\"") + GetParam().metric + "\""));
  EXPECT_THAT(read_text(folder / "CMakeLists.txt"), HasSubstr("find_package(Millrace"));
}

TEST_P(OfKind, LearnsResumesEvaluatesAndPredicts) {
  const Scratch scratch;
  const std::string build = std::string(MY_RECIPES) + "/";
  const std::string name = GetParam().name;
  const auto my_recipe = [&](std::vector<std::string> words) {
    words.insert(words.begin(), build + "my_" + name);
    return run(words, {.folder = scratch.path()});
  };
  const auto train = [&](const std::string& steps) {  // what a start would try is said: trials take longer than the training
    return my_recipe({"train", "my_recipe", build + "template/" + name + "/smoke.json", "--run", "r", "--max_steps=" + steps,
                      "--device.threads=1", "--precision.dtype=fp32", "--device.kernels=ours", "--device.layout=contiguous",
                      "--json"});
  };
  const Result first = train("60");
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const Result second = train(name == "table" ? "400" : "120");
  ASSERT_EQ(second.exit_code, 0) << second.err;
  const Json metrics = Json::parse(second.out)["metrics"];
  EXPECT_GT(metrics[GetParam().metric]["best"].get<double>(), GetParam().good) << second.out;
  EXPECT_TRUE(std::filesystem::exists(scratch.path() / "r" / "pictures" / (std::string(GetParam().picture) + ".png")));

  const Result eval = my_recipe({"eval", "--from", "r", "--json"});
  ASSERT_EQ(eval.exit_code, 0) << eval.err;
  EXPECT_TRUE(Json::parse(eval.out)["metrics"].contains(GetParam().metric)) << eval.out;

  const std::vector<std::byte> ones(Field{"", GetParam().input, GetParam().shape}.bytes(), std::byte{1});
  const auto input = Fs::real().create(scratch.path() / "in.npy");
  format::write_npy(*input, GetParam().input, GetParam().shape, ones);
  input->close();
  const Result predicted = my_recipe({"predict", "--from", "r", "--input", "in.npy", "--output", "out.npy", "--batch-size=2"});
  ASSERT_EQ(predicted.exit_code, 0) << predicted.err;
  EXPECT_EQ(format::NpyFile(scratch.path() / "out.npy").layout().shape[0], 5);
}

INSTANTIATE_TEST_SUITE_P(Template, OfKind, testing::ValuesIn(kKinds),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST(Template, AnUnknownKindIsRefused) {
  const Scratch scratch;
  const Result refused = run({MILLRACE_PROGRAM, "new", "toy", "--kind=images"}, {.folder = scratch.path()});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("there is no kind of recipe \"images\""));
  EXPECT_THAT(refused.err, HasSubstr("did you mean \"image\"? kinds: table, image, signal, volume, text"));
  EXPECT_FALSE(std::filesystem::exists(scratch.path() / "toy"));
}

TEST(Template, AWordOfCppIsNoName) {
  const Scratch scratch;
  for (const char* word : {"new", "int", "test", "data"}) {
    const Result refused = run({MILLRACE_PROGRAM, "new", word}, {.folder = scratch.path()});
    EXPECT_EQ(refused.exit_code, 2) << word;
    EXPECT_THAT(refused.err, HasSubstr(std::string("for example my_") + word));
  }
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
                     "--precision.dtype=fp32", "--device.kernels=ours", "--device.layout=contiguous", "--json"});
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
  const Result worse =
      textures({"train", "textures", "--run", "w", "--max_steps=80", "--snapshot.best_is=highest", "--device.threads=1",
                "--precision.dtype=fp32", "--device.kernels=ours", "--device.layout=contiguous"});
  EXPECT_THAT(worse.out, testing::ContainsRegex(
                             "\nbest val_loss [0-9.]+ at step 40, the last [0-9.]+: predict, eval and export use the best"));
  const Result wrong = textures({"train", "textures", "--recipe.widths=16,32"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("recipe.widths has 2 values, expected 3"));
}

// What README and docs/measurements.md say of their length.
TEST(Examples, AreShort) {
  for (const auto& [name, most] : {std::pair{"textures", 150}, std::pair{"two_sensors", 130}}) {
    const std::string text = read_text(std::string(MILLRACE_SOURCE_DIR) + "/examples/" + name + "/recipe.cpp");
    EXPECT_GT(text.size(), 0U) << name;
    EXPECT_LE(std::count(text.begin(), text.end(), '\n'), most) << name;
  }
}

// Two data sets of unlike shape and length: each error is divided by its own count, and each sensor has metrics of its own.
TEST(Examples, TwoSensorsLearnTogether) {
  const Scratch scratch;
  const Result trained = run({TWO_SENSORS_PROGRAM, "train", "two_sensors", "--run", "r", "--device.threads=1",
                              "--precision.dtype=fp32", "--device.kernels=ours", "--device.layout=contiguous", "--json"},
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
