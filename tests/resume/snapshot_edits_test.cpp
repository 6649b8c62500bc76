// Snapshots with edited content and right checksums, resumed and loaded for use: each edit either works or is refused with an
// error for people. MILLRACE_SNAPSHOT_EDITS is the number of edits per recipe (default 200 of some 2,000; a larger number: all).
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <set>

#include "millrace/base/error.h"
#include "millrace/base/hash.h"
#include "millrace/snapshot/detail/manifest.h"
#include "recipes/cosmology/recipe.h"
#include "recipes/neural_response/recipe.h"
#include "small_runs.h"

namespace millrace {
namespace {

namespace stdfs = std::filesystem;
using Pointer = Json::json_pointer;

constexpr std::int64_t kSaved = 2;

using Hdf5File = std::shared_ptr<const hdf5::File>;

std::vector<Hdf5File> open_once(std::span<const stdfs::path> paths) {
  static std::map<stdfs::path, Hdf5File> opened;
  std::vector<stdfs::path> missing;
  for (const stdfs::path& path : paths) {
    if (!opened.contains(path)) missing.push_back(path);
  }
  if (!missing.empty()) {
    const auto files = hdf5::File::open_all(missing);
    for (std::size_t i = 0; i < files.size(); ++i) opened[missing[i]] = files[i];
  }
  std::vector<Hdf5File> files;
  for (const stdfs::path& path : paths) files.push_back(opened.at(path));
  return files;
}

// As shipped, but HDF5 files are opened once for all runs.
Entry quick_entry(const std::string& recipe) {
  Entry entry = small_runs::entry_of(recipe);
  if (recipe == "neural_response") {
    entry.make = [](const Json& config, const Context& context) -> std::unique_ptr<Recipe> {
      const auto sections = config::read<recipes::neural_response::Sections>(config);
      return std::make_unique<recipes::neural_response::NeuralResponse>(sections, context,
                                                                        recipes::neural_response::OpenOptions{open_once});
    };
  }
  if (recipe != "cosmology") return entry;
  entry.make = [](const Json& config, const Context& context) -> std::unique_ptr<Recipe> {
    const auto open = [](std::span<const stdfs::path> paths, const hdf5::File::OnFailure&) { return open_once(paths); };
    const auto sections = config::read<recipes::cosmology::Sections>(config);
    return std::make_unique<recipes::cosmology::Cosmology>(sections, context, open);
  };
  return entry;
}

Json config_of(const std::string& recipe, std::int64_t steps) {
  Json config = small_runs::small_config(recipe);
  config.update({{"data.dir", small_runs::data_of(recipe).string()},
                 {"data.workers", 0},
                 {"device.threads", 1},
                 {"train.epochs", 0},
                 {"train.max_steps", steps},
                 {"train.validate_every", 2},
                 {"train.validate_batches", 1},
                 {"optim.schedule", "plateau"},
                 {"optim.ema_decay", 0.9},
                 {"optim.spike_zscore", 6},
                 {"snapshot.every_steps", 2},
                 {"snapshot.every_epochs", 0},
                 {"log.tensorboard", false},
                 {"log.images", false}});
  if (recipe != "language_model") config["device.layout"] = "contiguous";
  return config;
}

// What stands in a place of wrong things.
std::vector<Json> wrong_values() {
  Json deep = Json::array();
  for (int level = 0; level < 80; ++level) deep = Json::array({deep});
  return {nullptr,
          true,
          -1,
          0,
          7,
          std::numeric_limits<std::int64_t>::max(),
          std::numeric_limits<std::int64_t>::min(),
          std::numeric_limits<std::uint64_t>::max(),
          0.5,
          1e308,
          -1e308,
          "",
          "../../elsewhere/x",
          std::string(20000, 'x'),
          Json::array(),
          Json::object(),
          Json::array({1, 2, 3, 4, 5, 6, 7}),
          {{"a/b", {{"~", {{"", nullptr}}}}}},
          {{"$number", "nan"}},
          {{"$number", "-inf"}},
          std::move(deep)};
}

struct Edit {
  std::string what;
  std::function<void(Json&)> make;
};

void places_of(const Json& json, const Pointer& at, std::vector<Pointer>& places) {
  places.push_back(at);
  if (!json.is_structured()) return;
  for (const auto& [key, value] : json.items()) places_of(value, json.is_array() ? at / std::stoul(key) : at / key, places);
}

// Of the config only a few: no part of a run reads it but for comparing.
std::vector<Pointer> places_to_edit(const Json& state) {
  std::vector<Pointer> all;
  places_of(state, Pointer(), all);
  std::vector<Pointer> places;
  std::size_t of_config = 0;
  for (const Pointer& place : all) {
    if (place.to_string().starts_with("/config/") && of_config++ % 25 != 0) continue;
    places.push_back(place);
  }
  return places;
}

std::string name_of(const Json& value) { return value.dump().substr(0, 40); }

std::vector<Edit> edits_of(const Json& state) {
  std::vector<Edit> edits;
  const std::vector<Pointer> places = places_to_edit(state);
  for (const Pointer& place : places) {
    for (const Json& value : wrong_values()) {
      edits.push_back({place.to_string() + " = " + name_of(value), [place, value](Json& json) { json[place] = value; }});
    }
    if (place.empty()) continue;
    const Pointer parent = place.parent_pointer();
    edits.push_back({place.to_string() + " removed", [place, parent](Json& json) {
                       Json& from = json[parent];
                       from.is_array() ? from.erase(std::stoul(place.back())) : (void)from.erase(place.back());
                     }});
    if (!state.at(place).is_structured()) continue;
    edits.push_back({place.to_string() + " with more in it", [place](Json& json) {
                       Json& here = json[place];
                       here.is_array() ? here.push_back(5) : (void)(here["more/of it"] = {{"sum", "x"}, {"list", {1}}});
                     }});
  }
  Philox random(make_key(31));
  for (int i = 0; i < 200; ++i) {  // neither within the other
    const Pointer& a = places[random.below(places.size())];
    const Pointer& b = places[random.below(places.size())];
    const std::string x = a.to_string() + "/";
    const std::string y = b.to_string() + "/";
    if (x.starts_with(y) || y.starts_with(x)) continue;
    edits.push_back({a.to_string() + " and " + b.to_string() + " swapped", [a, b](Json& json) { std::swap(json[a], json[b]); }});
  }
  return edits;
}

// Of runs that say again and again which snapshot they pass over.
class Quiet {
 public:
  Quiet() : before_(::dup(2)) {
    const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    ::dup2(nowhere, 2);
    ::close(nowhere);
  }
  ~Quiet() {
    ::dup2(before_, 2);
    ::close(before_);
  }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;

