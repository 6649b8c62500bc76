// Every row of the switchboard, on and off where it has an effect: results are equal as the row declares, and a witness shows
// that another path was taken. A row without an occasion, or one that the code ignores, fails here.
#include <c10/core/Allocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "../cli/process.h"
#include "../support/own_folder.h"
#include "millrace/base/error.h"
#include "millrace/cli/main.h"
#include "millrace/device/tensor_memory.h"
#include "millrace/hdf5/file.h"
#include "millrace/telemetry/spans.h"
#include "millrace/train/run/run.h"
#include "recipes/autoencoder_3d/make_data.h"
#include "recipes/cosmology/make_data.h"
#include "recipes/image_pairs/make_data.h"
#include "recipes/neural_response/make_data.h"
#include "recipes/registry.h"

namespace millrace {
namespace {

namespace stdfs = std::filesystem;
using Words = std::vector<std::string>;

const std::string kMapped = "large blocks are mapped: ";  // what main() says as a child process

const Entry& recipe(std::string_view name) {
  const auto all = recipes::all();
  const auto found = std::ranges::find(all, name, &Entry::name);
  if (found == all.end()) throw std::runtime_error("no recipe " + std::string(name));
  return *found;
}

std::vector<std::string> row_names() {
  std::vector<std::string> names;
  for (const SwitchRow& row : switch_rows()) names.emplace_back(row.name);
  return names;
}

// What the recipes learn from, made once.
struct Inputs {
  Inputs() {
    std::string letters;
    for (int i = 0; i < 40'000; ++i) letters += static_cast<char>('a' + (i * i / 7 + i / 11) % 9);
    test::write_text(text, letters);
    stdfs::create_directories(sky);
    recipes::cosmology::write_sample_sky({8, 32, 64, 3, 12}, sky, 0);
    stdfs::create_directories(sessions);
    recipes::neural_response::write_sample_sessions({.sessions = 2, .units = 4, .bins = 2400, .side = 21, .lags = 12}, sessions,
                                                    0);
    stdfs::create_directories(volumes);
    recipes::autoencoder_3d::write_sample_volumes({.side = 20, .train = 8, .validation = 2, .patch = 16}, volumes, 0);
    stdfs::create_directories(pairs);
    recipes::image_pairs::write_sample_images({.size = 32, .images = 70}, pairs, 0);
    for (const auto& file : stdfs::recursive_directory_iterator(sky)) {  // an index holds what has long been there
      if (file.is_regular_file()) stdfs::last_write_time(file, stdfs::file_time_type::clock::now() - std::chrono::hours(1));
    }
  }
  test::Scratch scratch;
  stdfs::path text = scratch.path() / "text.txt";
  stdfs::path sky = scratch.path() / "sky";
  stdfs::path sessions = scratch.path() / "sessions";
  stdfs::path volumes = scratch.path() / "volumes";
  stdfs::path pairs = scratch.path() / "pairs";
};

const Inputs& inputs() {
  static const Inputs made;
  return made;
}

// What a run was like.
struct Trained {
  Json summary;
  std::int64_t counted = 0;         // by the row's counter
  std::string mapped;               // of a child process: whether its allocator maps large blocks, see main()
  std::uint64_t described = 0;      // HDF5 files that were looked into
  std::uint64_t read_directly = 0;  // blocks of them
  stdfs::path run, cache;

  [[nodiscard]] Json state() const { return summary.at("state_sha256"); }
};

bool has_files(const stdfs::path& folder) { return stdfs::exists(folder) && !stdfs::is_empty(folder); }

// The quickest recipe that reaches the row.
std::string recipe_of(const SwitchRow& row) {
  for (const char* name : {"language_model", "cosmology", "neural_response", "autoencoder_3d", "image_pairs"}) {
    if (reaches(recipe(name), row)) return name;
  }
  return "";
}

class Switch : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    row_ = *std::ranges::find(switch_rows(), GetParam(), &SwitchRow::name);
    recipe_ = recipe_of(row_);
  }

