// The recipe's model, losses, preprocessing, data and refusals; whole runs are in tests/cosmology.
#include "millrace/recipes/cosmology/recipe.h"

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
#include "millrace/data/cached_source.h"
#include "millrace/data/loader.h"
#include "millrace/memory/block.h"
#include "millrace/recipes/cosmology/entry.h"
#include "millrace/recipes/cosmology/make_data.h"
#include "millrace/recipes/cosmology/preprocess.h"
#include "millrace/recipes/cosmology/presets.h"
#include "millrace/recipes/cosmology/sky_pca.h"
#include "millrace/recipes/cosmology/sky_source.h"
#include "millrace/train/run.h"

namespace millrace::recipes::cosmology {
namespace {

using ::testing::HasSubstr;
namespace stdfs = std::filesystem;

// A file in memory.
class MemorySky final : public hdf5::File {
 public:
  MemorySky(stdfs::path path, std::string name, DType dtype, Shape shape, std::vector<std::byte> bytes)
      : path_(std::move(path)), bytes_(std::move(bytes)) {
    sets_.push_back({std::move(name), dtype, std::move(shape), {}, false, ""});
  }
  const stdfs::path& path() const override { return path_; }
  std::span<const hdf5::Dataset> datasets() const override { return sets_; }
  std::span<const hdf5::Unreadable> unreadable() const override { return not_readable; }
  std::uint64_t size() const noexcept override { return bytes_.size(); }
  std::int64_t modified_ns() const noexcept override { return 0; }
  std::vector<std::string> filters(std::string_view) const override { return {}; }
  const hdf5::Dataset& dataset(std::string_view) const override { return sets_.front(); }
  void read(std::string_view, std::span<const std::int64_t>, std::span<const std::int64_t> count,
            std::span<std::byte> out) const override {
    const Shape& shape = sets_[0].shape;
    const std::size_t row = static_cast<std::size_t>(shape[2]) * size_of(sets_[0].dtype);
    const std::size_t kept = static_cast<std::size_t>(count[2]) * size_of(sets_[0].dtype);
    for (std::size_t i = 0; i < static_cast<std::size_t>(shape[0] * shape[1]); ++i)
      std::memcpy(out.data() + i * kept, bytes_.data() + i * row, kept);
  }
  void will_need(std::string_view, std::span<const std::int64_t>, std::span<const std::int64_t>) const override {}

  std::vector<hdf5::Unreadable> not_readable;

 private:
  stdfs::path path_;
  std::vector<hdf5::Dataset> sets_;
  std::vector<std::byte> bytes_;
};

constexpr SkySize kTiny{4, 8, 16, 2, 6};

std::vector<std::byte> bytes_of(const Cube& cube) {
  const std::vector<std::complex<float>> narrow(cube.begin(), cube.end());
  const auto bytes = std::as_bytes(std::span(narrow));
  return {bytes.begin(), bytes.end()};
}

at::Tensor tensor_of(Cube cube, const SkySize& size) {
  return at::from_blob(cube.data(), {size.baselines, size.frequencies, size.ra}, at::kComplexDouble).clone();
}

class CosmologyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = stdfs::path(MILLRACE_BUILD_DIR) / "cosmology_recipe_test" /
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    stdfs::remove_all(folder_);
    for (const char* name : {"signal", "foreground"}) stdfs::create_directories(folder_ / name);
    context_.places.run_folder = context_.places.new_files = folder_;
    context_.seed = 1;
    context_.notice = [this](const std::string& text) { notices_.push_back(text); };
    for (int file = 0; file < kTiny.files; ++file) {
      for (const char* name : {"signal/s", "foreground/f"}) std::ofstream(folder_ / (name + std::to_string(file) + ".h5"));
    }
  }
  // Files named in `altered` are replaced, the others are a tiny sky.
  SkyFile open(const stdfs::path& path) {
    const std::string name = path.filename().string();
    if (const auto it = altered_.find(name); it != altered_.end()) return it->second(path);
    const int file = name[1] - '0';
    const Cube cube = name[0] == 's' ? sky_signal(kTiny, 5, file) : sky_foreground(kTiny, 5, file);
    return std::make_shared<MemorySky>(path, "/vis", DType::c64, kTiny.shape(), bytes_of(cube));
  }
  OpenSky opener() {
    return [this](std::span<const stdfs::path> paths) {
      std::vector<SkyFile> files;
      for (const stdfs::path& path : paths) files.push_back(open(path));
      return files;
    };
  }
  config::Resolved resolve(const Json& values, const std::string& json = "") {
    const Entry row = entry();
    const config::Schema schema = schema_of(row);
    const auto aliases = aliases_of(row);
    config::Layers layers(schema, aliases);
    layers.add_values(row.defaults, "recipe");
    if (!json.empty()) layers.add_text(json, ".json", "original.json");
    layers.add_values(values, "test", {folder_});
    return layers.resolve();
  }
  Json tiny(Json more = Json::object()) {
    Json values = {
        {"recipe.ra_keep", 16}, {"recipe.split", 2}, {"recipe.n_fg", 3}, {"recipe.filters", 4}, {"data.dir", folder_.string()}};
    values.update(more);
    return resolve(values).values;
  }
  Cosmology recipe(Json more = Json::object()) {
    const Json config = tiny(std::move(more));
    run_ = config::read<RunConfig>(config);
    context_.config = &run_;
    const auto sections = config::read<Sections>(config);
    if (auto problems = Cosmology::problems(sections, run_); !problems.empty()) throw ConfigError(std::move(problems));
    return {sections, context_, opener()};
  }
  Sky sky(const Json& more = Json::object()) {
    const Json config = tiny(more);
    const auto recipe = config::read<Sections>(config).recipe;
    const SkyFolders folders = sky_folders(recipe, config::read<RunConfig>(config).data);
    return open_sky(recipe, folders.signal, folders.foreground, 1, opener());
  }
  template <class Call>
  static std::string refusal(const Call& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was refused";
  }
  void alter(const std::string& name, std::function<SkyFile(const stdfs::path&)> make) { altered_[name] = std::move(make); }