 private:
  int before_;
};

// A tensor as it may not be; undefined = gone.
std::vector<std::pair<std::string, at::Tensor>> wrong_tensors(const at::Tensor& tensor) {
  const bool is_real = tensor.is_floating_point();
  return {{"gone", at::Tensor()},
          {"longer", at::cat({tensor.flatten(), tensor.flatten()})},
          {"a number", at::ones({}, tensor.options())},
          {"empty", at::empty({0}, tensor.options())},
          {"of another type", tensor.to(is_real ? at::kLong : at::kFloat)},
          {"of bytes", tensor.to(at::kByte)},
          {"all ones", at::ones_like(tensor)},
          {"not finite", is_real ? at::full_like(tensor, std::nan("")) : at::full_like(tensor, 255)}};
}

class SnapshotEdits : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    entry_ = quick_entry(GetParam());
    (void)toys::run(entry_, folder_.path() / "whole", config_of(GetParam(), kSaved));
    state_ = Json::parse(Fs::real().read_file(snapshot_of("whole") / "state.json"));
    manifest_ = snapshot::detail::parse_manifest(Fs::real().read_file(snapshot_of("whole") / "manifest.json")).manifest;
  }
  stdfs::path snapshot_of(const char* run) const { return folder_.path() / run / "snapshots" / "step-00000002"; }

  void write_edited(const Json& state) {
    const stdfs::path edited = folder_.path() / "edited";
    stdfs::remove_all(edited);
    stdfs::copy(folder_.path() / "whole", edited, stdfs::copy_options::recursive);
    const std::string text = state.dump();
    auto& record = manifest_.files.at("state.json");
    record.bytes = text.size();
    record.crc32c = crc32c(std::as_bytes(std::span(text)));
    std::ofstream(snapshot_of("edited") / "state.json") << text;
    std::ofstream(snapshot_of("edited") / "manifest.json") << snapshot::detail::to_text(manifest_);
  }

