// Tests of the switch file_index on a real sky: the data is the same with and without it, and each file is opened only once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "millrace/hdf5/file.h"
#include "millrace/train/recipe/switchboard.h"
#include "millrace/train/run/run.h"
#include "recipes/cosmology/entry.h"
#include "recipes/cosmology/make_data.h"
#include "recipes/cosmology/recipe.h"

namespace millrace::recipes::cosmology {
namespace {

namespace stdfs = std::filesystem;

struct Start {
  std::uint64_t described = 0;
  std::string fingerprint;
  std::vector<std::byte> sample;
};

Start start(const stdfs::path& folder, const std::vector<std::string>& off) {
  const Entry row = entry();
  const config::Schema schema = schema_of(row);
  config::Layers layers(schema);
  layers.add_values(row.defaults, "recipe");
  layers.add_values({{"recipe.ra_keep", 16},
                     {"recipe.split", 2},
                     {"recipe.n_fg", 3},
                     {"recipe.filters", 4},
                     {"recipe.pca", "batch"},
                     {"data.dir", folder.string()}},
                    "test");
  const Switches switches(off);
  Context context;
  context.switches = &switches;
  context.places.cache_folder = folder / "cache";
  context.notice = [](const std::string&) {};
  const std::uint64_t before = hdf5::files_described();
  const Json config = layers.resolve().values;
  const auto run = config::read<RunConfig>(config);
  context.config = &run;
  Cosmology recipe(config::read<Sections>(config), context);
  recipe.before_training();
  Start result{.described = hdf5::files_described() - before};
  const data::Pipeline pipeline = recipe.data(Split::train);
  const data::Source& source = *pipeline.datasets[0].source;
  result.fingerprint = source.fingerprint();
  std::vector<std::size_t> begins;
  for (const Field& field : source.fields()) {
    begins.push_back(result.sample.size());
    result.sample.resize(result.sample.size() + field.bytes());
  }
  std::vector<std::byte*> rows;
  for (const std::size_t begin : begins) rows.push_back(result.sample.data() + begin);
  const std::int64_t zero = 0;
  source.read({&zero, 1}, {rows}, data::ReadRandom(1, 0, {&zero, 1}));
  return result;
}

TEST(FileIndex, OnAndOffGiveTheSameData) {
  const stdfs::path folder = stdfs::path(testing::TempDir()) / ("sky_index_" + std::to_string(::getpid()));
  for (const char* name : {"signal", "foreground"}) stdfs::create_directories(folder / name);
  constexpr SkySize kSmall{4, 8, 16, 2, 6};
  write_sample_sky(kSmall, folder, 3);
  for (const auto& file : stdfs::recursive_directory_iterator(folder)) {  // makes the files an hour old
    if (file.is_regular_file()) stdfs::last_write_time(file, stdfs::file_time_type::clock::now() - std::chrono::hours(1));
  }
  const Start off = start(folder, {"file_index"});
  EXPECT_FALSE(stdfs::exists(folder / "cache"));
  const Start first = start(folder, {});
  const Start second = start(folder, {});
  EXPECT_EQ(off.described, 12U);
  EXPECT_EQ(first.described, 12U);
  EXPECT_EQ(second.described, 0U);
  for (const Start* on : {&first, &second}) {
    EXPECT_EQ(on->fingerprint, off.fingerprint);
    EXPECT_EQ(on->sample, off.sample);
  }
  stdfs::remove_all(folder);
}

}  // namespace
}  // namespace millrace::recipes::cosmology
