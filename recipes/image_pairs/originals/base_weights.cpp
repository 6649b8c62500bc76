#include "recipes/image_pairs/originals/base_weights.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/input_file.h"
#include "millrace/base/json.h"
#include "millrace/config/schema_of.h"
#include "millrace/core/scalar_type.h"
#include "millrace/format/safetensors.h"
#include "recipes/common/weights.h"
#include "recipes/image_pairs/originals/names.h"
#include "recipes/image_pairs/vision.h"

namespace millrace::recipes::image_pairs {
namespace {

namespace stdfs = std::filesystem;

constexpr const char* kConfig = "config.json";
constexpr std::uint64_t kMostIndexBytes = 64 << 20;
constexpr std::string_view kVisionEnd = "vision_tower.vision_model.post_layernorm.";
constexpr std::string_view kAnotherModel = "set the sizes in section recipe to those of the model that has these weights";

// file -> names of its weights, from an index
using Listed = std::map<std::string, std::set<std::string>>;

struct File {
  format::SafetensorsFile stored;
  std::set<std::string> expected;  // names in the file according to the index; empty: there is no index
};

struct Place {
  const format::SafetensorsFile* file;
  const format::StoredTensor* tensor;
};

SnapshotError refused(std::string what, const stdfs::path& where, std::string_view next) {
  return SnapshotError({std::move(what), where.string(), std::string(next)});
}

// Reads a JSON file. If the text is not JSON, is_discarded() of the result is true.
Json read_json(const stdfs::path& path) {
  const InputFile file(path);
  if (file.size() > kMostIndexBytes)
    throw refused("a file of " + human_bytes(static_cast<double>(file.size())) + " is not a description of weights", path,
                  "give the folder that the weights were saved in");
  std::vector<std::byte> buffer;
  const auto bytes = file.read_all(buffer);
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  return Json::parse(text, text + bytes.size(), nullptr, false);
}

Activation activation_named(const Json& word, const stdfs::path& path) {
  const auto known = config::detail::Codec<Activation>::type().words;
  const std::string text = word.is_string() ? word.get<std::string>() : word.dump();
  if (std::ranges::find(known, text) != known.end()) return config::detail::Codec<Activation>::read(word);
  throw refused("the tower's activation is " + quoted(text) + ", but the model supports " + joined(known, ", "), path,
                "set recipe.vision_activation to the right one, or use the weights of another tower");
}

Listed read_index(const stdfs::path& path) {
  const Json index = read_json(path);
  Listed files;
  if (index.is_object() && index.contains("weight_map") && index["weight_map"].is_object()) {
    for (const auto& [name, value] : index["weight_map"].items()) {
      if (!value.is_string()) break;
      const auto shard = value.get<std::string>();
      if (shard.empty() || stdfs::path(shard).filename() != stdfs::path(shard))
        throw refused("the index has weight " + quoted(name) + " in " + quoted(shard) + ", which is not a file next to it", path,
                      "put the files next to their index, as they were published");
      files[shard].insert(name);
    }
  }
  if (files.empty())
    throw refused("the index has no object \"weight_map\" of weights and their files", path,
                  "download the index again, or name the files of weights themselves");
  return files;
}

void open_file(std::vector<File>& files, const stdfs::path& path, std::set<std::string> expected) {
  for (const File& known : files) {
    std::error_code none;
    if (stdfs::equivalent(known.stored.path(), path, none))
      throw refused("the file is given twice", path, "name each file of recipe.base_weights once");
  }
  files.push_back({format::SafetensorsFile(path), std::move(expected)});
}

void open_folder(std::vector<File>& files, const stdfs::path& folder) {
  const stdfs::path index = folder / "model.safetensors.index.json", whole = folder / "model.safetensors";
  std::error_code none;
  if (stdfs::exists(index, none)) {
    for (auto& [shard, names] : read_index(index)) {
      if (!stdfs::exists(folder / shard, none))
        throw refused("the index names the file " + quoted(shard) + " with " + std::to_string(names.size()) +
                          " weights, but the file does not exist",
                      index, "download that file too, and put it next to the index");
      open_file(files, folder / shard, std::move(names));
    }
  } else if (stdfs::exists(whole, none)) {
    open_file(files, whole, {});
  } else {
    throw refused("the folder has neither model.safetensors.index.json nor model.safetensors", folder,
                  "save the weights as safetensors, or name the files themselves");
  }
}

std::vector<File> open_files(const std::vector<std::string>& paths) {
  std::vector<File> files;
  for (const std::string& given : paths) {
    std::error_code none;
    if (!stdfs::exists(given, none)) throw refused("there are no weights of that name", given, "check recipe.base_weights");
    stdfs::is_directory(given, none) ? open_folder(files, given) : open_file(files, given, {});
  }
  return files;
}

class Loading {
 public:
  Loading(PairModel& model, const RecipeConfig& config) : config_(config), files_(open_files(config.base_weights)) {
    for (auto& item : model.named_parameters()) {
      if (part_of(item.key()) != Part::lora) wanted_.emplace(item.key(), item.value());
    }
    for (const File& file : files_) sort(file);
  }

