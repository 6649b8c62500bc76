#include "recipes/image_pairs/originals/adapters.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/json.h"
#include "millrace/config/schema_of.h"
#include "millrace/core/scalar_type.h"
#include "millrace/format/safetensors.h"
#include "millrace/snapshot/tensor_file.h"
#include "recipes/common/weights.h"
#include "recipes/image_pairs/originals/names.h"
#include "recipes/image_pairs/vision.h"

namespace millrace::recipes::image_pairs {
namespace {

namespace stdfs = std::filesystem;

constexpr const char* kAdapterFile = "adapter_model.safetensors";
constexpr const char* kAdapterConfig = "adapter_config.json";
constexpr const char* kWholeFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr std::string_view kPeft = "base_model.model.";
constexpr std::string_view kProjectorModule = "multi_modal_projector";

std::string words_of(const std::vector<std::string>& words, std::string_view between) {
  return joined(words, between, [](const std::string& word) { return word; });
}

// Runs `write`. If it fails, throws an error about the user's folder.
template <class Write>
void written(const stdfs::path& folder, const Write& write) {
  try {
    write();
  } catch (const FsError& error) {
    throw SnapshotError({"can't write " + error.path().string(), error.what(), remedy_for(error.error_number())});
  } catch (const DataError& error) {
    throw SnapshotError({error.message().what, folder.string(), error.message().next});
  }
}

// A pattern for the names of all modules with an adapter. A list of the last parts of the names would be ambiguous, because
// modules of tower and decoder have the same last parts.
std::string target_pattern(const RecipeConfig& config) {
  const std::string decoder = "language_model.*\\.(" + words_of(config.lora_targets, "|") + ")";
  return config.lora_vision ? ".*(" + decoder + "|vision_tower.*\\.(q_proj|k_proj|v_proj))" : ".*" + decoder;
}

Json peft_config(const RecipeConfig& config) {
  return {{"peft_type", "LORA"},
          {"task_type", nullptr},
          {"base_model_name_or_path", config.base_weights.empty() ? Json(nullptr) : Json(config.base_weights.front())},
          {"inference_mode", true},
          {"r", config.lora_r},
          {"lora_alpha", config.lora_alpha},
          {"lora_dropout", config.lora_dropout},
          {"target_modules", target_pattern(config)},
          {"modules_to_save", {kProjectorModule}},
          {"bias", "none"},
          {"fan_in_fan_out", false},
          {"init_lora_weights", true},
          {"use_rslora", false},
          {"use_dora", false}};
}

bool belongs_to_adapter(std::string_view name) { return part_of(name) == Part::lora || part_of(name) == Part::projector; }

void erase_part(std::string& text, std::string_view part) {
  if (const auto at = text.find(part); at != std::string::npos) text.erase(at, part.size());
}

// Returns the model's name for a tensor of PEFT's file. Names in the file may contain "default", the name of a set of adapters.
std::string name_in_model(std::string name) {
  if (name.starts_with(kPeft)) name.erase(0, kPeft.size());
  erase_part(name, ".modules_to_save.default");
  for (const std::string matrix : {".lora_A", ".lora_B"}) {
    if (name.ends_with(matrix + ".default.weight")) erase_part(name, ".default");
  }
  return published_name(name);
}

Json read_config(const stdfs::path& file) {
  Json config;
  try {
    config = Json::parse(Fs::real().read_file(file), nullptr, false);
  } catch (const FsError& error) {
    throw SnapshotError(
        {"can't read the adapter's " + std::string(kAdapterConfig), error.what(), remedy_for(error.error_number())});
  }
  if (config.is_object() && config.value("peft_type", Json()) == "LORA") return config;
  throw SnapshotError(
      {"the file describes no adapters of low rank (LoRA)", file.string(), "give a folder that PEFT saved with peft_type LORA"});
}

// Throws if the adapters are of a kind that this model can't compute.
void refuse_other_kinds(const Json& config, const stdfs::path& file) {
  for (const char* flag : {"use_rslora", "use_dora", "fan_in_fan_out", "lora_bias", "use_qalora", "use_bdlora"}) {
    if (config.value(flag, Json()) == true)
      throw SnapshotError({"the adapters were made with " + std::string(flag) + ", which Millrace does not support",
                           file.string(), "train adapters without it"});
  }
  for (const char* pattern : {"rank_pattern", "alpha_pattern"}) {
    if (config.contains(pattern) && !config[pattern].empty())
      throw SnapshotError(
          {std::string(pattern) +
               " gives adapters different ranks or scales, but in Millrace all adapters have the same rank and scale",
           file.string(), "train adapters of one rank and one lora_alpha"});
  }
}

void check_config(const Json& theirs, const RecipeConfig& ours, const stdfs::path& file) {
  refuse_other_kinds(theirs, file);
  const auto compare = [&](const char* key, double value) {
    const Json other = theirs.value(key, Json());
    if (!other.is_number() || other.get<double>() != value)
      throw SnapshotError(
          {"the adapters have " + std::string(key) + " " + other.dump() + ", but the model has " + Json(value).dump(),
           file.string(), "set recipe.lora_" + std::string(*key == 'r' ? "r" : "alpha") + "=" + other.dump()});
  };
  compare("r", static_cast<double>(ours.lora_r));
  compare("lora_alpha", ours.lora_alpha);
}

// The projection to which a matrix of an adapter belongs, such as "….q_proj".
std::string projection_of(const std::string& name) { return name.substr(0, name.find(".lora_")); }

// The weights of the model with the adapters merged in.
class Merged {
 public:
  Merged(const PairModel& model, const RecipeConfig& config)
      : parameters_(model.named_parameters()),
        scale_(config.lora_r > 0 ? config.lora_alpha / static_cast<double>(config.lora_r) : 0) {
    for (const auto& item : parameters_) {
      if (part_of(item.key()) != Part::lora) names_.push_back(item.key());
    }
  }
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }
  [[nodiscard]] const at::Tensor& kept(const std::string& name) const { return *parameters_.find(name); }
  // The merged weight of this name, in host memory.
  [[nodiscard]] at::Tensor value(const std::string& name) const {
    const at::NoGradGuard no_grad;
    const at::Tensor& weight = kept(name);
    const std::string projection = name.substr(0, name.rfind('.'));
    const at::Tensor* a = parameters_.find(projection + ".lora_A.weight");
    const at::Tensor* b = parameters_.find(projection + ".lora_B.weight");
    // host: the weight is written to a file
    if (a == nullptr || b == nullptr || !name.ends_with(".weight")) return weight.detach().cpu().contiguous();
    return weight.detach().to(at::kFloat).addmm(*b, *a, 1, scale_).to(weight.scalar_type()).cpu().contiguous();
  }

