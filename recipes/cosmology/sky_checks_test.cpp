// Tests of padding, and of the warnings that the method can't work. Each warning must appear with data that causes it, and not
// with other data.
#include "recipes/cosmology/sky_checks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/view_as_real.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/base/philox.h"
#include "recipes/cosmology/detail/test_sky.h"
#include "recipes/cosmology/padding.h"
#include "recipes/cosmology/sky_pca.h"

namespace millrace::recipes::cosmology {
namespace {

using namespace test;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Skies of 40 channels; a test may spoil their foreground.
class SkyChecks : public CosmologyTest {
 protected:
  static constexpr SkySize kSize{4, 40, 16, 2, 6};
  using Spoil = std::function<void(Cube& foreground, int file)>;

  void serve(const Spoil& spoil = {}, double signal = 1) {
    for (int file = 0; file < 6; ++file) {
      alter("s" + std::to_string(file) + ".h5", [=](const std::filesystem::path& path) {
        Cube cube = sky_signal(kSize, 5, file);
        for (auto& value : cube) value *= signal;
        return std::make_shared<MemorySky>(path, "/vis", DType::c64, kSize.shape(), bytes_of(cube));
      });
      alter("f" + std::to_string(file) + ".h5", [=](const std::filesystem::path& path) {
        Cube cube = sky_foreground(kSize, 5, file);
        if (spoil) spoil(cube, file);
        return std::make_shared<MemorySky>(path, "/vis", DType::c64, kSize.shape(), bytes_of(cube));
      });
    }
  }
  std::vector<std::string> lines(const Json& more = Json::object()) {
    const auto config = config::read<Sections>(tiny(more)).recipe;
    const Sky all = sky(more);
    const bool stored = config.pca.value_or(PcaMode::stored) == PcaMode::stored;
    const std::optional<nn::ForegroundPca> pca = stored ? std::optional(fit_pca(config, all, 1, 100)) : std::nullopt;
    return check_training_sky(config, all, pca ? &*pca : nullptr, 1);
  }
  // Adds noise of this size to some channels, as a transmitter does.
  static Spoil interference(int channels, double size) {
    return [=](Cube& cube, int file) {
      Philox random(make_key(9, static_cast<std::uint64_t>(file)));
      for (std::int64_t b = 0; b < kSize.baselines; ++b) {
        for (int c = 0; c < channels; ++c) {
          for (std::int64_t t = 0; t < kSize.ra; ++t)
            cube[static_cast<std::size_t>((b * kSize.frequencies + 3 + 2 * c) * kSize.ra + t)] +=
                std::complex<double>(random.normal(), random.normal()) * size;
        }
      }
    };
  }
};

TEST_F(SkyChecks, ACleanSkySaysNothing) {
  serve();
  EXPECT_THAT(lines(), IsEmpty());
  EXPECT_THAT(lines({{"recipe.pca", "batch"}}), IsEmpty());
}

TEST_F(SkyChecks, InterferenceAboveTheComponentsIsNamedWithItsChannels) {
  serve(interference(4, 0.1));  // 2 components of foreground and 4 of interference, n_fg 3
  const auto said = lines();
  ASSERT_EQ(said.size(), 1U);
  EXPECT_THAT(said[0],
              ::testing::MatchesRegex("with recipe.n_fg = 3 PCA leaves [0-9.e+]+ times the power of the signal: the network will "
                                      "hardly find the signal; half of the remaining power is in [12] channels?, .* MHz.*; 3 "
                                      "further components each hold more "
                                      "power than the whole signal. Next: flag or leave out channels with interference, or raise "
                                      "recipe.n_fg to 6"));
  EXPECT_THAT(lines({{"recipe.n_fg", 6}}), IsEmpty());
  EXPECT_THAT(lines({{"recipe.pca", "batch"}}), Contains(HasSubstr("PCA leaves")));
  serve(interference(1, 0.1));
  EXPECT_THAT(lines(), IsEmpty()) << "the third component takes it";
}

TEST_F(SkyChecks, AComponentThatTowersIsNamedBeforeAllIsLost) {
  serve(interference(2, 2.5e-5));  // one component is left, with about the power of the whole signal
  const auto said = lines();
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(said[0], "1 further component holds more power than the whole signal: raise recipe.n_fg = 3 to 4");
}

TEST_F(SkyChecks, DeadAndSaturatedChannelsAndBaselinesAreNamed) {
  serve([](Cube& cube, int) {
    for (std::size_t i = 0; i < cube.size(); ++i) {
      const auto channel = i / 16 % 40;
      if (channel == 7) cube[i] *= 1000;
      if (i / (16 * 40) == 2) cube[i] = 0;
    }
  });
  const auto said = lines();
  EXPECT_THAT(said, Contains(HasSubstr("1 channel has more than 10,000 times the power of the median channel: 7 (518.750 MHz)")));
  serve([](Cube& cube, int) { std::fill(cube.begin(), cube.end(), 0.0); }, 0);
  EXPECT_THAT(lines(), Contains(HasSubstr("4 baselines are zero throughout: 0, 1, 2, 3 (counted from 0)")));
  EXPECT_THAT(lines(), Contains(HasSubstr("the signal is zero")));
  serve({}, 0);
  EXPECT_THAT(lines(), Contains(HasSubstr("the signal is zero in all training samples that were examined")));
  serve(
      [](Cube& cube, int) {
        for (std::size_t i = 0; i < cube.size(); ++i) cube[i] *= i / 16 % 40 == 9 ? 1e-8 : 1.0;
      },
      1e-6);
  EXPECT_THAT(lines(), Contains(HasSubstr("1 channel has no power: 9 (523.750 MHz)")));
}

TEST_F(SkyChecks, OneSampleOfValidationIsSaid) {
  Sky all = sky();
  all.validation.signal.resize(1, all.train.signal[0]);
  EXPECT_THAT(check_validation_sky(all), ::testing::ElementsAre(HasSubstr("validation has 1 sample, s")));
  all.validation.signal.push_back(all.train.signal[0]);
  EXPECT_THAT(check_validation_sky(all), IsEmpty());
}

TEST_F(SkyChecks, ALossAtTheVarianceOfTheTargetIsToldOnceAfterThree) {
  PinnedLoss pinned;
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(pinned.add(0, 1, 1)) << "of the rehearsal";
  EXPECT_FALSE(pinned.add(2, 1.001, 1));
  EXPECT_FALSE(pinned.add(4, 0.999, 1));
  EXPECT_FALSE(pinned.add(6, 0.95, 1));
  EXPECT_FALSE(pinned.add(8, 1.0, 1));
  EXPECT_FALSE(pinned.add(10, 0.995, 1));
  EXPECT_TRUE(pinned.add(12, 0.995, 1));
  EXPECT_FALSE(pinned.add(14, 0.995, 1));
  PinnedLoss empty;
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(empty.add(2, 0, 0));
}

// ---- padding

TEST_F(SkyChecks, PaddingRepeatsOrMirrorsAndIsCutOff) {
  const at::Tensor line = at::arange(1, 6, at::kFloat).view({1, 1, 1, 5, 1});
  const auto values = [](const at::Tensor& x) {
    const at::Tensor flat = x.select(2, 0).select(3, 0).flatten().contiguous();
    return std::vector<float>(flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel());
  };
  EXPECT_EQ(padded(line, Padding::circular).sizes(), (std::vector<std::int64_t>{1, 1, 4, 8, 4}));
  EXPECT_EQ(values(padded(line, Padding::circular).contiguous()), (std::vector<float>{1, 2, 3, 4, 5, 1, 2, 3}));
  EXPECT_EQ(values(padded(line, Padding::mirror).contiguous()), (std::vector<float>{1, 2, 3, 4, 5, 5, 4, 1}));
  const at::Tensor volume = at::randn({2, 2, 6, 7, 3});
  for (const Padding padding : {Padding::circular, Padding::mirror}) {
    const at::Tensor longer = padded(volume, padding);
    EXPECT_EQ(longer.sizes(), (std::vector<std::int64_t>{2, 2, 8, 8, 4}));
    EXPECT_TRUE(at::equal(unpadded(longer, volume), volume));
  }
  const at::Tensor fits = at::randn({1, 2, 4, 8, 12});
  EXPECT_TRUE(padded(fits, Padding::mirror).is_same(fits));
}

TEST_F(SkyChecks, OddLengthsTrainWithPaddingAndAreRefusedWithout) {
  constexpr SkySize kOdd{3, 10, 15, 2, 6};
  for (int file = 0; file < 6; ++file) {
    for (const char* kind : {"s", "f"}) {
      alter(kind + std::to_string(file) + ".h5", [=](const std::filesystem::path& path) {
        const Cube cube = *kind == 's' ? sky_signal(kOdd, 5, file) : sky_foreground(kOdd, 5, file);
        return std::make_shared<MemorySky>(path, "/vis", DType::c64, kOdd.shape(), bytes_of(cube));
      });
    }
  }
  const Json odd = {{"recipe.ra_keep", 15}, {"recipe.split", 3}};
  EXPECT_THAT(refusal([&] { (void)recipe(odd); }), HasSubstr("ra_keep 15 is not a multiple of 4*split = 12"));
  const std::string lengths = refusal([&] { recipe({{"recipe.ra_keep", 12}, {"recipe.split", 3}}).before_training(); });
  EXPECT_THAT(lengths, AllOf(HasSubstr("2 problems of the data"), HasSubstr("has 3 baselines, which is not a multiple of 4"),
                             HasSubstr("has 10 frequencies, which is not a multiple of 4"), HasSubstr("set recipe.pad=mirror")));
  Json with = odd;
  with["recipe.pad"] = "circular";
  Cosmology network = recipe(with);
  network.before_training();
  EXPECT_EQ(network.facts().lines.at("chunks"), "3 a sample, [2,5,10,3] each; in the network [2,8,12,4], circular");
  const at::Tensor x = at::randn({2, 3, 10, 15}, at::kComplexFloat);
  const at::Tensor y = at::randn({2, 3, 10, 15}, at::kComplexFloat) * 1e-5;
  Batch batch = network.prepare(Batch(Tensors{{"x", x}, {"y", y}}));
  EXPECT_EQ(batch["input"].sizes(), (std::vector<std::int64_t>{6, 2, 5, 10, 3}));
  const auto objectives = network.objectives();
  const std::optional<Loss> loss = objectives[0].loss(batch, {});
  const at::Tensor& predicted = loss->outputs.at("predicted");
  EXPECT_EQ(predicted.sizes(), batch["target"].sizes());
  const double expected = (predicted - batch["target"]).square().sum().item<double>();
  EXPECT_NEAR(loss->terms[0].sum.item<double>() / expected, 1, 1e-6) << "a sum over what was there before";
  loss->terms[0].sum.backward();
  EXPECT_EQ(network.predict({{"x", x}}).at("signal").sizes(), x.sizes());
  at::Tensor bad = x.clone();
  at::view_as_real(bad)[1][2][3][4].fill_(std::nan(""));
  EXPECT_THAT(refusal([&] {
                (void)network.predict({{"x", bad}});
              }),
              HasSubstr("\"x\" has 1 value that are not finite, the first at [1,2,3,4]"));
}

TEST_F(SkyChecks, AFolderOfUvh5FilesIsToldTheCommand) {
  std::filesystem::create_directories(folder_ / "night");
  std::ofstream(folder_ / "night" / "a.uvh5");
  const std::string said = refusal([&] { (void)sky({{"data.dir", (folder_ / "night").string()}}); });
  EXPECT_THAT(said, AllOf(HasSubstr("2 problems of the data"), HasSubstr("signal_dir holds no .h5 file"),
                          HasSubstr("millrace uvh5 " + (folder_ / "night").string() + " --out sky")));
}

}  // namespace
}  // namespace millrace::recipes::cosmology
