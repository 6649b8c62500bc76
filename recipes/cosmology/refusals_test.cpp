// Tests of the recipe's errors and their texts, and of config files of hugh.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "recipes/cosmology/detail/test_sky.h"
#include "recipes/cosmology/entry_parts.h"
#include "recipes/cosmology/make_data.h"
#include "recipes/cosmology/sky_pca.h"

namespace millrace::recipes::cosmology {
namespace {

using namespace test;
using ::testing::HasSubstr;
namespace stdfs = std::filesystem;

TEST_F(CosmologyTest, EveryFaultOfTheInputHasItsText) {
  const auto memory = [](const stdfs::path& path, std::string name, DType dtype, Shape shape) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(*element_count(shape)) * size_of(dtype));
    return std::make_shared<MemorySky>(path, std::move(name), dtype, std::move(shape), std::move(bytes));
  };
  const std::string s2 = (folder_ / "signal" / "s2.h5").string();
  const std::string s0 = (folder_ / "signal" / "s0.h5").string();
  const auto refused = [&](const Json& more = Json::object()) { return refusal([&] { (void)sky(more); }); };

  stdfs::create_directories(folder_ / "none");
  EXPECT_EQ(refused({{"recipe.signal_dir", (folder_ / "none").string()}}),
            "DataError  signal_dir holds no .h5 file\n  where    " + (folder_ / "none").string() +
                "\n  next     set recipe.signal_dir, or make some: millrace make-data cosmology");

  alter("s2.h5", [&](const stdfs::path& path) { return memory(path, "/map", DType::c64, {4, 8, 16}); });
  const std::string name_it = "\n  next     name the dataset with recipe.vis_dataset; for a uvh5 file, run millrace uvh5";
  EXPECT_EQ(refused(), "DataError  s2.h5: dataset /vis is missing (has: /map)\n  where    " + s2 + name_it);
  alter("s2.h5", [&](const stdfs::path& path) {
    const auto file = memory(path, "/map", DType::c64, {4, 8, 16});
    file->not_readable = {{"/vis", "data in external files"}};
    return file;
  });
  EXPECT_EQ(refused(),
            "DataError  s2.h5: dataset /vis can't be read: data in external files\n  where    " + s2 +
                "\n  next     write it again as numbers, all in this file, or name another dataset with recipe.vis_dataset");
  alter("s2.h5", [&](const stdfs::path& path) { return memory(path, "/vis", DType::f64, {4, 8, 16}); });
  EXPECT_EQ(refused(), "DataError  s2.h5: /vis is float64, expected complex {r,i}\n  where    " + s2 + name_it);
  alter("s2.h5", [&](const stdfs::path& path) { return memory(path, "/vis", DType::c64, {4, 12, 16}); });
  EXPECT_THAT(refused(), ::testing::MatchesRegex("DataError  s[0-9].h5 /vis is .4,(12|8),16., s[0-9].h5 has .4,(12|8),16.\n"
                                                 "  where    .*\n  next     remove or regrid the file"));
  altered_.clear();
  EXPECT_THAT(
      refused({{"recipe.ra_keep", 32}}),
      ::testing::MatchesRegex("DataError  s[0-9].h5 has 16 RA samples, but ra_keep is 32\n  where    .*\n  next     lower "
                              "recipe.ra_keep .it must be a multiple of 4.split = 8."));

  for (const auto& [value, word] : {std::pair{std::nanf(""), "nan"}, std::pair{HUGE_VALF, "inf"}}) {
    auto cube = sky_signal(kTiny, 5, 0);
    cube[(3 * 8 + 5) * 16 + 9] = {0.0, value};
    const auto bad = std::make_shared<MemorySky>(s0, "/vis", DType::c64, kTiny.shape(), bytes_of(cube));
    const SkySource source({{bad}, {open(folder_ / "foreground" / "f0.h5")}}, kTiny.shape(), {.ra_keep = 16});
    std::vector<std::byte> x(source.fields()[0].bytes());
    std::vector<std::byte> y(x.size());
    const std::array<std::byte*, 2> rows{x.data(), y.data()};
    const std::int64_t zero = 0;
    EXPECT_EQ(refusal([&] {
                source.read({&zero, 1}, {rows}, data::ReadRandom(1, 0, {&zero, 1}));
              }),
              std::string("DataError  s0.h5 /vis[3,5,9] is ") + word + "\n  where    " + s0 +
                  "\n  next     repair the file, or set data.bad_samples=\"skip\" (it is counted and logged)");
  }
}