 private:
  torch::OrderedDict<std::string, at::Tensor> parameters_;
  std::vector<std::string> names_;
  double scale_;
};

std::string shard_name(std::size_t index, std::size_t count) {
  const auto five = [](std::size_t number) {
    const std::string digits = std::to_string(number);
    return std::string(5 - std::min<std::size_t>(5, digits.size()), '0') + digits;
  };
  return "model-" + five(index + 1) + "-of-" + five(count) + ".safetensors";
}

std::vector<std::vector<std::string>> shards_of(const Merged& merged, std::uint64_t most_bytes) {
  std::vector<std::vector<std::string>> shards(1);
  std::uint64_t bytes = 0;
  for (const std::string& name : merged.names()) {
    const std::uint64_t more = merged.kept(name).nbytes();
    if (!shards.back().empty() && bytes + more > most_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back(name);
    bytes += more;
  }
  return shards;
}

void write_shard(Fs& fs, const stdfs::path& path, const Merged& merged, const std::vector<std::string>& names) {
  std::vector<Field> fields;
  for (const std::string& name : names) {
    const at::Tensor& kept = merged.kept(name);
    fields.push_back({name, dtype_of(kept.scalar_type()).value(), Shape(kept.sizes().begin(), kept.sizes().end())});
  }
  at::Tensor current;
  const format::TensorBytes bytes_of = [&](std::size_t i) {
    current = merged.value(names[i]);
    return std::as_bytes(std::span(static_cast<const char*>(current.const_data_ptr()), current.nbytes()));
  };
  write_atomically(fs, path, [&](WritableFile& file) {
    (void)format::write_safetensors(file, fields, bytes_of, {{"format", "pt"}});
  });
}

// The config with which the Python package transformers builds the same network.
Json transformers_config(const RecipeConfig& config, at::ScalarType type) {
  const Json vision = {{"model_type", "clip_vision_model"},
                       {"hidden_size", config.vision_width},
                       {"intermediate_size", config.vision_hidden},
                       {"num_hidden_layers", built_vision_blocks(config)},
                       {"num_attention_heads", config.vision_heads},
                       {"image_size", config.image_size},
                       {"patch_size", config.patch_size},
                       {"hidden_act", config::write(activation_of(config))},
                       {"layer_norm_eps", 1e-5}};
  const Json text = {{"model_type", "llama"},
                     {"vocab_size", config.vocab_size},
                     {"hidden_size", config.decoder_width},
                     {"intermediate_size", config.decoder_hidden},
                     {"num_hidden_layers", config.decoder_layers},
                     {"num_attention_heads", config.decoder_heads},
                     {"num_key_value_heads", config.decoder_heads},
                     {"rms_norm_eps", 1e-5},
                     {"rope_theta", config.rope_base},
                     {"max_position_embeddings", std::max<std::int64_t>(config.max_seq_len, 4096)},
                     {"tie_word_embeddings", false}};
  const char* word = type == at::kBFloat16 ? "bfloat16" : type == at::kHalf ? "float16" : "float32";
  return {{"architectures", {"LlavaForConditionalGeneration"}},
          {"model_type", "llava"},
          {"image_token_index", config.image_token_id},
          {"projector_hidden_act", "gelu_pytorch_tanh"},
          {"vision_feature_layer", -1},
          {"vision_feature_select_strategy", "default"},
          {"tie_word_embeddings", false},
          {"torch_dtype", word},
          {"vision_config", vision},
          {"text_config", text}};
}

}  // namespace

std::string write_adapter(Fs& fs, const PairModel& model, const RecipeConfig& config, const stdfs::path& folder) {
  Tensors tensors;
  bool adapted = false;
  for (const auto& item : model.named_parameters()) {
    if (!belongs_to_adapter(item.key())) continue;
    adapted = adapted || part_of(item.key()) == Part::lora;
    tensors[std::string(kPeft) + module_name(item.key())] = item.value().detach();
  }
  if (!adapted)
    throw SnapshotError({"the model has no adapters", "recipe.lora_r, recipe.lora_targets", "write whole weights: --merge"});
  written(folder, [&] {
    fs.create_directories(folder);
    snapshot::write_tensors(fs, folder / kAdapterFile, tensors, {{"format", "pt"}});
    write_atomically(fs, folder / kAdapterConfig, peft_config(config).dump(2) + "\n");
  });
  return "adapter: " + std::to_string(tensors.size()) + " weights in " + folder.string() + " (" + kAdapterFile + ", " +
         kAdapterConfig + ")";
}

std::string read_adapter(PairModel& model, const stdfs::path& from) {
  const at::NoGradGuard no_grad;
  const bool is_folder = stdfs::is_directory(from);
  const stdfs::path file = is_folder ? from / kAdapterFile : from;
  if (!stdfs::exists(file))
    throw SnapshotError({"there is no " + file.filename().string(), file.parent_path().string(),
                         "give a folder that PEFT saved in safetensors format, or one .safetensors file"});
  if (is_folder) check_config(read_config(from / kAdapterConfig), model.config(), from / kAdapterConfig);
  Tensors stored;
  for (auto& [theirs, value] : snapshot::read_tensors(file)) {
    const std::string name = name_in_model(theirs);
    const auto block = vision_block_of(name);
    if (!block || *block < built_vision_blocks(model.config())) stored[name] = value;
  }
  const bool projector = std::ranges::any_of(stored, [](const auto& item) { return part_of(item.first) == Part::projector; });
  std::map<std::string, at::Tensor> wanted;
  for (auto& item : model.named_parameters()) {
    if (part_of(item.key()) == Part::lora || (projector && part_of(item.key()) == Part::projector))
      wanted[item.key()] = item.value();
  }
  for (const auto& [name, value] : stored) {
    const auto it = wanted.find(name);
    if (it == wanted.end())
      throw SnapshotError(
          {"the file has " + quoted(name) + " of shape " + shape_text(value) + ", but the model has nothing of that name",
           file.string(), "add " + quoted(projection_of(name)) + " to recipe.lora_targets"});
    if (it->second.sizes() != value.sizes())
      throw SnapshotError({"the adapter's " + quoted(name) + " has shape " + shape_text(value) + ", but the model expects " +
                               shape_text(it->second),
                           file.string(), "set recipe.lora_r and the sizes in section recipe to those of the adapter"});
  }
  for (const auto& [name, value] : wanted) {
    if (!stored.contains(name))
      throw SnapshotError({"the file has no " + quoted(name) + ", but the model expects it with shape " + shape_text(value),
                           file.string(), "set recipe.lora_targets and recipe.lora_vision to those of the adapter"});
  }
  for (auto& [name, value] : wanted) value.copy_(stored.at(name));
  return "adapter: " + std::to_string(wanted.size()) + " weights from " + file.string() +
         (projector ? "" : "; the file has no projector, so the model's projector keeps its weights");
}

std::string merge_adapters(Fs& fs, const PairModel& model, const RecipeConfig& config, const stdfs::path& folder,
                           std::uint64_t shard_bytes) {
  const Merged merged(model, config);
  const std::vector<std::vector<std::string>> shards = shards_of(merged, shard_bytes);
  Json weight_map = Json::object();
  std::uint64_t bytes = 0;
  written(folder, [&] {
    fs.create_directories(folder);
    for (const std::string& name : fs.list(folder)) {
      if (name.starts_with("model") && (name.ends_with(".safetensors") || name.ends_with(".json")))
        throw SnapshotError({"the folder has weights already: " + quoted(name), folder.string(), "name an empty folder"});
    }
    if (fs.exists(folder / "config.json"))  // throws, because the folder belongs to a run or has other weights
      throw SnapshotError({"the folder has a config.json already", folder.string(), "name an empty folder"});
    for (std::size_t i = 0; i < shards.size(); ++i) {
      const std::string file = shards.size() == 1 ? kWholeFile : shard_name(i, shards.size());
      write_shard(fs, folder / file, merged, shards[i]);
      for (const std::string& name : shards[i]) {
        weight_map[name] = file;
        bytes += merged.kept(name).nbytes();
      }
    }
    if (shards.size() > 1) {
      const Json index = {{"metadata", {{"total_size", bytes}}}, {"weight_map", weight_map}};
      write_atomically(fs, folder / kIndexFile, index.dump(2) + "\n");
    }
    const at::ScalarType type = merged.kept("language_model.lm_head.weight").scalar_type();
    write_atomically(fs, folder / "config.json", transformers_config(model.config(), type).dump(2) + "\n");
  });
  return "merged: " + std::to_string(merged.names().size()) + " weights, " + human_bytes(static_cast<double>(bytes)) + ", in " +
         std::to_string(shards.size()) + (shards.size() == 1 ? " file" : " files") + " of " + folder.string();
}

}  // namespace millrace::recipes::image_pairs