  // "" when it worked, else the kind of the error. Anything but an error for people fails the test.
  std::string outcome(const std::string& what, const std::function<void()>& work) {
    try {
      work();
      return "";
    } catch (const Error& error) {
      EXPECT_NE(error.kind(), "InternalError") << what << ": " << error.what();
      EXPECT_FALSE(error.message().what.empty() || error.message().next.empty()) << what << ": " << error.what();
      EXPECT_LT(std::string_view(error.what()).size(), 30000U) << what << ": no more than the value once";
      return std::string(error.kind());
    } catch (const std::exception& error) {
      ADD_FAILURE() << what << ": " << error.what();
      return "exception";
    }
  }
  void resume() { (void)toys::run(entry_, folder_.path() / "edited", config_of(GetParam(), kSaved + 1)); }
  void load() {
    telemetry::Console console(telemetry::Console::Mode::quiet);
    (void)load_for_inference(entry_, folder_.path() / "edited", nullptr, Json::object(), console);
  }

  toys::TemporaryFolder folder_;
  Entry entry_;
  Json state_;
  snapshot::detail::Manifest manifest_;
};

TEST_P(SnapshotEdits, WorkOrAreRefusedInWords) {
  write_edited(state_);
  ASSERT_EQ(outcome("unedited", [&] { resume(); }), "");
  ASSERT_EQ(outcome("unedited", [&] { load(); }), "");
  const char* const wish = std::getenv("MILLRACE_SNAPSHOT_EDITS");
  const int wanted = wish == nullptr ? 200 : std::atoi(wish);
  std::vector<Edit> edits = edits_of(state_);
  Philox random(make_key(37));
  int made = 0;
  std::map<std::string, int> resumed, loaded;
  const Quiet quiet;
  for (; made < wanted && !edits.empty(); edits.pop_back()) {
    std::swap(edits.back(), edits[random.below(edits.size())]);
    const Edit& edit = edits.back();
    Json state = state_;
    edit.make(state);
    if (state == state_) continue;
    write_edited(state);
    ++loaded[outcome("used after " + edit.what, [&] { load(); })];
    ++resumed[outcome("resumed after " + edit.what, [&] { resume(); })];
    ++made;
  }
  EXPECT_TRUE(made == wanted || (edits.empty() && made > 1000)) << made;
  EXPECT_GT(resumed["SnapshotError"], made / 4);
  for (const auto& [kind, count] : resumed) std::printf("resumed: %5d %s\n", count, kind.empty() ? "worked" : kind.c_str());
  for (const auto& [kind, count] : loaded) std::printf("used:    %5d %s\n", count, kind.empty() ? "worked" : kind.c_str());
}

TEST_P(SnapshotEdits, TensorsOfAnotherHandToo) {
  struct Change {
    std::string group, name;
    std::size_t kind;
  };
  const snapshot::Content whole = snapshot::load(Fs::real(), snapshot_of("whole"));
  const auto tensors_in = [](auto& content, const std::string& group) -> auto& {
    return group == "model" ? content.models.begin()->second : content.parts.at(group).tensors;
  };
  std::vector<Change> changes;
  for (const char* group : {"model", "optimizer", "average", "recipe"}) {
    if (group != std::string("model") && !whole.parts.contains(group)) continue;  // a recipe without a state
    for (const auto& [name, tensor] : tensors_in(whole, group)) {
      for (std::size_t kind = 0; kind < wrong_tensors(tensor).size(); ++kind) changes.push_back({group, name, kind});
    }
  }
  Philox random(make_key(41));
  const Quiet quiet;
  // All of the small groups, some of the large ones.
  std::erase_if(changes, [&](const Change& change) {
    const bool is_large = change.group == "model" || change.group == "average" || change.name.find('.') != std::string::npos;
    return is_large && change.group != "recipe" && random.below(30) != 0;
  });
  int refused = 0;
  for (const Change& change : changes) {
    snapshot::Content content = whole;
    Tensors& tensors = tensors_in(content, change.group);
    auto [how, tensor] = wrong_tensors(tensors.at(change.name)).at(change.kind);
    tensors.erase(change.name);
    if (tensor.defined()) tensors[change.name] = tensor;
    stdfs::remove_all(folder_.path() / "edited");
    stdfs::copy(folder_.path() / "whole", folder_.path() / "edited", stdfs::copy_options::recursive);
    (void)snapshot::save(Fs::real(), folder_.path() / "edited", content);
    const std::string what = change.group + " " + change.name + " " + how;
    (void)outcome("used after " + what, [&] { load(); });
    refused += outcome("resumed after " + what, [&] { resume(); }).empty() ? 0 : 1;
  }
  EXPECT_GT(refused, 30);
  std::printf("%d of %zu refused\n", refused, changes.size());
}

INSTANTIATE_TEST_SUITE_P(Recipes, SnapshotEdits,
                         testing::Values("language_model", "cosmology", "neural_response", "autoencoder_3d", "image_pairs"),
                         [](const auto& param_info) { return param_info.param; });

}  // namespace
}  // namespace millrace