  stdfs::path folder_;
  RunConfig run_;
  Context context_;
  std::vector<std::string> notices_;
  std::map<std::string, std::function<SkyFile(const stdfs::path&)>> altered_;
};

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
    // The gradient of a bias before a batch norm is zero in exact arithmetic.
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
  add_noise(both, 2.0, {1, 3, positions});
  at::Tensor second = at::zeros({1, 4, 8, 32});
  add_noise(second, 2.0, {1, 3, std::span(positions).subspan(1)});
  EXPECT_TRUE(at::equal(both[1], second[0]));
  EXPECT_NEAR(both.std().item<double>(), 2.0, 0.15);
  EXPECT_FALSE(at::equal(both[0], both[1]));
}

TEST_F(CosmologyTest, ForegroundOfRankKLeavesNothingOfItself) {  // acceptance 3 and 6 of the page, at its size
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
  EXPECT_THAT(split.told, ::testing::Contains(HasSubstr("a.h5")));
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

  // Weights without a snapshot: the components that the config names, not those of the batch.
  const auto by_weights_alone = [&](const Json& more) {
    Cosmology alone = recipe(more);
    return (alone.predict({{"x", x}}).at("signal") - predicted.at("signal")).abs().max().item<double>();
  };
  const std::string file = (folder_ / "pca_components_nfg3.safetensors").string();
  EXPECT_EQ(by_weights_alone({{"recipe.pca_components_path", file}}), 0.0);
  EXPECT_GT(by_weights_alone(Json::object()), 0.0);
  EXPECT_THAT(refusal([&] { (void)by_weights_alone({{"recipe.pca_components_path", "gone.safetensors"}}); }), HasSubstr("gone"));

  Cosmology again = recipe();  // finds the file
  again.before_training();
  EXPECT_THAT(notices_.back(), HasSubstr("pca components of"));
}

// ---- refusals, as in section 2 of the page

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
  const std::string name_it = "\n  next     name the dataset with recipe.vis_dataset; a uvh5 file: run tools/uvh5_to_vis.py";
  EXPECT_EQ(refused(), "DataError  s2.h5: dataset /vis is missing (has: /map)\n  where    " + s2 + name_it);
  alter("s2.h5", [&](const stdfs::path& path) {
    const auto file = memory(path, "/map", DType::c64, {4, 8, 16});
    file->not_readable = {{"/vis", "data in external files"}};
    return file;
  });
  EXPECT_EQ(refused(),
            "DataError  s2.h5: dataset /vis can't be read: data in external files\n  where    " + s2 +
                "\n  next     write it anew in numbers, all in this file, or name another dataset with recipe.vis_dataset");
  alter("s2.h5", [&](const stdfs::path& path) { return memory(path, "/vis", DType::f64, {4, 8, 16}); });
  EXPECT_EQ(refused(), "DataError  s2.h5: /vis is float64, expected complex {r,i}\n  where    " + s2 + name_it);
  alter("s2.h5", [&](const stdfs::path& path) { return memory(path, "/vis", DType::c64, {4, 12, 16}); });
  EXPECT_THAT(refused(), ::testing::MatchesRegex("DataError  s[0-9].h5 /vis is .4,(12|8),16., s[0-9].h5 has .4,(12|8),16.\n"
                                                 "  where    .*\n  next     remove or regrid the file"));
  altered_.clear();
  EXPECT_THAT(refused({{"recipe.ra_keep", 32}}),
              ::testing::MatchesRegex("DataError  s[0-9].h5 has 16 RA samples, ra_keep is 32\n  where    .*\n  next     lower "
                                      "recipe.ra_keep .it must divide by 4.split = 8."));

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
  EXPECT_EQ(refused(), "nothing was refused");
  const std::string next = "\n  where    pca.safetensors\n  next     fit it again: millrace pca fit --config FILE";
  config.n_fg = 2;
  EXPECT_EQ(refused(), "DataError  pca file has n_fg 3, recipe.n_fg is 2" + next);
  config.n_fg = 3;
  pca.freq_mhz = pca.freq_mhz + 1.0;
  EXPECT_EQ(refused(), "DataError  pca file has channel 0 at 507.250 MHz, data have 506.250 MHz" + next);
  Sky wider = all;
  wider.shape[1] = 16;
  EXPECT_EQ(refusal([&] { check_pca(pca, config, wider, "pca.safetensors", {}); }),
            "DataError  pca file has 8 frequencies, data have 16" + next);
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
  Cosmology skips = recipe({{"data.bad_samples", "skip"}});
  skips.before_training();
  EXPECT_TRUE(skips.state().tensors.contains("pca.vectors"));
  EXPECT_THAT(notices_, ::testing::Contains(::testing::ContainsRegex("s[012].h5 /vis.0,0,0. is nan")));
}

TEST_F(CosmologyTest, KeysThatDoNotFitAreRefused) {
  EXPECT_EQ(
      refusal([&] {
        (void)recipe({{"recipe.ra_keep", 20}});
      }),
      "ConfigError  ra_keep 20 does not divide by 4*split = 8\n  where    recipe.ra_keep, recipe.split\n  next     each chunk "
      "is halved twice: choose a multiple");
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
  EXPECT_THAT(refusal([this] { (void)resolve(Json::object(), R"({"model_params": {"levels": 3}})"); }),
              HasSubstr("unknown key \"model_params.levels\""));
}

}  // namespace
}  // namespace millrace::recipes::cosmology
