#include "recipes/autoencoder_3d/entry_parts.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <string>
#include <string_view>

#include "millrace/base/format.h"

namespace millrace::recipes::autoencoder_3d {
namespace {

constexpr std::array<std::string_view, 3> kSecondStage = {"diffusion_def", "diffusion_train", "NoiseScheduler"};
// A file with any of these keys is a file of 3d_ldm.
constexpr std::array<std::string_view, 10> kOriginal = {
    "autoencoder_def", "autoencoder_train", "spatial_dims", "data_base_dir", "model_dir",
    "output_dir",      "tfevent_path",      "resume_ckpt",  "npz_dir_train", "npz_dir"};
// Keys that 3d_ldm's files have only so that other keys can refer to them.
constexpr std::array<std::string_view, 3> kVariables = {"spatial_dims", "image_channels", "latent_channels"};
// Top-level keys that have a meaning of their own. All other top-level keys exist only so that references can name them.
constexpr std::array<std::string_view, 13> kOwn = {
    "data_base_dir", "model_dir",    "output_dir", "tfevent_path", "resume_ckpt",     "npz_dir_train",    "npz_dir_val",
    "npz_dir",       "val_fraction", "seed",       "spacing",      "autoencoder_def", "autoencoder_train"};

template <class Names>
bool is_one_of(const Names& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

constexpr int kMostReferences = 8;  // the longest chain of references

bool is_original(const Json& tree) {
  const auto has = [&](std::string_view key) { return tree.contains(std::string(key)); };
  return std::ranges::any_of(kOriginal, has) || std::ranges::any_of(kSecondStage, has);
}

std::string text_of(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

// Returns the key to which a text refers by "@key" or "$@key"; "" if the text is not a reference.
std::string referred_to(std::string_view text) {
  if (text.starts_with('$')) text.remove_prefix(1);
  if (text.size() < 2 || text[0] != '@') return "";
  const std::string_view key = text.substr(1);
  const auto is_word = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
  return std::ranges::all_of(key, is_word) ? std::string(key) : "";
}

class References {
 public:
  References(const Json& tree, config::Layers::Foreign& file) : tree_(tree), file_(file) {}

  // Replaces the references in `value`. If a reference names a missing key, reports the reference and returns false.
  bool replace(Json& value, const std::string& path) {
    for (int i = 0; value.is_string(); ++i) {
      const std::string text = value.get<std::string>();
      if (!text.starts_with('$') && !text.starts_with('@')) return true;
      const std::string key = referred_to(text);
      if (key.empty() && text.starts_with('@')) {
        return refuse(path, text, "refers to no top-level key of the file", "write the value, or \"@key\" of a top-level key");
      }
      if (key.empty()) {
        return refuse(path, text, "is code, which a config can't contain", "write the value that it would give");
      }
      const Json* target = find(key);
      if (target == nullptr || i == kMostReferences) {
        return refuse(path, text, target == nullptr ? "refers to a key that is in no file" : "refers to itself",
                      "add " + quoted(key) + " at the top level of the file, or write the value here");
      }
      taken_.insert(key);
      value = Json(*target);
    }
    if (value.is_array()) return std::ranges::all_of(value, [&](Json& each) { return replace(each, path); });
    if (value.is_object()) replace_in(value, path + ".", [](const std::string&) { return true; });
    return true;
  }
  // Replaces the references in the values of those keys of `object` for which wanted() is true. If a reference can't be
  // replaced, its key is removed.
  template <class Wanted>
  void replace_in(Json& object, const std::string& prefix, const Wanted& wanted) {
    for (auto item = object.begin(); item != object.end();) {
      const bool stays = !wanted(item.key()) || replace(item.value(), prefix + item.key());
      item = stays ? std::next(item) : object.erase(item);
    }
  }
  [[nodiscard]] bool has_taken(const std::string& key) const { return taken_.contains(key); }

 private:
  const Json* find(const std::string& key) const {
    for (const Json* tree : {&tree_, &file_.earlier}) {
      if (const auto found = tree->find(key); found != tree->end()) return &*found;
    }
    return nullptr;
  }
  bool refuse(const std::string& path, const std::string& text, const std::string& what, const std::string& next) {
    file_.problems.push_back({path + " is " + quoted(text) + ", which " + what, path, next});
    return false;
  }
  const Json& tree_;
  config::Layers::Foreign& file_;
  std::set<std::string> taken_;
};

struct Network {
  Json& keys;
  std::vector<Problem>& problems;

  // Removes a key and returns its value; null if the key is missing.
  Json take(const std::string& key) const {
    const auto found = keys.find(key);
    if (found == keys.end()) return {};
    Json value = std::move(*found);
    keys.erase(found);
    return value;
  }
  void refuse(const std::string& key, const std::string& what, const std::string& next) const {
    problems.push_back({"autoencoder_def." + key + " is " + what, "autoencoder_def." + key, next});
  }
  // Refuses all values except `value`, because other values mean another network.
  void only(const std::string& key, const Json& value) const {
    const Json given = take(key);
    if (given.is_null() || given == value || given == Json(value.dump())) return;
    refuse(key, text_of(given) + ", which is another network", "set it to " + value.dump());
  }
  void otherwise(const std::string& key, const Json& value) const {
    if (!keys.contains(key)) keys[key] = value;
  }
};

void read_network(Json& keys, std::vector<Problem>& problems) {
  const Network network{keys, problems};
  const std::string target = text_of(network.take("_target_"));
  const std::size_t dot = target.rfind('.');
  if (target != "null" && target.substr(dot == std::string::npos ? 0 : dot + 1) != "AutoencoderKL") {
    network.refuse("_target_", target + ", which Millrace does not have",
                   "give an AutoencoderKL, the only network of this recipe");
  }
  network.only("spatial_dims", 3);
  const Json in = keys.value("in_channels", Json());
  const Json out = network.take("out_channels");
  if (!in.is_null() && !out.is_null() && in != out)
    network.refuse("out_channels", out.dump() + ", but in_channels is " + in.dump(), "write the same number for both");
  network.only("use_convtranspose", false);
  network.only("use_combined_linear", false);
  network.only("include_fc", true);
  if (const auto blocks = keys.find("num_res_blocks"); blocks != keys.end() && blocks->is_array() && !blocks->empty()) {
    if (std::ranges::any_of(*blocks, [&](const Json& each) { return each != blocks->front(); })) {
      network.refuse("num_res_blocks", blocks->dump() + ": it differs between the levels", "use the same number for all levels");
    }
    const Json first = blocks->front();
    *blocks = first;
  }
  // MONAI's defaults, for files that omit these keys
  network.otherwise("latent_channels", 3);
  network.otherwise("norm_num_groups", 32);
  network.otherwise("norm_eps", 1e-6);
  network.otherwise("with_encoder_nonlocal_attn", true);
  network.otherwise("with_decoder_nonlocal_attn", true);
}

// Adds Millrace's keys that follow from the training section, except those that aliases() converts.
void read_training(Json& keys, Json& tree, std::vector<std::string>& notices) {
  if (!keys.contains("lr_scheduler")) {
    keys["lr_scheduler"] = nullptr;
    notices.push_back(
        "autoencoder_train has no lr_scheduler, so the learning rate stays constant, as in the original; the recipe's own "
        "default is warmup_cosine");
  }
  if (keys["lr_scheduler"] != Json("warmup_cosine")) tree["optim.warmup_steps"] = 0;
  if (const auto every = keys.find("val_interval"); every != keys.end()) tree["snapshot.every_epochs"] = *every;
}

}  // namespace

Json keys_of_original_file(const Json& tree, config::Layers::Foreign& file) {
  if (!tree.is_object() || !is_original(tree)) return tree;
  Json keys = tree;
  for (const std::string_view section : kSecondStage) {
    if (keys.erase(std::string(section)) > 0)
      file.notices.push_back(std::string(section) + ": it belongs to stage 2, which this recipe does not have");
  }
  if (keys.erase("channel") > 0) file.notices.push_back("channel: neither Millrace nor the original reads it");
  References references(tree, file);
  references.replace_in(keys, "", [](const std::string& key) { return is_one_of(kOwn, key); });
  for (const auto& item : tree.items()) {
    const bool is_taken = references.has_taken(item.key()) && !is_one_of(kOwn, item.key());
    if (is_taken || is_one_of(kVariables, item.key())) keys.erase(item.key());
  }
  if (const auto found = keys.find("autoencoder_def"); found != keys.end() && found->is_object())
    read_network(*found, file.problems);
  if (const auto found = keys.find("autoencoder_train"); found != keys.end() && found->is_object()) {
    Json more = Json::object();
    read_training(*found, more, file.notices);
    keys.update(more);
  }
  if (const auto found = keys.find("resume_ckpt"); found != keys.end() && text_of(*found) == "true") {
    file.notices.push_back("resume_ckpt: --run names the run folder to resume; recipe.pretrained takes weights that MONAI saved");
  }
  return keys;
}

}  // namespace millrace::recipes::autoencoder_3d