  Words words(const stdfs::path& run, bool on) const {
    Words all = {"--run.dir=" + run.string(),  "--train.max_steps=6",    "--train.epochs=0",           "--train.validate_every=6",
                 "--train.validate_batches=2", "--precision.dtype=fp32", "--device.layout=contiguous", "--snapshot.every_steps=0",
                 "--device.threads=1",         "--log.tensorboard=false"};
    if (recipe_ == "language_model") {
      all.push_back("--recipe.sources=" + inputs().text.string());
    } else {
      const std::map<std::string, stdfs::path> folders = {{"cosmology", inputs().sky},
                                                          {"autoencoder_3d", inputs().volumes},
                                                          {"neural_response", inputs().sessions},
                                                          {"image_pairs", inputs().pairs}};
      all.push_back("--data.dir=" + folders.at(recipe_).string());
    }
    if (recipe_ == "neural_response") all.push_back("--data.batch_size=12");
    // Adam moves a bias before a batch norm, whose gradient is rounding alone, by a whole step either way.
    if (recipe_ == "cosmology" && row_.equality == Equality::tolerance) all.emplace_back("--optim.name=sgd");
    if (recipe_ == "image_pairs") {
      for (const char* word : {"--recipe.per_class=40", "--recipe.val_samples=16", "--data.batch_size=8"}) all.emplace_back(word);
    }
    if (recipe_ == "autoencoder_3d") all.push_back("--recipe.adv_start_epoch=-1");
    // No trial; our convolution would take the occasion of fused_padding.
    if (recipe_ == "cosmology" && row_.name != "tried_convolutions") all.emplace_back("--device.kernels=library");
    for (const auto& [key, value] : row_.occasion.config) {
      if (!key.empty()) all.push_back("--" + std::string(key) + "=" + std::string(value));
    }
    std::string off = rehearses() ? "" : "rehearsal";
    if (!on) off += (off.empty() ? "" : ",") + std::string(row_.name);
    if (!off.empty()) all.push_back("--train.off=" + off);
    return all;
  }

  // The rehearsal takes longer than the few steps. It stays on for rows whose occasion may be in it, or in what it has read.
  [[nodiscard]] bool rehearses() const {
    constexpr std::array<std::string_view, 7> kRows = {"rehearsal",         "kept_trials", "memory_recovery", "feature_cache",
                                                       "loader_adaptation", "look_ahead",  "sample_cache"};
    return std::ranges::find(kRows, std::string_view(row_.name)) != kRows.end();
  }

  // A run of its own; `cache`: in a cache folder that is there already. `more` words stand last.
  Trained train(bool on, const Words& more = {}, const stdfs::path& cache = {}) {
    const std::string number = std::to_string(++runs_);
    Trained result{.run = scratch_.path() / ("run" + number),
                   .cache = cache.empty() ? scratch_.path() / ("cache" + number) : cache};
    Words all = words(result.run, on);
    all.insert(all.end(), more.begin(), more.end());
    if (row_.per_process) {
      in_child(all, result);
    } else {
      in_this_process(all, result);
    }
    return result;
  }

  void in_this_process(const Words& all, Trained& result) const {
    const Entry& entry = recipe(recipe_);
    const config::Schema schema = schema_of(entry);
    config::Layers layers(schema);
    layers.add_values(entry.defaults, "recipe");
    layers.add_values(std::ranges::find(entry.presets, "smoke", [](const auto& preset) { return preset.first; })->second,
                      "smoke");
    (void)layers.add_flags(all);
    telemetry::Console console(telemetry::Console::Mode::quiet);
    RunRequest request{.entry = &entry, .config = layers.resolve(), .preset = "smoke", .console = &console};
    ::setenv("XDG_CACHE_HOME", result.cache.c_str(), 1);
    const telemetry::Counter counter(row_.name);
    result.counted = -counter.total();
    result.described = -hdf5::files_described();
    result.read_directly = -hdf5::blocks_read_directly();
    result.summary = run_training(request).summary;
    result.counted += counter.total();
    result.described += hdf5::files_described();
    result.read_directly += hdf5::blocks_read_directly();
  }