TEST_F(CosmologyTest, ComponentsOfOtherDataAreRefused) {
  const Sky all = sky();
  RecipeConfig config = config::read<RecipeConfig>(tiny().at("recipe"));
  nn::ForegroundPca pca = fit_pca(config, all, 1, 100);
  const auto refused = [&] { return refusal([&] { check_pca(pca, config, all, "pca.safetensors", {}); }); };
  EXPECT_EQ(refused(), "accepted");
  const std::string next = "\n  where    pca.safetensors\n  next     fit it again: millrace pca fit --config FILE";
  config.n_fg = 2;
  EXPECT_EQ(refused(), "DataError  the PCA file has n_fg 3, but recipe.n_fg is 2" + next);
  config.n_fg = 3;
  pca.freq_mhz = pca.freq_mhz + 1.0;
  EXPECT_EQ(refused(), "DataError  the PCA file has channel 0 at 507.250 MHz, but the data have 506.250 MHz" + next);
  Sky wider = all;
  wider.shape[1] = 16;
  EXPECT_EQ(refusal([&] { check_pca(pca, config, wider, "pca.safetensors", {}); }),
            "DataError  the PCA file has 8 frequencies, but the data have 16" + next);
}

TEST_F(CosmologyTest, AFitGoesByThePolicyForBadSamples) {
  auto cube = sky_signal(kTiny, 5, 0);
  cube[0] = {std::nanf(""), 0.0};
  for (const char* name : {"s0.h5", "s1.h5", "s2.h5"}) {
    alter(name, [&](const stdfs::path& path) {
      return std::make_shared<MemorySky>(path, "/vis", DType::c64, kTiny.shape(), bytes_of(cube));
    });
  }
  EXPECT_THAT(refusal([&] { recipe().before_training(); }),
              ::testing::MatchesRegex("DataError  s[012].h5 /vis.0,0,0. is nan\n(.|\n)*"));
  notices_.clear();
  EXPECT_THAT(
      refusal([&] {
        recipe({{"data.bad_samples", "skip"}}).before_training();
      }),
      ::testing::ContainsRegex("2 of [56] samples of PCA's fit can't be used, more than the fraction 0.001 that is allowed; "
                               "the last: s[012].h5 /vis.0,0,0. is nan"));
  notices_.clear();
  Cosmology skips = recipe({{"data.bad_samples", "skip"}, {"data.max_bad_fraction", 0.6}});
  skips.before_training();
  EXPECT_TRUE(skips.state().tensors.contains("pca.vectors"));
  EXPECT_THAT(notices_, ::testing::Contains(::testing::ContainsRegex("s[012].h5 /vis.0,0,0. is nan")));
}

// One file can't be opened, one has no cube, and one has another shape.
TEST_F(CosmologyTest, OpeningGoesByThePolicyForBadSamples) {
  alter("s1.h5", [](const stdfs::path& path) -> SkyFile {
    throw DataError({"s1.h5 is truncated", path.string(), "make it anew"});
  });
  alter("s2.h5", [](const stdfs::path& path) {
    return std::make_shared<MemorySky>(path, "/map", DType::c64, kTiny.shape(), bytes_of(sky_signal(kTiny, 5, 2)));
  });
  alter("f3.h5", [](const stdfs::path& path) {
    constexpr SkySize kOther{4, 12, 16, 2, 6};
    return std::make_shared<MemorySky>(path, "/vis", DType::c64, kOther.shape(), bytes_of(sky_foreground(kOther, 5, 3)));
  });
  EXPECT_THAT(refusal([&] { recipe().before_training(); }), HasSubstr("3 problems of the data"));
  EXPECT_THAT(
      refusal([&] {
        recipe({{"data.bad_samples", "skip"}}).before_training();
      }),
      ::testing::AllOf(HasSubstr("2 of 5 signal files of the training can't be used, more than the fraction 0.001 that is "
                                 "allowed; the last: s2.h5: dataset /vis is missing"),
                       HasSubstr("set data.max_bad_fraction to 0.4, or")));
  notices_.clear();
  Cosmology skips = recipe({{"data.bad_samples", "skip"}, {"data.max_bad_fraction", 0.8}});
  skips.before_training();
  EXPECT_THAT(notices_, ::testing::Contains("2 of 5 signal files of the training can't be used, the first: s1.h5 is truncated; "
                                            "their samples are treated as data.bad_samples says: skip"));
  EXPECT_THAT(notices_, ::testing::Contains(HasSubstr("foreground files of the training can't be used, the first: f3.h5 /vis is "
                                                      "[4,12,16], s0.h5 has [4,8,16]")));
  EXPECT_TRUE(skips.state().tensors.contains("pca.vectors"));

  data::LoaderOptions options{.readers = 0, .bad_samples = data::BadSamples::skip, .max_bad_fraction = 0.8};
  data::Loader loader(skips.data(Split::train), options);
  std::size_t rows = 0;
  while (const auto batch = loader.next()) rows += batch->groups[0].positions.size();
  const std::uint64_t bad = loader.counters().bad_samples;
  EXPECT_EQ(rows + bad, 5U) << "an unusable file is a bad sample, and counted as one";
  EXPECT_GE(bad, 2U);
}

