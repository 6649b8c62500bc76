// Tests of the recipe's model, losses, preprocessing and data; tests/cosmology tests whole runs.
#include "recipes/cosmology/recipe.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "millrace/base/error.h"
#include "millrace/config/schema_of.h"
#include "millrace/data/cache/cached_source.h"
#include "millrace/data/loader/loader.h"
#include "millrace/memory/block.h"
#include "millrace/train/run/run.h"
#include "recipes/cosmology/detail/test_sky.h"
#include "recipes/cosmology/entry.h"
#include "recipes/cosmology/entry_parts.h"
#include "recipes/cosmology/make_data.h"
#include "recipes/cosmology/preprocess.h"
#include "recipes/cosmology/sky_pca.h"
#include "recipes/cosmology/sky_source.h"

namespace millrace::recipes::cosmology {
namespace {

using namespace test;
using ::testing::HasSubstr;
namespace stdfs = std::filesystem;

// ---- model and loss

TEST_F(CosmologyTest, ParameterCountsAndShapesAreThoseOfThePage) {
  for (const auto& [filters, count] :
       std::map<std::int64_t, std::int64_t>{{4, 33'614}, {7, 101'915}, {8, 132'890}, {16, 528'434}, {32, 2'107'490}}) {
    const UNet model({.filters = filters});
    std::int64_t found = 0;
    for (const at::Tensor& parameter : model.parameters()) found += parameter.numel();
    EXPECT_EQ(found, count);
    EXPECT_EQ(parameter_count(filters), count);
  }
  UNet model({.filters = 4});
  const at::Tensor x = at::randn({1, 2, 8, 16, 4});
  EXPECT_EQ(model.forward(x).sizes(), x.sizes());
  std::set<std::string> names;
  for (const auto& named : model.named_parameters()) names.insert(named.key());
  for (const char* name :
       {"layer1.0.conv1.weight", "layer7.1.bn1.bias", "deconv1.weight", "deconv_batchnorm2.weight", "deconv4.bias"})
    EXPECT_TRUE(names.contains(name)) << name;
}

TEST_F(CosmologyTest, LogMseIsExactOverAccumulation) {
  const at::Tensor x = at::randn({4, 2, 8, 8, 4});
  const at::Tensor y = at::randn({4, 2, 8, 8, 4});
  UNet model({.filters = 4}, 3);
  model.eval();
  const auto gradients = [&](std::int64_t parts) {
    model.zero_grad();
    at::Tensor count;
    for (std::int64_t i = 0; i < parts; ++i) {
      const std::int64_t rows = 4 / parts;
      const Loss loss = loss_of(model.forward(x.narrow(0, i * rows, rows)), y.narrow(0, i * rows, rows), LossKind::logmse);
      loss.term().sum.backward();
      count = count.defined() ? count + loss.term().count : loss.term().count;
    }
    std::vector<at::Tensor> all;
    for (const at::Tensor& parameter : model.parameters()) all.push_back(parameter.grad() / count);
    return all;
  };
  const auto whole = gradients(1);
  const auto halves = gradients(2);
  model.zero_grad();
  (model.forward(x) - y).square().mean().log().backward();
  std::size_t i = 0;
  for (const at::Tensor& parameter : model.parameters()) {
    const double scale = whole[i].abs().max().item<double>();
    EXPECT_LE((halves[i] - whole[i]).abs().max().item<double>(), 1e-5 * scale);
    EXPECT_LE((parameter.grad() - whole[i]).abs().max().item<double>(), 1e-5 * scale);
    ++i;
  }
}

TEST_F(CosmologyTest, ChannelsLastIsTheSameNetwork) {
  const at::Tensor x = at::randn({2, 2, 8, 8, 4});
  std::vector<Tensors> results;
  for (const bool channels_last : {false, true}) {
    UNet model({.filters = 4}, 3);
    model.set_channels_last(channels_last);
    const at::Tensor y = model.forward(x);
    EXPECT_EQ(y.is_contiguous(at::MemoryFormat::ChannelsLast3d), channels_last);
    y.square().mean().backward();
    Tensors result = {{"output", y.detach()}};
    for (const auto& named : model.named_buffers()) result[named.key()] = named.value().clone();
    for (const auto& named : model.named_parameters()) result["grad." + named.key()] = named.value().grad();
    results.push_back(std::move(result));
  }
  for (const auto& [name, value] : results[0]) {
    // A bias before a batch norm has the gradient zero except for rounding, so small values are compared with 1e-2.
    const double scale = std::max(1e-2, value.abs().max().item<double>());
    EXPECT_LE((results[1].at(name) - value).abs().max().item<double>(), 1e-4 * scale) << name;
  }
}

TEST_F(CosmologyTest, RecomputeChangesNeitherLossNorRunningStatistics) {
  const at::Tensor x = at::randn({2, 2, 8, 8, 4});
  std::vector<Tensors> results;
  for (const bool recompute : {false, true}) {
    UNet model({.filters = 4}, 3);
    const memory::Recompute blocks({recompute ? "all" : "none"});
    at::Tensor loss;
    {
      const memory::BlockScope scope(blocks, at::kCPU);
      loss = model.forward(x).square().mean();
    }
    loss.backward();
    Tensors result = {{"loss", loss.detach()}};
    for (const auto& named : model.named_buffers()) result[named.key()] = named.value().clone();
    for (const auto& named : model.named_parameters()) result["grad." + named.key()] = named.value().grad();
    results.push_back(std::move(result));
  }
  for (const auto& [name, value] : results[0]) EXPECT_TRUE(at::equal(value, results[1].at(name))) << name;
}

TEST_F(CosmologyTest, OtherLossesAreTheirFormulas) {
  const at::Tensor a = at::randn({50}, at::kDouble) * 3;
  const at::Tensor b = at::randn({50}, at::kDouble);
  const auto mean = [](const Loss& loss) { return (loss.term().sum / loss.term().count).item<double>(); };
  EXPECT_NEAR(mean(loss_of(a, b, LossKind::mse)), (a - b).square().mean().item<double>(), 1e-12);
  EXPECT_NEAR(mean(loss_of(a, b, LossKind::logcosh)), (a - b).cosh().log().mean().item<double>(), 1e-9);
}

// ---- preprocessing

TEST_F(CosmologyTest, LayoutIsSampleMajorChunksAndComesBack) {
  const at::Tensor z = at::randn({3, 4, 8, 16}, at::kComplexFloat);
  const at::Tensor volumes = to_volumes(nn::as_pixels(z), 2);
  EXPECT_EQ(volumes.sizes(), (std::vector<std::int64_t>{6, 2, 8, 8, 4}));
  const at::Tensor value = at::view_as_real(z)[1][3][5][8 + 2][1];  // sample 1, chunk 1
  EXPECT_EQ(volumes[1 * 2 + 1][1][2][5][3].item<float>(), value.item<float>());
  EXPECT_TRUE(at::equal(to_sky(volumes, 2), z));
}

TEST_F(CosmologyTest, NoiseDependsOnThePositionAlone) {
  const std::vector<std::int64_t> positions = {7, 9};
  at::Tensor both = at::zeros({2, 4, 8, 32});
  add_noise(both, 2.0, {1, 22, 3, positions});
  at::Tensor second = at::zeros({1, 4, 8, 32});
  add_noise(second, 2.0, {1, 22, 3, std::span(positions).subspan(1)});
  EXPECT_TRUE(at::equal(both[1], second[0]));
  EXPECT_NEAR(both.std().item<double>(), 2.0, 0.15);
  EXPECT_FALSE(at::equal(both[0], both[1]));
}

TEST_F(CosmologyTest, ForegroundOfRankKLeavesNothingOfItself) {  // the recipe's page, acceptance 3 and 6, in the size that it
                                                                 // names
  const SkySize size{12, 128, 256, 10, 3};
  const auto pixels = [&](const Cube& cube) { return at::view_as_real(tensor_of(cube, size)).flatten(-2); };
  nn::PcaFit fit;
  for (int file = 0; file < 2; ++file) fit.add(pixels(sky_foreground(size, 1, file)));
  const at::Tensor other = pixels(sky_foreground(size, 1, 2));
  const auto rms = [](const at::Tensor& x) { return x.square().mean().sqrt().item<double>(); };
  const double nine = rms(fit.finish(9).clean(other)) / rms(other);
  EXPECT_GT(nine, 1e-6);
  EXPECT_LT(nine, 1e-4);
  for (const int n : {10, 11}) {
    EXPECT_LT(rms(fit.finish(n).clean(other)) / rms(other), 1e-9);
    EXPECT_LT(rms(fit.finish(n).clean(other.to(at::kFloat))) / rms(other), 5e-7);
  }
  nn::PcaFit contaminated;
  for (int file = 0; file < 2; ++file)
    contaminated.add(pixels(sky_foreground(size, 1, file)) + pixels(sky_signal(size, 1, file)));
  const at::Tensor signal = pixels(sky_signal(size, 1, 2));
  const at::Tensor cleaned = contaminated.finish(11).clean(other + signal);
  metrics::Board board;
  board.add_correlation("corr", cleaned, signal);
  const double left = ((cleaned - signal).square().sum() / signal.square().sum()).item<double>();
  EXPECT_GT(board.means().at("corr"), 0.60);
  EXPECT_LT(board.means().at("corr"), 0.80);
  EXPECT_GT(left, 0.35);
  EXPECT_LT(left, 0.65);
}

// ---- data

TEST_F(CosmologyTest, BatchesDoNotDependOnReadersAndForegroundsAreDrawnByPosition) {
  const Sky all = sky();
  const auto source = std::make_shared<SkySource>(all.train, all.shape, SkyOptions{.ra_keep = 12, .rolls = true});
  const auto first_batches = [&](int readers, const std::shared_ptr<data::SampleCache>& cache = nullptr) {
    data::LoaderOptions options;
    options.batch_size = 2;
    options.shuffle = true;
    options.seed = 4;
    options.readers = readers;
    data::Pipeline pipeline = data::single(source);
    data::use_cache(pipeline, cache);
    data::Loader loader(std::move(pipeline), options);
    std::vector<std::byte> bytes;
    for (int epoch = 0; epoch < 4; ++epoch) {
      while (auto batch = loader.next()) {
        const auto& group = batch->groups[0];
        for (const std::byte* field : group.data)
          bytes.insert(bytes.end(), field, field + group.positions.size() * source->fields()[0].bytes());
      }
    }
    return bytes;
  };
  const auto plain = first_batches(0);
  ASSERT_FALSE(plain.empty());
  EXPECT_EQ(first_batches(1), plain);
  EXPECT_EQ(first_batches(4), plain);
  const std::uint64_t payload = data::cache_payload(*source);
  for (const std::uint64_t budget : {payload, payload / 2, payload / 8}) {
    const auto cache = std::make_shared<data::SampleCache>(budget);
    EXPECT_EQ(first_batches(0, cache), plain);
    EXPECT_EQ(cache->counters().hits > 0, budget > payload / 8);
    EXPECT_EQ(first_batches(2, cache), plain);
  }
}

TEST_F(CosmologyTest, ASplitIsDrawnOncePerSeedAndNeverEmpty) {
  const std::vector<stdfs::path> one = {"a.h5"};
  std::vector<stdfs::path> many;
  for (int i = 0; i < 400; ++i) many.emplace_back("f" + std::to_string(i) + ".h5");
  const SplitOfSky split = split_sky(many, one, 3, -1);
  EXPECT_NEAR(static_cast<double>(split.signal.train.size()), 360, 25);
  EXPECT_EQ(split.signal.train.size() + split.signal.validation.size(), 400U);
  EXPECT_EQ(split.foreground.train, one);
  EXPECT_EQ(split.foreground.validation, one);
  EXPECT_THAT(split.notices, ::testing::Contains(HasSubstr("a.h5")));
  EXPECT_EQ(split_sky(many, one, 3, -1).signal.train, split.signal.train);
  EXPECT_EQ(split_sky(many, one, 3, 7).signal.train.size(), 7U);
}

TEST_F(CosmologyTest, AnEpochOfTheTinySkyTrains) {
  Cosmology tiny_recipe = recipe();
  tiny_recipe.before_training();
  EXPECT_TRUE(stdfs::exists(folder_ / "pca_components_nfg3.safetensors"));
  EXPECT_THAT(notices_.back(), HasSubstr("pca fitted on"));
  data::Pipeline pipeline = tiny_recipe.data(Split::train);
  const data::Source& source = *pipeline.datasets[0].source;
  at::Tensor x = at::empty({1, 4, 8, 16}, at::kComplexFloat);
  at::Tensor y = at::empty({1, 4, 8, 16}, at::kComplexFloat);
  const std::array<std::byte*, 2> rows{static_cast<std::byte*>(x.mutable_data_ptr()),
                                       static_cast<std::byte*>(y.mutable_data_ptr())};
  const std::int64_t zero = 0;
  source.read({&zero, 1}, {rows}, data::ReadRandom(1, 0, {&zero, 1}));
  Batch batch = tiny_recipe.prepare(Batch(Tensors{{"x", x}, {"y", y}}));
  EXPECT_EQ(batch["input"].sizes(), (std::vector<std::int64_t>{2, 2, 8, 8, 4}));
  EXPECT_LT(batch["input"].abs().max().item<double>(), 100.0);
  EXPECT_LT((to_sky(batch["target"] / 1e5, 2) - y).abs().max().item<double>(), 1e-10);
  const Tensors predicted = tiny_recipe.predict({{"x", x}});
  EXPECT_EQ(predicted.at("signal").sizes(), x.sizes());
  EXPECT_THAT(refusal([&] { (void)tiny_recipe.predict({{"y", y}}); }), HasSubstr("no complex tensor \"x\""));

  // Weights without a snapshot: the components that the config names must be used, not those of the batch.
  const auto by_weights_alone = [&](const Json& more) {
    Cosmology alone = recipe(more);
    return (alone.predict({{"x", x}}).at("signal") - predicted.at("signal")).abs().max().item<double>();
  };
  const std::string file = (folder_ / "pca_components_nfg3.safetensors").string();
  EXPECT_EQ(by_weights_alone({{"recipe.pca_components_path", file}}), 0.0);
  EXPECT_GT(by_weights_alone(Json::object()), 0.0);
  EXPECT_THAT(refusal([&] { (void)by_weights_alone({{"recipe.pca_components_path", "gone.safetensors"}}); }), HasSubstr("gone"));

  Cosmology again = recipe();  // uses the file that the first recipe saved
  again.before_training();
  EXPECT_THAT(notices_.back(), HasSubstr("pca components of"));
}

TEST_F(CosmologyTest, ComponentsFoundThatDoNotFitAreFittedAgain) {
  const stdfs::path ours = folder_ / "pca_components_nfg3.safetensors";
  const auto start = [&](const Json& more = Json::object()) {
    notices_.clear();
    Cosmology one = recipe(more);
    one.before_training();
    return nn::ForegroundPca::load(ours);
  };
  const nn::ForegroundPca fitted = start();
  const auto refitted = [&](const std::string& why) {
    const nn::ForegroundPca again = start();
    EXPECT_TRUE(at::equal(again.vectors(), fitted.vectors()));
    EXPECT_THAT(notices_, ::testing::Contains(::testing::AllOf(HasSubstr(why), HasSubstr("fitted again"))));
    EXPECT_THAT(notices_.back(), HasSubstr("pca fitted on"));
  };
  nn::ForegroundPca other(fitted.mean(), fitted.eigenvalues(), fitted.vectors().flip(1).contiguous(), 3);
  other.facts = fitted.facts;
  other.facts["fingerprint"] = "of another sky";
  other.save(Fs::real(), ours);
  refitted("fitted on other files");
  other.facts = fitted.facts;
  other.facts["content"] = "of other bytes";
  other.save(Fs::real(), ours);
  refitted("fitted on files with the same names and sizes but other contents");
  // The tiny sky is in memory, so what its files hold changes only the stamps.
  const auto rewrite = [&](const char* text) {
    for (int file = 0; file < kTiny.files; ++file) std::ofstream(folder_ / ("signal/s" + std::to_string(file) + ".h5")) << text;
  };
  rewrite("old");
  refitted("but other contents");
  rewrite("new");
  refitted("but other contents");
  other.facts = fitted.facts;
  other.facts.erase("content");  // as of an earlier version, whose components are used as before
  other.save(Fs::real(), ours);
  EXPECT_TRUE(at::equal(start().vectors(), other.vectors()));
  nn::ForegroundPca(fitted.mean(), fitted.eigenvalues(), fitted.vectors(), 4).save(Fs::real(), ours);
  refitted("the PCA file has n_fg 4, but recipe.n_fg is 3");
  std::ofstream(ours) << "no such file";
  refitted("not used");

  // A file of hugh next to it has no fingerprint of the data. It must be accepted, and kept in Millrace's format.
  nn::ForegroundPca theirs(fitted.mean(), fitted.eigenvalues(), fitted.vectors().flip(1).contiguous(), 3);
  theirs.save(Fs::real(), stdfs::path(ours).replace_extension(".pt"));  // the file is recognised by its content, not by its name
  stdfs::remove(ours);
  EXPECT_TRUE(at::equal(start().vectors(), theirs.vectors()));
  EXPECT_THAT(notices_, ::testing::Contains(HasSubstr("pca_components_nfg3.pt")));
  // The config names this file, so components that do not fit are an error instead of a notice.
  nn::ForegroundPca(fitted.mean(), fitted.eigenvalues(), fitted.vectors(), 4).save(Fs::real(), folder_ / "named.safetensors");
  EXPECT_THAT(refusal([&] {
                (void)start({{"recipe.pca_components_path", (folder_ / "named.safetensors").string()}});
              }),
              HasSubstr("the PCA file has n_fg 4"));
}

}  // namespace
}  // namespace millrace::recipes::cosmology