  void in_child(Words all, Trained& result) const {
    all.insert(all.begin(), {"/proc/self/exe", "train", recipe_, "--preset=smoke", "--json"});
    const test::Result run = test::run(all, {.environment = {{"XDG_CACHE_HOME", result.cache.string()}}});
    ASSERT_EQ(run.exit_code, 0) << run.err;
    result.mapped = run.err.substr(std::min(run.err.find(kMapped), run.err.size()));
    result.summary = Json::parse(run.out);
  }

  void expect_equal(const Trained& on, const Trained& off) const {
    const auto loss_of = [](const Trained& run, const std::string& where) {
      return run.summary.at(Json::json_pointer(where)).get<double>();
    };
    if (row_.equality == Equality::bits) {
      EXPECT_EQ(on.state(), off.state());
      EXPECT_EQ(on.summary.at("metrics").at(judged()).at("last"), off.summary.at("metrics").at(judged()).at("last"));
    } else if (row_.equality == Equality::tolerance) {
      for (const std::string& where : {std::string("/loss/first"), std::string("/loss/last"), "/metrics/" + judged() + "/last"})
        EXPECT_NEAR(loss_of(on, where) / loss_of(off, where), 1.0, row_.tolerance) << where;
    } else {
      statistically_equal(on, off);
    }
  }

  // The loss of a validation.
  [[nodiscard]] std::string judged() const { return recipe_ == "autoencoder_3d" ? "val_autoencoder" : "val_loss"; }

  // Both clean a sky about as well: uncleaned it correlates with nothing.
  static void statistically_equal(const Trained& on, const Trained& off) {
    const auto metric = [](const Trained& run, const char* name) {
      return run.summary.at("metrics").at(name).at("last").get<double>();
    };
    EXPECT_NEAR(metric(on, "pca_corr"), metric(off, "pca_corr"), 0.2);
    EXPECT_NEAR(metric(on, "val_loss"), metric(off, "val_loss"), 0.5) << "a logarithm";
  }

  // Why the row has nothing to do on this machine; "" = it has.
  [[nodiscard]] std::string hindrance() const {
    if (row_.name == "offload" || row_.name == "batch_ahead" || row_.name == "step_graph")
      return "the run is on a CPU, where tensors are in host memory already";
    return "";
  }

  void expect_another_path(const Trained& on, const Trained& off);
  void recovers();