// This also holds for the first file, whose header is compared with those of the others. Only a validation that has no other
// file fails.
TEST_F(CosmologyTest, WhicheverFileCannotBeOpenedTheOthersTrain) {
  int trains = 0;
  for (int file = 0; file < 12; ++file) {
    const std::string name = (file < 6 ? "s" : "f") + std::to_string(file % 6) + ".h5";
    SCOPED_TRACE(name);
    altered_.clear();
    alter(name, [](const stdfs::path& path) -> SkyFile { throw DataError({"it is truncated", path.string(), "make it anew"}); });
    try {
      recipe({{"data.bad_samples", "skip"}, {"data.max_bad_fraction", 0.8}}).before_training();
      ++trains;
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), HasSubstr("1 of 1 "));
      EXPECT_THAT(error.what(), HasSubstr("files of the validation can't be used"));
    }
  }
  EXPECT_GE(trains, 10);
}

TEST_F(CosmologyTest, AFolderThatIsNotLookedAtIsNamed) {
  recipe({{"recipe.signal_dir", (folder_ / "signal").string()}, {"recipe.foreground_dir", (folder_ / "foreground").string()}})
      .before_training();
  EXPECT_THAT(notices_, ::testing::Contains(HasSubstr(folder_.string() + " is not used: recipe.signal_dir and")));
}

TEST_F(CosmologyTest, KeysThatDoNotFitAreRefused) {
  EXPECT_EQ(
      refusal([&] {
        (void)recipe({{"recipe.ra_keep", 20}});
      }),
      "ConfigError  ra_keep 20 is not a multiple of 4*split = 8\n  where    recipe.ra_keep, recipe.split\n  next     each chunk "
      "is halved twice: choose a multiple, or set recipe.pad");
}

