// Every preset of every recipe is rehearsed on data of its shapes with few samples, predict() included where its input is a part
// of a batch. What a small machine has no time or memory for is cut as it says in the table: rows of a batch, of a model of 7
// billion weights the number of its blocks, and volumes to the size of a crop (attention over a volume of 96^3 takes more than
// ten minutes on two cores). Widths and lengths stay. MILLRACE_PRESETS=long takes those that need more than some seconds.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "millrace/base/finally.h"
#include "millrace/train/run/run.h"
#include "recipes/autoencoder_3d/make_data.h"
#include "recipes/cosmology/make_data.h"
#include "recipes/image_pairs/make_data.h"
#include "recipes/language_model/make_data.h"
#include "recipes/neural_response/make_data.h"
#include "recipes/registry.h"

namespace millrace {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

enum class Length : std::uint8_t { quick, takes_long };

struct Case {
  std::string recipe, preset;
  std::function<void(const std::filesystem::path& data)> make_data;
  Length length = Length::quick;
  Json cut = Json::object();  // what the preset would have otherwise

  [[nodiscard]] std::string name() const { return recipe + "_" + preset; }
  friend void PrintTo(const Case& one, std::ostream* stream) { *stream << one.name(); }
};

auto text(std::int64_t letters) {
  return [letters](const std::filesystem::path& data) {
    recipes::language_model::write_sample_text({.training_letters = letters, .validation_letters = letters / 4}, data, 0);
  };
}
auto volumes(std::int64_t side, std::int64_t patch) {
  return [side, patch](const std::filesystem::path& data) {
    recipes::autoencoder_3d::write_sample_volumes({.side = side, .train = 2, .validation = 2, .patch = patch}, data, 0);
  };
}
auto sky(const recipes::cosmology::SkySize& size) {
  return [size](const std::filesystem::path& data) { recipes::cosmology::write_sample_sky(size, data, 0); };
}
auto images(std::int64_t size) {
  return [size](const std::filesystem::path& data) {
    recipes::image_pairs::write_sample_images({.size = size, .images = 70}, data, 0);
  };
}
auto sessions(const recipes::neural_response::SampleSessions& size) {
  return [size](const std::filesystem::path& data) { recipes::neural_response::write_sample_sessions(size, data, 0); };
}

std::vector<Case> all_cases() {
  const Json few = {{"recipe.per_class", 64}, {"recipe.val_samples", 32}};
  const Json one_block = {{"recipe.per_class", 64},
                          {"recipe.val_samples", 2},
                          {"data.batch_size", 2},
                          {"recipe.decoder_layers", 1},
                          {"recipe.vision_layers", 2}};
  const auto large_sessions = sessions({.sessions = 2, .units = 110, .bins = 3000, .side = 51, .lags = 25});
  const auto small_sessions = sessions({.sessions = 2, .units = 32, .bins = 6000, .side = 31, .lags = 25});
  const auto smoke_sessions = sessions({.sessions = 2, .bins = 6000});
  constexpr Length kLong = Length::takes_long;
  return {
      {"language_model", "smoke", text(20'000)},
      {"language_model", "smoke_order2", text(20'000)},
      {"language_model", "small", text(20'000)},
      {"language_model", "nano", text(20'000)},
      {"language_model", "test", text(20'000)},
      {"language_model", "small_model", text(40'000), Length::quick, {{"data.batch_size", 2}}},
      {"language_model", "full", text(120'000), kLong, {{"data.batch_size", 2}}},
      {"language_model", "large_model", text(40'000), kLong, {{"data.batch_size", 2}}},
      {"language_model", "bigwill", text(40'000), kLong, {{"data.batch_size", 2}}},
      {"cosmology", "smoke", sky({8, 32, 64, 3, 10})},
      {"cosmology", "small", sky({16, 64, 256, 6, 4})},
      {"cosmology", "full", sky({48, 128, 1024, 10, 3}), kLong, {{"data.batch_size", 1}, {"recipe.pca_num_samples", 2}}},
      {"autoencoder_3d", "smoke", volumes(24, 16)},
      {"autoencoder_3d", "small", volumes(48, 32)},
      {"autoencoder_3d", "stable", volumes(96, 64)},
      {"autoencoder_3d", "32g", volumes(64, 64), kLong},
      {"autoencoder_3d", "multigpu", volumes(64, 64), kLong},
      {"autoencoder_3d", "optimized", volumes(64, 64), kLong},
      {"autoencoder_3d", "full", volumes(64, 64), kLong},
      {"neural_response", "smoke", smoke_sessions},
      {"neural_response", "smoke_pc", smoke_sessions},
      {"neural_response", "small", small_sessions},
      {"neural_response", "small_pc", small_sessions},
      {"neural_response", "full", large_sessions, kLong, {{"data.batch_size", 16}}},
      {"neural_response", "full_pc", large_sessions, kLong, {{"data.batch_size", 16}}},
      {"image_pairs", "smoke", images(32), Length::quick, few},
      {"image_pairs", "small", images(64), Length::quick, few},
      {"image_pairs", "full", images(336), kLong, one_block},
      {"image_pairs", "original", images(336), kLong, one_block},
  };
}

std::vector<Case> cases() {
  const char* const wish = std::getenv("MILLRACE_PRESETS");
  const Length length = wish != nullptr && std::string_view(wish) == "long" ? Length::takes_long : Length::quick;
  std::vector<Case> chosen;
  std::ranges::copy_if(all_cases(), std::back_inserter(chosen), [&](const Case& one) { return one.length == length; });
  return chosen;
}

TEST(Presets, EachIsInTheTable) {
  std::set<std::string> there, rehearsed;
  for (const Entry& entry : recipes::all())
    for (const auto& [preset, values] : entry.presets) there.insert(entry.name + "_" + preset);
  for (const Case& one : all_cases()) rehearsed.insert(one.name());
  EXPECT_EQ(rehearsed, there);
}

class PresetTest : public testing::TestWithParam<Case> {
 protected:
  PresetTest() { std::filesystem::create_directories(data_); }
  ~PresetTest() override { std::filesystem::remove_all(folder_); }

  // What `train RECIPE --preset PRESET --data DATA --rehearse` shows.
  std::string rehearse() {
    const Entry& entry = *std::ranges::find(recipes::all(), GetParam().recipe, &Entry::name);
    const config::Schema schema = schema_of(entry);
    const auto aliases = aliases_of(entry);
    config::Layers layers(schema, aliases);
    layers.add_values(entry.defaults, "recipe");
    layers.add_values(
        std::ranges::find(entry.presets, GetParam().preset, [](const auto& preset) { return preset.first; })->second, "preset");
    layers.add_values({{"data.dir", data_.string()}}, "test");
    layers.add_values(GetParam().cut, "test");
    const std::filesystem::path shown = folder_ / "shown";
    const int file = ::open(shown.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    finally(
        [&] {
          telemetry::Console console(telemetry::Console::Mode::plain, file);
          RunRequest request;
          request.entry = &entry;
          request.config = layers.resolve();
          request.preset = GetParam().preset;
          request.console = &console;
          request.dry_run = DryRun::rehearsal;
          (void)run_training(request);
        },
        [&] { ::close(file); });
    std::ifstream stream(shown);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  std::filesystem::path folder_ = std::filesystem::current_path() / ("preset_" + std::to_string(::getpid()));
  std::filesystem::path data_ = folder_ / "data";
};

TEST_P(PresetTest, IsRehearsedWithItsPrediction) {
  GetParam().make_data(data_);
  const std::string shown = rehearse();
  // Its batches hold frames as the network takes them, and the units of a session each, not the bytes and all units of predict().
  const bool has_input = GetParam().recipe != "neural_response";
  EXPECT_THAT(shown, AllOf(HasSubstr("\n  training    "), HasSubstr("\n  validation  "), HasSubstr("\n  predict     ")));
  EXPECT_THAT(shown, Not(HasSubstr("no batch")));
  EXPECT_EQ(shown.find("predict     not tried") == std::string::npos, has_input) << shown;
}

INSTANTIATE_TEST_SUITE_P(Of, PresetTest, testing::ValuesIn(cases()), [](const auto& param) { return param.param.name(); });

}  // namespace
}  // namespace millrace