  SwitchRow row_{};
  std::string recipe_;
  test::Scratch scratch_;
  int runs_ = 0;
};

void Switch::expect_another_path(const Trained& on, const Trained& off) {
  const std::string_view name = row_.name;
  if (name == "autocast") {
    EXPECT_NE(on.state(), off.state()) << "seven bits fewer";
  } else if (name == "keep_memory") {
    EXPECT_EQ(on.mapped, kMapped + "no\n");
    EXPECT_EQ(off.mapped, kMapped + "yes\n");
  } else if (name == "token_cache") {
    EXPECT_TRUE(has_files(on.cache / "millrace" / "tokens"));
    EXPECT_FALSE(stdfs::exists(off.cache / "millrace" / "tokens"));
  } else if (name == "file_index") {
    EXPECT_TRUE(has_files(on.cache / "millrace" / "files"));
    EXPECT_FALSE(stdfs::exists(off.cache / "millrace" / "files"));
    EXPECT_EQ(train(true, {}, on.cache).described, 0U);
    EXPECT_EQ(train(false, {}, on.cache).described, off.described);
    EXPECT_GT(off.described, 0U);
  } else if (name == "hdf5_direct") {
    EXPECT_GT(on.read_directly, 0U);
    EXPECT_EQ(off.read_directly, 0U);
  } else if (name == "stored_pca") {
    const auto fitted = [](const Trained& run) {
      return std::ranges::any_of(stdfs::directory_iterator(run.run),
                                 [](const auto& file) { return file.path().filename().string().starts_with("pca_components"); });
    };
    EXPECT_TRUE(fitted(on));
    EXPECT_FALSE(fitted(off));
    EXPECT_NE(on.state(), off.state());
  } else if (name == "loader_threads") {
    EXPECT_GT(on.summary.at("loader").at("readers"), 0);
    EXPECT_EQ(off.summary.at("loader").at("readers"), 0);
  } else if (name == "sample_cache") {
    EXPECT_GT(on.summary.at("cache").at("hits"), 0);
    EXPECT_FALSE(off.summary.contains("cache"));
  } else {
    EXPECT_GT(on.counted, 0) << "its path is not taken";
    EXPECT_EQ(off.counted, 0) << "its path is taken though it is off";
  }
}

// The plain path is an error: equal is what a run is that had memory enough.
void Switch::recovers() {
  const Trained free = train(true);
  const Trained recomputed = train(true, {"--memory.recompute=all"});
  const auto peak = [](const Trained& run) { return run.summary.at("memory").at("step_peak_bytes").get<std::uint64_t>(); };
  ASSERT_LT(peak(recomputed), peak(free));
  const std::uint64_t limit = (peak(recomputed) + peak(free)) / 2;
  const Trained on = train(true, {"--memory.limit=" + std::to_string(limit)});
  EXPECT_EQ(on.state(), free.state());
  EXPECT_NE(on.summary.at("memory").at("recompute"), free.summary.at("memory").at("recompute")) << "it had no need to recover";
  device::limit_tensor_memory(limit);  // with the row off a run sets none
  EXPECT_THROW((void)train(false), c10::OutOfMemoryError);
  device::limit_tensor_memory(0);
}

TEST_P(Switch, OffEqualsOnByAnotherPath) {
  if (const std::string reason = hindrance(); !reason.empty()) GTEST_SKIP() << row_.name << ": " << reason;
  if (row_.name == "memory_recovery") return recovers();
  const Trained on = train(true);
  const Trained off = train(false);
  if (HasFatalFailure()) return;
  expect_equal(on, off);
  expect_another_path(on, off);
}

INSTANTIATE_TEST_SUITE_P(Rows, Switch, testing::ValuesIn(row_names()), [](const auto& row) { return row.param; });

TEST(Occasions, RecipesNameRowsThatThereAre) {
  for (const Entry& entry : recipes::all()) {
    EXPECT_FALSE(entry.switches.empty()) << entry.name;
    for (const std::string& name : entry.switches) {
      const auto row = std::ranges::find(switch_rows(), name, &SwitchRow::name);
      ASSERT_NE(row, switch_rows().end()) << entry.name << " " << name;
      EXPECT_TRUE(row->occasion.named) << entry.name << " " << name;
    }
    for (const Advice& advice : entry.guide.advice) {
      for (const std::string& name : advice.rows)
        EXPECT_NE(std::ranges::find(switch_rows(), name, &SwitchRow::name), switch_rows().end()) << entry.name << " " << name;
    }
  }
}

TEST(Occasions, ARecipeThatNamesNoRowMayReachEveryRow) {
  for (const SwitchRow& row : switch_rows()) {
    EXPECT_TRUE(reaches(Entry{}, row)) << row.name;
    const bool is_named =
        std::ranges::any_of(recipes::all(), [&](const Entry& entry) { return std::ranges::count(entry.switches, row.name) > 0; });
    EXPECT_EQ(is_named, row.occasion.named) << row.name;
  }
}

}  // namespace
}  // namespace millrace

// As a child process of a test it is the program, and says at its end how memory is allocated there.
int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "train") {
    const int code = millrace::cli_main(argc, argv, millrace::recipes::all());
    const std::size_t before = ::mallinfo2().hblks;
    void* const block = std::malloc(std::size_t{1} << 28U);  // NOLINT: more than any threshold that malloc chooses by itself
    *static_cast<volatile char*>(block) = 1;                 // or the compiler leaves it out
    std::cerr << millrace::kMapped << (::mallinfo2().hblks > before ? "yes" : "no") << "\n";
    std::free(block);  // NOLINT
    return code;
  }
  testing::InitGoogleMock(&argc, argv);
  return millrace::test::run_all_tests();
}
