// A run resumes from the same data wherever it lies, and names a file that has changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "millrace/base/error.h"
#include "small_runs.h"
#include "tests/support/refusal.h"
#include "toys.h"

namespace millrace {
namespace {

namespace stdfs = std::filesystem;
using small_runs::data_of;
using small_runs::entry_of;
using small_runs::small_config;
using testing::HasSubstr;
using toys::TemporaryFolder;

// Saves as it ends; a second life goes on to more steps.
RunOutcome run(const std::string& recipe, const stdfs::path& folder, const stdfs::path& data, std::int64_t steps,
               const Json& more = Json::object()) {
  Json config = small_config(recipe);
  config.update({{"data.dir", data.string()},
                 {"data.workers", 0},
                 {"precision.dtype", "fp32"},
                 {"device.threads", 1},
                 {"train.epochs", 0},
                 {"train.max_steps", steps},
                 {"log.tensorboard", false},
                 {"log.images", false}});
  config.update(more);
  return toys::run(entry_of(recipe), folder, config);
}

stdfs::path copy_of(const std::string& recipe, const stdfs::path& to) {
  stdfs::copy(data_of(recipe), to, stdfs::copy_options::recursive);
  for (const auto& entry : stdfs::recursive_directory_iterator(to)) {
    if (entry.is_regular_file())
      stdfs::last_write_time(entry.path(), stdfs::file_time_type::clock::now() - std::chrono::hours(9));
  }
  return to;
}

stdfs::path a_training_file(const std::string& recipe, const stdfs::path& data) {
  if (recipe == "language_model") return data / "text.txt";
  std::vector<stdfs::path> files;
  for (const auto& entry : stdfs::recursive_directory_iterator(data)) {
    if (entry.path().extension() == ".h5" || entry.path().extension() == ".nii" || entry.path().extension() == ".png")
      files.push_back(entry.path());
  }
  return *std::min_element(files.begin(), files.end());
}

Message refusal_of(const std::string& recipe, const stdfs::path& folder, const stdfs::path& data) {
  return refusal_message<SnapshotError>([&] { (void)run(recipe, folder, data, 4); });
}

class MovedData : public testing::TestWithParam<std::string> {};

TEST_P(MovedData, GoesOnFromACopyUnderAnotherPath) {
  const std::string& recipe = GetParam();
  const std::string whole = run(recipe, "", data_of(recipe), 4).summary["state_sha256"];
  const TemporaryFolder folder;
  (void)run(recipe, folder.path() / "run", copy_of(recipe, folder.path() / "data"), 2);
  stdfs::create_directories(folder.path() / "mounted");
  stdfs::rename(folder.path() / "data", folder.path() / "mounted" / "elsewhere");
  EXPECT_EQ(run(recipe, folder.path() / "run", folder.path() / "mounted/./elsewhere", 4).summary["state_sha256"], whole);
}

TEST_P(MovedData, OneChangedByteIsNamedAndAcceptedOnDemand) {
  const std::string& recipe = GetParam();
  const TemporaryFolder folder;
  const stdfs::path data = copy_of(recipe, folder.path() / "data");
  (void)run(recipe, folder.path() / "run", data, 2);
  const stdfs::path file = a_training_file(recipe, data);
  {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekg(-1, std::ios::end);
    const char last = static_cast<char>(bytes.get());
    bytes.seekp(-1, std::ios::end);
    bytes.put(last == 'a' ? 'b' : 'a');  // for text, a letter that it knows
  }
  const Message refused = refusal_of(recipe, folder.path() / "run", data);
  EXPECT_THAT(refused.what, HasSubstr("data has changed since the run began: "));
  EXPECT_THAT(refused.what, HasSubstr(file.filename().string() + ": its content differs though its size is the same"));
  EXPECT_THAT(refused.next, HasSubstr("data.accept_changed=true"));

  EXPECT_EQ(run(recipe, folder.path() / "run", data, 4, {{"data.accept_changed", true}}).summary["steps"], 4);
  const std::vector<Json> starts = toys::log_of(folder.path() / "run", "start");
  ASSERT_EQ(starts.size(), 2U);
  EXPECT_THAT(starts[1]["notices"].dump(), HasSubstr("data.accept_changed: the run resumes although the"));
  EXPECT_THAT(starts[1]["notices"].dump(), HasSubstr(file.filename().string()));
  EXPECT_EQ(run(recipe, folder.path() / "run", data, 5).summary["steps"], 5) << "it is the run's data from then on";
}

INSTANTIATE_TEST_SUITE_P(Recipes, MovedData,
                         testing::Values("language_model", "cosmology", "neural_response", "autoencoder_3d", "image_pairs"),
                         [](const auto& param_info) { return param_info.param; });

TEST(MovedText, MayBeNamedInAnotherWay) {
  const TemporaryFolder folder;
  const stdfs::path data = copy_of("language_model", folder.path() / "data");
  const auto sources = [&](const std::string& path) { return Json{{"recipe.sources", Json::array({path})}}; };
  (void)run("language_model", folder.path() / "run", "", 2, sources((data / "text.txt").string()));
  EXPECT_EQ(run("language_model", folder.path() / "run", "", 4, sources((data / "." / "text.txt").string())).summary["steps"], 4);
  EXPECT_EQ(run("language_model", folder.path() / "run", data, 5).summary["steps"], 5) << "as all of a folder";
  stdfs::rename(data / "text.txt", data / "renamed.txt");
  EXPECT_EQ(run("language_model", folder.path() / "run", data, 6).summary["steps"], 6);
  EXPECT_THAT(toys::log_of(folder.path() / "run", "start").back()["notices"].dump(),
              HasSubstr("file text.txt is now called renamed.txt"));
}

}  // namespace
}  // namespace millrace