  // Compares all weights before any value of the model changes.
  void check() {
    std::size_t of_projector = 0;
    for (const auto& [name, value] : wanted_) of_projector += part_of(name) == Part::projector && places_.contains(name) ? 1 : 0;
    projector_ = of_projector > 0;
    for (const auto& [name, value] : wanted_) {
      const auto it = places_.find(name);
      if (it != places_.end()) {
        check_one(name, value, it->second);
      } else if (part_of(name) != Part::projector || projector_) {
        throw refused("the weights have no " + quoted(name) + ", but the model expects it with shape " + shape_text(value),
                      given(), kAnotherModel);
      }
    }
  }

  void read() {
    const at::NoGradGuard no_grad;
    // Reads the weights in the order of files and offsets, because reading a file from beginning to end is fastest on a disk.
    std::map<std::pair<const format::SafetensorsFile*, std::uint64_t>, const std::string*> in_order;
    for (const auto& [name, place] : places_) in_order.emplace(std::pair(place.file, place.tensor->offset), &name);
    for (const auto& [where, name] : in_order) read_one(places_.at(*name), wanted_.at(*name));
  }

  [[nodiscard]] std::string summary() const {
    double bytes = 0;
    for (const auto& [name, place] : places_) bytes += static_cast<double>(place.tensor->bytes);
    std::string text = "base: " + std::to_string(places_.size()) + " weights, " + human_bytes(bytes) + ", from " + given();
    if (files_.size() > 1) text += " (" + std::to_string(files_.size()) + " files)";
    if (!left_out_.empty()) text += "; not used: " + joined(left_out_, ", ", [](const std::string& what) { return what; });
    return text + (projector_ ? "" : "; the projector gets new random weights");
  }

 private:
  [[nodiscard]] std::string given() const {
    return joined(config_.base_weights, ", ", [](const std::string& path) { return path; });
  }

  void sort(const File& file) {
    for (const format::StoredTensor& tensor : file.stored.tensors()) refuse_few_bits({&file.stored, &tensor});
    for (const std::string& name : file.expected) {
      if (file.stored.find(name) == nullptr)
        throw refused("the index says that this file has " + quoted(name) + ", but the file does not", file.stored.path(),
                      "download index and files again: they have different versions");
    }
    for (const format::StoredTensor& tensor : file.stored.tensors()) {
      const std::string name = published_name(tensor.name);
      if (is_of_no_use(name)) continue;
      if (const auto block = vision_block_of(name);
          block && *block >= built_vision_blocks(config_) && *block < config_.vision_layers) {
        left_out_.insert("vision block " + std::to_string(*block));
      } else if (name.starts_with(kVisionEnd)) {
        left_out_.insert("the tower's last norm");
      } else {
        add(name, {&file.stored, &tensor});
      }
    }
  }