TEST_F(CosmologyTest, TheOriginalsJsonIsReadUnchanged) {
  const config::Resolved config = resolve(Json::object(), R"({
  "_comment": "a key that begins with an underscore is a comment",
  "model_params": {"filters": 32, "noiseamp": 1e-7, "n_fg": 9, "model_path": "./models/", "model_dir": "./models/",
    "load_dir": "./models/", "model_name": "unet_small", "act": "silu", "loss": "logcosh", "pca_components_path": null, "_legal_values_": {"act": []}},
  "training_params": {"learning_rate": 2e-4, "batch_size": 2, "epochs": 12, "gradient_clip": 0.5, "early_stopping_patience": 7,
    "early_stopping_min_delta": 1e-4, "train_num_workers": 3, "val_num_workers": 2, "prefetch_factor": 4, "mixed_precision": "bf16",
    "use_compile": true, "compile_mode": "default", "use_grad_checkpoint": true, "seed": 43, "load_model": false, "add_noise": false,
    "cosmopath": "/sky/signal/", "galpath": "/sky/galaxy/", "num_train": 128, "target_transform": "arcsinh", "predict_residual": true,
    "ra_shift_aug": true, "optimizer": "adamw", "weight_decay": 1e-4, "lr_schedule": "onecycle", "warmup_frac": 0.05,
    "grad_accum_steps": 2, "ema_decay": 0.999}})");
  const auto recipe = config::read<RecipeConfig>(config.values.at("recipe"));
  EXPECT_EQ(recipe.filters, 32);
  EXPECT_EQ(recipe.noise_amp, 1e-7);
  EXPECT_EQ(recipe.act, Activation::silu);
  EXPECT_EQ(recipe.loss, LossKind::logcosh);
  EXPECT_EQ(recipe.signal_dir, "/sky/signal/");
  EXPECT_EQ(recipe.foreground_dir, "/sky/galaxy/");
  EXPECT_TRUE(recipe.ra_shift && recipe.predict_residual && !recipe.add_noise);
  EXPECT_EQ(recipe.target_transform, Transform::arcsinh);
  EXPECT_EQ(config.values.at("optim").at("clip_value"), 0.5);
  EXPECT_EQ(config.values.at("optim").at("schedule"), "one_cycle");
  EXPECT_EQ(config.values.at("optim").at("warmup_frac"), 0.05);
  EXPECT_EQ(config.values.at("optim").at("ema_decay"), 0.999);
  EXPECT_EQ(config.values.at("train").at("early_stop_patience"), 7);
  EXPECT_EQ(config.values.at("train").at("early_stop_delta"), 1e-4);
  EXPECT_EQ(config.values.at("optim").at("accumulate"), 2);
  EXPECT_EQ(config.values.at("run").at("name"), "unet_small");
  EXPECT_EQ(config.values.at("run").at("parent"), "./models/");
  EXPECT_EQ(config.values.at("memory").at("recompute"), (Json{"layer1", "layer2", "layer3", "layer4", "layer5", "layer6"}));
  EXPECT_EQ(config.values.at("train").at("seed"), 43);
  EXPECT_EQ(config.values.at("precision").at("dtype"), "bf16");
  EXPECT_EQ(config.values.at("data").at("workers"), 3);
  for (const char* said : {"model_params.model_path: ", "model_params.load_dir: ", "training_params.val_num_workers: ",
                           "training_params.use_compile: ", "training_params.compile_mode: "})
    EXPECT_THAT(config.notices, ::testing::Contains(HasSubstr(said)));
  EXPECT_THAT(refusal([this] { (void)resolve(Json::object(), R"({"model_params": {"levels": 3}})"); }),
              HasSubstr("unknown key \"model_params.levels\""));
}

// hugh's published files of other dates have numbers instead of true and false, a section for another script, and two names for
// the same thing.
TEST_F(CosmologyTest, TheOriginalsOlderFilesAreReadUnchanged) {
  const config::Resolved config = resolve(Json::object(), R"({
  "training_params": {"learning_rate": 5e-4, "add_noise": 0, "load_model": 0, "num_workers": 1, "use_cache": false},
  "model_params": {"learning_rate": 1e-3, "filters": 16},
  "moment_2_params": {"model_name": "moment_2", "load_dir": "/sims/"},
  "_comments": {"note": "kept"}})");
  const auto recipe = config::read<RecipeConfig>(config.values.at("recipe"));
  EXPECT_FALSE(recipe.add_noise);
  EXPECT_EQ(config.values.at("data").at("workers"), 1);
  EXPECT_EQ(config.values.at("data").at("cache"), "off");
  EXPECT_EQ(config.values.at("optim").at("learning_rate"), 5e-4);
  EXPECT_EQ(config.values.at("train").at("resume"), "auto");
  EXPECT_THAT(config.notices,
              ::testing::Contains(HasSubstr("moment_2_params: it belongs to the original's second-moment script")));
  EXPECT_THAT(config.notices,
              ::testing::Contains(HasSubstr("model_params.learning_rate: the original trains at training_params")));
}

TEST_F(CosmologyTest, AFileOfTheOriginalsSecondNetworkGetsOneSentence) {
  const std::string text = refusal([this] {
    (void)resolve(Json::object(),
                  R"({"model_params": {"model_version": "v2", "levels": 3, "norm": "groupnorm", "strides": [[2, 2, 1]]},
      "training_params": {"use_delay_loss": true}, "moment2_params": {"model_name": "m"}})");
  });
  EXPECT_THAT(text, HasSubstr("the file is for the original's network \"v2\""));
  EXPECT_THAT(text, HasSubstr("original.json:1"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("levels")));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("problems")));
}

}  // namespace
}  // namespace millrace::recipes::cosmology
