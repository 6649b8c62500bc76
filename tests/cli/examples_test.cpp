// The examples that read files, as somebody would use them: folders of signals, and a denoiser with a frozen part.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <regex>
#include <sstream>

#include "millrace/base/fs.h"
#include "millrace/base/json.h"
#include "millrace/format/npy.h"
#include "millrace/format/safetensors.h"
#include "process.h"

namespace millrace::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

void put_npy(const std::filesystem::path& path, const Shape& shape, const std::vector<float>& values) {
  std::filesystem::create_directories(path.parent_path());
  const auto file = Fs::real().create(path);
  format::write_npy(*file, DType::f32, shape, std::as_bytes(std::span(values)));
  file->close();
}

// Waves whose frequency grows at a rate of their class; the classes have 60, 30 and 15 files.
void put_chirps(const std::filesystem::path& folder) {
  std::mt19937 random(5);
  for (std::size_t label = 0; label < 3; ++label) {
    for (int i = 0; i < 60 >> label; ++i) {
      const double phase = static_cast<double>(random() % 1000) / 159.0;
      std::vector<float> wave(256);
      for (std::size_t t = 0; t < wave.size(); ++t) {
        const double x = static_cast<double>(t) / 256;
        wave[t] = static_cast<float>(std::sin(phase + 60 * x + 120 * static_cast<double>(label) * x * x));
      }
      put_npy(folder / ("class" + std::to_string(label)) / (std::to_string(i) + ".npy"), {256}, wave);
    }
  }
}

// Weights of the feature network under the names that torchvision's networks have.
void put_features(const std::filesystem::path& path, std::uint32_t seed, const std::string& prefix = "features.") {
  std::mt19937 random(seed);
  const std::vector<Field> fields = {{prefix + "0.weight", DType::f32, {8, 1, 3, 3}},
                                     {prefix + "0.bias", DType::f32, {8}},
                                     {prefix + "2.weight", DType::f32, {8, 8, 3, 3}},
                                     {prefix + "2.bias", DType::f32, {8}},
                                     {"classifier.bias", DType::f32, {10}}};
  std::vector<std::vector<float>> values;
  for (const Field& field : fields) {
    values.emplace_back(field.bytes() / sizeof(float));
    for (float& value : values.back()) value = (static_cast<float>(random() % 1000) - 499.5F) / 2000;
  }
  const auto file = Fs::real().create(path);
  (void)format::write_safetensors(*file, fields, [&](std::size_t i) { return std::as_bytes(std::span(values[i])); });
  file->close();
}

void put_pictures(const std::filesystem::path& folder) {
  for (int i = 0; i < 60; ++i) {
    std::vector<float> pixels(16 * 16);
    for (std::size_t p = 0; p < pixels.size(); ++p) {
      const double angle = 0.1 * i,
                   along = std::cos(angle) * static_cast<double>(p % 16) + std::sin(angle) * static_cast<double>(p / 16);
      pixels[p] = static_cast<float>(0.5 + 0.5 * std::sin(along));
    }
    put_npy(folder / (std::to_string(i) + ".npy"), {1, 16, 16}, pixels);
  }
}