  void add(const std::string& name, const Place& place) {
    const stdfs::path& path = place.file->path();
    if (!wanted_.contains(name))
      throw refused("the weights have " + quoted(place.tensor->name) + " of shape " + to_text(place.tensor->shape) +
                        ", but the model has nothing of that name",
                    path, kAnotherModel);
    const auto [it, is_new] = places_.emplace(name, place);
    if (!is_new)
      throw refused("the weight " + quoted(name) + " is in this file and in " + it->second.file->path().string(), path,
                    "name files of one model in recipe.base_weights");
  }

  void refuse_few_bits(const Place& place) const {
    if (place.tensor->dtype != DType::u8 && place.tensor->dtype != DType::i8) return;
    const Counts counts = parameter_counts(config_);
    throw refused("the weight " + quoted(place.tensor->name) + " is stored in 4 or 8 bits, but the model takes 16 or 32 bits",
                  place.file->path(),
                  "give the weights as they were before quantisation; as bf16, tower and decoder take " +
                      human_bytes(2 * (counts.vision + counts.decoder)));
  }

  static void check_one(const std::string& name, const at::Tensor& value, const Place& place) {
    const Shape expected(value.sizes().begin(), value.sizes().end());
    if (place.tensor->shape != expected)
      throw refused("the weight " + quoted(name) + " has shape " + to_text(place.tensor->shape) + ", but the model expects " +
                        to_text(expected),
                    place.file->path(), kAnotherModel);
    if (!at::isFloatingType(scalar_type_of(place.tensor->dtype)))
      throw refused("the weight " + quoted(name) + " is of type " + std::string(name_of(place.tensor->dtype)) +
                        ", but the model expects floating-point numbers",
                    place.file->path(), "save it as bf16, f16 or f32");
  }

  static std::span<std::byte> bytes_of(const at::Tensor& tensor) {
    return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
  }

  static void read_one(const Place& place, at::Tensor& value) {
    const at::ScalarType type = scalar_type_of(place.tensor->dtype);
    if (value.scalar_type() == type && value.is_cpu() && value.is_contiguous()) {
      place.file->read(*place.tensor, bytes_of(value));
      return;
    }
    const auto size = static_cast<std::int64_t>(size_of(place.tensor->dtype));
    const at::Tensor flat = value.view({-1});
    const at::Tensor buffer = at::empty({std::min(flat.numel(), kLoadingBytes / size)}, type);
    for (std::int64_t done = 0; done < flat.numel(); done += buffer.numel()) {
      const std::int64_t count = std::min(buffer.numel(), flat.numel() - done);
      format::StoredTensor part = *place.tensor;
      part.offset += static_cast<std::uint64_t>(done * size);
      part.bytes = static_cast<std::uint64_t>(count * size);
      const at::Tensor numbers = buffer.narrow(0, 0, count);
      place.file->read(part, bytes_of(numbers));
      flat.narrow(0, done, count).copy_(numbers);
    }
  }

  const RecipeConfig& config_;
  std::vector<File> files_;
  std::map<std::string, at::Tensor> wanted_;
  std::map<std::string, Place> places_;  // where each weight is, by the model's names
  std::set<std::string> left_out_;
  bool projector_ = false;
};

}  // namespace

std::optional<Activation> activation_of_base(const RecipeConfig& config) {
  for (const std::string& given : config.base_weights) {
    std::error_code none;
    const stdfs::path path = (stdfs::is_directory(given, none) ? stdfs::path(given) : stdfs::path(given).parent_path()) / kConfig;
    if (!stdfs::is_regular_file(path, none)) continue;
    const Json of_base = read_json(path);
    if (!of_base.is_object())
      throw refused("the file is not a JSON object", path,
                    "download it again, or set recipe.vision_activation and remove the file");
    const bool is_tower_alone = of_base.value("model_type", Json()) == "clip_vision_model";
    const Json tower = is_tower_alone ? of_base : of_base.value("vision_config", Json::object());
    if (tower.is_object() && tower.contains("hidden_act")) return activation_named(tower["hidden_act"], path);
  }
  return std::nullopt;
}

std::string load_base(PairModel& model, const RecipeConfig& config) {
  Loading loading(model, config);
  loading.check();
  loading.read();
  return loading.summary();
}

}  // namespace millrace::recipes::image_pairs
