// For the tests of this folder: a tiny sky whose files are in memory, and a recipe that uses it.
#pragma once

#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/config/schema_of.h"
#include "millrace/train/run/run.h"
#include "recipes/cosmology/entry.h"
#include "recipes/cosmology/make_data.h"
#include "recipes/cosmology/recipe.h"
#include "recipes/cosmology/sky_source.h"
#include "tests/support/refusal.h"

namespace millrace::recipes::cosmology::test {

// An HDF5 file in memory.
class MemorySky final : public hdf5::File {
 public:
  MemorySky(std::filesystem::path path, std::string name, DType dtype, Shape shape, std::vector<std::byte> bytes)
      : path_(std::move(path)), bytes_(std::move(bytes)) {
    sets_.push_back({std::move(name), dtype, std::move(shape), {}, false, ""});
  }
  const std::filesystem::path& path() const override { return path_; }
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
  std::filesystem::path path_;
  std::vector<hdf5::Dataset> sets_;
  std::vector<std::byte> bytes_;
};

inline constexpr SkySize kTiny{4, 8, 16, 2, 6};

inline std::vector<std::byte> bytes_of(const Cube& cube) {
  const std::vector<std::complex<float>> narrow(cube.begin(), cube.end());
  const auto bytes = std::as_bytes(std::span(narrow));
  return {bytes.begin(), bytes.end()};
}

inline at::Tensor tensor_of(Cube cube, const SkySize& size) {
  return at::from_blob(cube.data(), {size.baselines, size.frequencies, size.ra}, at::kComplexDouble).clone();
}

class CosmologyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::current_path() / "cosmology_recipe_test" /
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    for (const char* name : {"signal", "foreground"}) std::filesystem::create_directories(folder_ / name);
    context_.places.run_folder = context_.places.new_files = folder_;
    context_.seed = 1;
    context_.notice = [this](const std::string& text) { notices_.push_back(text); };
    for (int file = 0; file < kTiny.files; ++file) {
      for (const char* name : {"signal/s", "foreground/f"}) std::ofstream(folder_ / (name + std::to_string(file) + ".h5"));
    }
  }
  // Opens a file: its replacement in `altered` if there is one, else a tiny sky.
  SkyFile open(const std::filesystem::path& path) {
    const std::string name = path.filename().string();
    if (const auto it = altered_.find(name); it != altered_.end()) return it->second(path);
    const int file = name[1] - '0';
    const Cube cube = name[0] == 's' ? sky_signal(kTiny, 5, file) : sky_foreground(kTiny, 5, file);
    return std::make_shared<MemorySky>(path, "/vis", DType::c64, kTiny.shape(), bytes_of(cube));
  }
  OpenSky opener() {
    return [this](std::span<const std::filesystem::path> paths, const hdf5::File::OnFailure& failed) {
      std::vector<SkyFile> files(paths.size());
      for (std::size_t i = 0; i < paths.size(); ++i) {
        try {
          files[i] = open(paths[i]);
        } catch (const DataError& error) {
          failed(i, error);
        }
      }
      return files;
    };
  }
  config::Resolved resolve(const Json& values, const std::string& json = "") {
    const Entry row = entry();
    const config::Schema schema = schema_of(row);
    const auto aliases = aliases_of(row);
    config::Layers layers(schema, aliases);
    layers.add_values(row.defaults, "recipe");
    if (!json.empty()) {
      write_atomically(Fs::real(), folder_ / "original.json", json);
      layers.add_file(folder_ / "original.json", row.convert_file);
    }
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
    return open_sky(recipe, folders.signal, folders.foreground, 1, opener(), config::read<RunConfig>(config).data);
  }
  void alter(const std::string& name, std::function<SkyFile(const std::filesystem::path&)> make) {
    altered_[name] = std::move(make);
  }

  std::filesystem::path folder_;
  RunConfig run_;
  Context context_;
  std::vector<std::string> notices_;
  std::map<std::string, std::function<SkyFile(const std::filesystem::path&)>> altered_;
};

}  // namespace millrace::recipes::cosmology::test