// Trainings say what their start would try: trials take longer than they do.
TEST(Examples, ChirpsLearnsFromFoldersAndKeepsTheBestByMacroF1) {
  const Scratch scratch;
  put_chirps(scratch.path() / "signals");
  const auto chirps = [&](std::vector<std::string> words) {
    words.insert(words.begin(), CHIRPS_PROGRAM);
    return run(words, {.folder = scratch.path()});
  };
  const Result trained = chirps({"train", "chirps", "--data=signals", "--run=r", "--device.threads=1", "--precision.dtype=fp32",
                                 "--device.kernels=ours", "--device.layout=contiguous", "--json"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const Json metrics = Json::parse(trained.out)["metrics"];
  EXPECT_GT(metrics["macro_f1"]["best"].get<double>(), 0.8) << trained.out;
  EXPECT_TRUE(metrics.contains("f1/class2")) << "classes have their folders' names";
  EXPECT_TRUE(std::filesystem::exists(scratch.path() / "r" / "pictures" / "confusion.png"));
  const Result eval = chirps({"eval", "--from=r", "--json"});
  ASSERT_EQ(eval.exit_code, 0) << eval.err;
  EXPECT_NEAR(Json::parse(eval.out)["metrics"]["macro_f1"].get<double>(), metrics["macro_f1"]["best"].get<double>(), 1e-6)
      << "the best snapshot is that of the best macro-F1\n"
      << eval.out;

  put_npy(scratch.path() / "signals" / "class1" / "3.npy", {100}, std::vector<float>(100));
  const Result other = chirps({"train", "chirps", "--data=signals", "--run=other"});
  EXPECT_NE(other.exit_code, 0);
  EXPECT_THAT(other.err, HasSubstr("signals/class1/3.npy")) << "a bad sample is named by its file";
  EXPECT_THAT(other.err, HasSubstr("the file has wave f32 [100], the first has wave f32 [256]"));
}

TEST(Examples, ValuesThatAreNoNumbersAreNamedByTheirFile) {
  const Scratch scratch;
  put_chirps(scratch.path() / "signals");
  std::vector<float> gone(256, NAN);
  for (const char* name : {"2.npy", "3.npy", "4.npy", "5.npy"}) put_npy(scratch.path() / "signals/class2" / name, {256}, gone);
  const auto chirps = [&](std::vector<std::string> words) {
    words.insert(words.begin(), CHIRPS_PROGRAM);
    return run(words, {.folder = scratch.path()});
  };
  const Result trained =
      chirps({"train", "chirps", "--data=signals", "--run=r", "--device.threads=1", "--precision.dtype=fp32",
              "--device.kernels=ours", "--device.layout=contiguous", "--log.every=10", "--train.max_steps=20"});
  const std::regex named(
      R"(\(signals/class2/[2-5]\.npy\), field wave: 192 of 192 values are not finite, the first, nan, at \[0\])");
  EXPECT_TRUE(std::regex_search(trained.err + trained.out, named)) << trained.err;
  const Result doctor = chirps({"doctor", "r"});
  EXPECT_TRUE(std::regex_search(doctor.out, named)) << doctor.out;
  EXPECT_THAT(doctor.out, AllOf(HasSubstr("not_finite"), HasSubstr("repair or remove"), Not(HasSubstr("clip_norm"))));
}

TEST(Examples, DenoiserHasAFrozenPartThatIsItsFiles) {
  const Scratch scratch;
  put_pictures(scratch.path() / "clean");
  put_features(scratch.path() / "vgg.safetensors", 1);
  const auto train = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {DENOISER_PROGRAM, "train", "denoiser", "--data=clean", "--train.epochs=40", "--device.threads=1",
                                 "--precision.dtype=fp32", "--device.kernels=ours", "--device.layout=contiguous", "--json"});
    return run(words, {.folder = scratch.path()});
  };
  const auto to_step = [&](int steps, const std::string& folder, const std::string& more = "--snapshot.frozen=keep") {
    return train({"--run=" + folder, "--recipe.features=vgg.safetensors", "--max_steps=" + std::to_string(steps), more});
  };
  const Result trained = to_step(90, "r");
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const Json metrics = Json::parse(trained.out)["metrics"];
  EXPECT_GT(metrics["psnr"]["last"].get<double>(), 11.0) << "the noisy pictures have 10.5";
  EXPECT_TRUE(metrics.contains("val_loss/features")) << trained.out;
  EXPECT_TRUE(std::filesystem::exists(scratch.path() / "r" / "pictures" / "denoised.png"));
  ASSERT_EQ(to_step(90, "l", "--snapshot.frozen=leave_out").exit_code, 0);

  // A resume with the same weights goes on; with others in the same place it says so, in both ways of saving.
  put_features(scratch.path() / "vgg.safetensors", 2);
  for (const char* folder : {"r", "l"}) {
    const Result refused = to_step(94, folder, folder[0] == 'r' ? "--snapshot.frozen=keep" : "--snapshot.frozen=leave_out");
    EXPECT_NE(refused.exit_code, 0);
    EXPECT_THAT(refused.err, HasSubstr("the frozen part \"features\" is not the one this run was trained with\n"
                                       "  where    "))
        << folder;
    EXPECT_THAT(refused.err, HasSubstr("vgg.safetensors holds other weights now")) << folder;
    EXPECT_THAT(refused.err, HasSubstr("put back the file that the run was trained with, or start over with --fresh")) << folder;
  }
  put_features(scratch.path() / "vgg.safetensors", 1);
  EXPECT_EQ(to_step(94, "l", "--snapshot.frozen=leave_out").exit_code, 0);

  const std::vector<float> noisy(2 * 16 * 16, 0.5F);
  const auto input = Fs::real().create(scratch.path() / "in.npz");
  format::write_npz(*input,
                    std::vector<format::NpzArray>{{{"noisy", DType::f32, {2, 1, 16, 16}}, std::as_bytes(std::span(noisy))}});
  input->close();
  const auto predict = [&](const std::string& from) {
    return run({DENOISER_PROGRAM, "predict", "--from=" + from, "--input=in.npz", "--output=out.npy"}, {.folder = scratch.path()});
  };
  const Result with_file = predict("l");
  EXPECT_EQ(with_file.exit_code, 0) << "the file has what the snapshot left out\n" << with_file.err;
  std::filesystem::remove(scratch.path() / "vgg.safetensors");
  EXPECT_THAT(predict("l").err, HasSubstr("vgg.safetensors"));
  const Result kept = to_step(94, "r");
  EXPECT_EQ(kept.exit_code, 0) << "its snapshot has the weights\n" << kept.err;
  const Result predicted = predict("r");
  ASSERT_EQ(predicted.exit_code, 0) << predicted.err;
  EXPECT_EQ(format::NpyFile(scratch.path() / "out.npy").layout().shape, (Shape{2, 1, 16, 16}));
}

TEST(Examples, AFrozenPartWithoutItsFileIsNamedBeforeTheFirstStep) {
  const Scratch scratch;
  put_pictures(scratch.path() / "clean");
  const auto refused = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {DENOISER_PROGRAM, "train", "denoiser", "--data=clean", "--run=r"});
    const Result result = run(words, {.folder = scratch.path()});
    EXPECT_NE(result.exit_code, 0);
    return result.err;
  };
  EXPECT_THAT(refused({}), HasSubstr("the frozen part \"features\" of the model has no file to take its weights from"));
  EXPECT_THAT(refused({"--recipe.features=gone.pt"}), HasSubstr("the file of the frozen part \"features\" does not exist"));
  put_features(scratch.path() / "other.safetensors", 1, "body.");
  EXPECT_THAT(refused({"--recipe.features=other.safetensors"}),
              HasSubstr("no tensor of the file has a name that begins with \"features.\""));
}

// A recipe of a common kind stays short: lines with code are counted.
TEST(Examples, ThoseThatReadFilesAreShort) {
  for (const char* name : {"chirps", "denoiser"}) {
    std::istringstream text(read_text(std::string(MILLRACE_SOURCE_DIR) + "/examples/" + name + "/recipe.cpp"));
    int lines = 0;
    for (std::string line; std::getline(text, line);) {
      const std::size_t first = line.find_first_not_of(' ');
      lines += first != std::string::npos && line.compare(first, 2, "//") != 0 ? 1 : 0;
    }
    EXPECT_GT(lines, 40) << name;
    EXPECT_LE(lines, 85) << name;
  }
}

}  // namespace
}  // namespace millrace::test
