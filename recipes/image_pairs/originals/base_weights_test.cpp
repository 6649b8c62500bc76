#include "recipes/image_pairs/originals/base_weights.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "millrace/base/json.h"
#include "millrace/core/scalar_type.h"
#include "millrace/device/tensor_memory.h"
#include "millrace/format/safetensors.h"
#include "millrace/snapshot/snapshot.h"
#include "recipes/image_pairs/originals/adapters.h"
#include "recipes/image_pairs/originals/names.h"
#include "tests/support/refusal.h"

namespace millrace::recipes::image_pairs {
namespace {

namespace stdfs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

RecipeConfig tiny_base() {
  RecipeConfig config;
  config.image_size = 16;
  config.patch_size = 8;
  config.vision_width = 8;
  config.vision_layers = 3;
  config.vision_heads = 2;
  config.vision_hidden = 16;
  config.decoder_width = 16;
  config.decoder_layers = 2;
  config.decoder_heads = 2;
  config.decoder_hidden = 24;
  config.vocab_size = 262;
  config.lora_r = 2;
  config.lora_alpha = 8;
  config.question = "?";
  return config;
}

Tensors weights_of(const PairModel& model) {
  Tensors tensors;
  for (const auto& item : model.named_parameters()) {
    if (part_of(item.key()) != Part::lora) tensors[item.key()] = item.value().detach();
  }
  return tensors;
}

bool same_base(const PairModel& a, const PairModel& b) {
  const auto theirs = weights_of(b);
  for (const auto& [name, value] : weights_of(a)) {
    if (!at::equal(value, theirs.at(name))) return false;
  }
  return true;
}

class BaseWeights : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = stdfs::path(testing::TempDir()) / ("base_weights_" + std::to_string(::getpid()));
    stdfs::remove_all(folder_);
    stdfs::create_directories(folder_);
  }
  void TearDown() override { stdfs::remove_all(folder_); }

  stdfs::path write(const std::string& name, const Tensors& tensors) const {
    snapshot::write_tensors(Fs::real(), folder_ / name, tensors);
    return folder_ / name;
  }
  void write_text(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name) << text; }

  // Writes two shards of weights, and their index.
  void write_shards(const Tensors& tensors) const {
    Tensors halves[2];
    Json map = Json::object();
    for (const auto& [name, value] : tensors) {
      const std::size_t half = map.size() % 2;
      halves[half][name] = value;
      map[name] = "model-0000" + std::to_string(half + 1) + "-of-00002.safetensors";
    }
    for (const std::size_t half : {0U, 1U})
      write("model-0000" + std::to_string(half + 1) + "-of-00002.safetensors", halves[half]);
    write_text("model.safetensors.index.json", Json{{"weight_map", map}}.dump());
  }

  // A model that takes its base from `paths`.
  static std::unique_ptr<PairModel> model_of(RecipeConfig config, const std::vector<std::string>& paths,
                                             at::ScalarType type = at::kFloat) {
    config.base_weights = paths;
    return std::make_unique<PairModel>(config, 99, true, nn::Fused{}, at::kCPU, type);
  }
  [[nodiscard]] std::string refused(const RecipeConfig& config, std::vector<std::string> paths = {}) const {
    if (paths.empty()) paths = {folder_.string()};
    const auto model = model_of(config, paths);
    const Message message = refusal_message<SnapshotError>([&] { (void)load_base(*model, model->config()); });
    EXPECT_FALSE(message.where.empty() || message.next.empty()) << to_text("SnapshotError", message);
    return to_text("SnapshotError", message);
  }

  stdfs::path folder_;
};

TEST_F(BaseWeights, ComeFromAFileAFolderAndShards) {
  const PairModel source(tiny_base(), 1);
  const stdfs::path file = write("weights.safetensors", weights_of(source));
  for (const char* kind : {"file", "folder", "shards"}) {
    if (kind == std::string("folder")) stdfs::rename(file, folder_ / "model.safetensors");
    if (kind == std::string("shards")) write_shards(weights_of(source));  // shards need an index
    const auto model = model_of(tiny_base(), {kind == std::string("file") ? file.string() : folder_.string()});
    const std::string told = load_base(*model, model->config());
    EXPECT_TRUE(same_base(source, *model)) << kind;
    EXPECT_THAT(told, AllOf(HasSubstr("base: "), Not(HasSubstr("anew"))));
    EXPECT_EQ(told.find("2 files") != std::string::npos, kind == std::string("shards")) << told;
  }
}

TEST_F(BaseWeights, AreTakenUnderLaterNamesAndFromTowersAlone) {
  const PairModel source(tiny_base(), 1);
  Tensors later, tower, decoder;
  for (const auto& [name, value] : weights_of(source)) {
    later[module_name(name)] = value;
    EXPECT_EQ(published_name(module_name(name)), name);
    EXPECT_EQ(published_name(name), name);
    if (part_of(name) == Part::vision) tower[name.substr(std::string("vision_tower.").size())] = value;
    if (part_of(name) == Part::decoder) decoder[name.substr(std::string("language_model.").size())] = value;
  }
  tower["text_model.encoder.layers.0.mlp.fc1.bias"] = tower["logit_scale"] = at::ones({1});
  tower["vision_model.embeddings.position_ids"] = at::zeros({1, 5}, at::kLong);
  decoder["model.layers.0.self_attn.rotary_emb.inv_freq"] = at::ones({4});
  const auto model = model_of(tiny_base(), {write("later.safetensors", later).string()});
  (void)load_base(*model, model->config());
  EXPECT_TRUE(same_base(source, *model));

  const auto both =
      model_of(tiny_base(), {write("clip.safetensors", tower).string(), write("llama.safetensors", decoder).string()});
  const Tensors before = weights_of(*both);
  const at::Tensor projector = before.at("multi_modal_projector.linear_1.weight").clone();
  EXPECT_THAT(load_base(*both, both->config()), HasSubstr("the projector gets new random weights"));
  EXPECT_TRUE(at::equal(weights_of(*both).at("multi_modal_projector.linear_1.weight"), projector));
  EXPECT_TRUE(
      at::equal(weights_of(*both).at("language_model.lm_head.weight"), weights_of(source).at("language_model.lm_head.weight")));
}

TEST_F(BaseWeights, TheTowersActivationIsWhatTheirConfigNames) {
  RecipeConfig config = tiny_base();
  EXPECT_EQ(activation_of_base(config), std::nullopt);
  config.base_weights = {write("model.safetensors", weights_of(PairModel(tiny_base(), 1))).string()};
  EXPECT_EQ(activation_of_base(config), std::nullopt);
  for (const char* text : {R"({"vision_config": {"hidden_act": "gelu"}, "text_config": {"hidden_act": "silu"}})",
                           R"({"model_type": "clip_vision_model", "hidden_act": "gelu"})"}) {
    write_text("config.json", text);
    EXPECT_EQ(activation_of_base(config), Activation::gelu) << text;
  }
  config.base_weights = {folder_.string()};
  EXPECT_EQ(activation_of_base(config), Activation::gelu);
  for (const char* text : {R"({"vision_config": {"hidden_size": 8}})", R"({"model_type": "llama", "hidden_act": "silu"})"}) {
    write_text("config.json", text);
    EXPECT_EQ(activation_of_base(config), std::nullopt) << text;
  }
  const auto refusal_of = [&](const std::string& text) {
    write_text("config.json", text);
    return refusal<SnapshotError>([&] { (void)activation_of_base(config); });
  };
  EXPECT_THAT(refusal_of(R"({"vision_config": {"hidden_act": "relu"}})"),
              AllOf(HasSubstr("the tower's activation is \"relu\", but the model supports quick_gelu, gelu, gelu_pytorch_tanh"),
                    HasSubstr("config.json"), HasSubstr("recipe.vision_activation")));
  EXPECT_THAT(refusal_of(R"({"vision_config": {"hidden_act": 3}})"), HasSubstr("the tower's activation is \"3\""));
  EXPECT_THAT(refusal_of("[1"), HasSubstr("the file is not a JSON object"));
}

TEST_F(BaseWeights, OfBlocksThatAreNotBuiltAreLeftOut) {
  RecipeConfig all = tiny_base();
  all.vision_feature_layer = -1;
  const PairModel source(all, 1);
  Tensors published = weights_of(source);
  published["vision_tower.vision_model.post_layernorm.weight"] = at::ones({8});
  published["vision_tower.vision_model.post_layernorm.bias"] = at::zeros({8});
  write("model.safetensors", published);
  // By default the last block is not built (vision_feature_layer -2).
  const auto model = model_of(tiny_base(), {folder_.string()});
  EXPECT_THAT(load_base(*model, model->config()), HasSubstr("not used: the tower's last norm, vision block 2"));
  EXPECT_TRUE(at::equal(weights_of(*model).at("vision_tower.vision_model.encoder.layers.1.mlp.fc1.weight"),
                        weights_of(source).at("vision_tower.vision_model.encoder.layers.1.mlp.fc1.weight")));
  RecipeConfig shallower = tiny_base();
  shallower.vision_layers = 2;  // a smaller tower than that of the file
  EXPECT_THAT(refused(shallower), HasSubstr("encoder.layers.2."));
}

TEST_F(BaseWeights, AreConvertedToTheTypeTheBaseIsKeptIn) {
  RecipeConfig config = tiny_base();
  config.vocab_size = 300000;  // more than fits into the buffer at once
  const PairModel source(config, 1);
  write("model.safetensors", weights_of(source));
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const auto model = model_of(config, {folder_.string()}, type);
    (void)load_base(*model, model->config());
    for (const auto& [name, value] : weights_of(*model)) {
      const at::Tensor expected = weights_of(source).at(name);
      EXPECT_TRUE(at::equal(value, part_of(name) == Part::projector ? expected : expected.to(type))) << name;
    }
  }
}

TEST_F(BaseWeights, ThatDoNotFitAreNamedWithWhatIsThereAndWhatIsExpected) {
  const PairModel source(tiny_base(), 1);
  const std::string norm = "language_model.model.norm.weight";
  const auto changed = [&](const std::function<void(Tensors&)>& change) {
    Tensors tensors = weights_of(source);
    change(tensors);
    write("model.safetensors", tensors);
    return refused(tiny_base());
  };
  EXPECT_THAT(changed([&](Tensors& t) { t.erase(norm); }),
              AllOf(HasSubstr("no \"" + norm + "\""), HasSubstr("[16]"), HasSubstr(folder_.string())));
  EXPECT_THAT(changed([&](Tensors& t) { t["language_model.model.layers.2.mlp.up_proj.weight"] = at::ones({3}); }),
              AllOf(HasSubstr("layers.2.mlp.up_proj.weight\" of shape [3]"), HasSubstr("nothing of that name")));
  EXPECT_THAT(changed([&](Tensors& t) { t[norm] = at::ones({17}); }), AllOf(HasSubstr("shape [17]"), HasSubstr("expects [16]")));
  EXPECT_THAT(changed([&](Tensors& t) { t.erase("multi_modal_projector.linear_2.bias"); }), HasSubstr("linear_2.bias"));
  EXPECT_THAT(changed([&](Tensors& t) { t[norm] = at::ones({16}, at::kLong); }), HasSubstr("type i64"));
  EXPECT_THAT(changed([&](Tensors& t) {
                t["language_model.model.layers.0.mlp.down_proj.weight"] = at::ones({192, 1}, at::kByte);
              }),
              AllOf(HasSubstr("4 or 8 bits"), HasSubstr("as bf16, tower and decoder take")));
}

TEST_F(BaseWeights, OfFilesThatAreNotThereAreRefused) {
  const PairModel source(tiny_base(), 1);
  const std::string first = "model-00001-of-00002.safetensors";
  EXPECT_THAT(refused(tiny_base()), HasSubstr("neither model.safetensors.index.json nor model.safetensors"));
  EXPECT_THAT(refused(tiny_base(), {(folder_ / "none").string()}), HasSubstr("no weights of that name"));
  write_shards(weights_of(source));
  EXPECT_THAT(refused(tiny_base(), {folder_.string(), (folder_ / first).string()}), HasSubstr("given twice"));
  stdfs::copy_file(folder_ / first, folder_ / "again.safetensors");
  EXPECT_THAT(refused(tiny_base(), {folder_.string(), (folder_ / "again.safetensors").string()}),
              AllOf(HasSubstr("is in this file and in"), HasSubstr(first)));
  stdfs::remove(folder_ / first);
  EXPECT_THAT(refused(tiny_base()), AllOf(HasSubstr("names the file \"" + first), HasSubstr("does not exist")));
  write(first, {{"a", at::ones({1})}});
  EXPECT_THAT(refused(tiny_base()), HasSubstr("the file does not"));
  for (const char* text : {"", "[]", "{\"weight_map\": {}}", "{\"weight_map\": {\"a\": 1}}", "{\"weight_map\""}) {
    write_text("model.safetensors.index.json", text);
    EXPECT_THAT(refused(tiny_base()), HasSubstr("no object \"weight_map\"")) << text;
  }
  write_text("model.safetensors.index.json", R"({"weight_map": {"a": "../other.safetensors"}})");
  EXPECT_THAT(refused(tiny_base()), HasSubstr("which is not a file next to it"));
  write("whole.safetensors", weights_of(source));
  stdfs::resize_file(folder_ / "whole.safetensors", stdfs::file_size(folder_ / "whole.safetensors") - 4);
  EXPECT_THROW((void)refused(tiny_base(), {(folder_ / "whole.safetensors").string()}), DataError);
}

// All layers of LLaVA-1.5-7B, but narrow, in shards. The weights are written value by value; all values of a weight are equal.
class SevenBillionNames : public BaseWeights {
 protected:
  static RecipeConfig narrow() {
    RecipeConfig config;  // 24 vision layers, 32 decoder layers, 32,064 tokens
    config.vision_width = 16;
    config.vision_hidden = 32;
    config.decoder_width = 128;
    config.decoder_hidden = 64;
    return config;
  }

  std::vector<Field> fields(DType type) const {
    RecipeConfig all = narrow();
    all.vision_feature_layer = -1;
    std::vector<Field> list;
    for (const auto& item : PairModel(all, 0, true, {}, at::kMeta).named_parameters()) {
      if (part_of(item.key()) == Part::lora) continue;
      list.push_back({item.key(), type, Shape(item.value().sizes().begin(), item.value().sizes().end())});
    }
    for (const char* name : {"weight", "bias"})
      list.push_back({std::string("vision_tower.vision_model.post_layernorm.") + name, type, {16}});
    return list;
  }

  void write_all(DType type, std::size_t shards) const {
    const std::vector<Field> all = fields(type);
    Json map = Json::object();
    for (std::size_t shard = 0; shard < shards; ++shard) {
      std::vector<Field> own;
      for (std::size_t i = shard; i < all.size(); i += shards) own.push_back(all[i]);
      const std::string name = "model-" + std::to_string(shard) + ".safetensors";
      const format::TensorBytes bytes_of = [&](std::size_t i) {
        const auto elements = element_count(own[i].shape).value();
        value_ = at::full({elements}, value_of(own[i].name), at::TensorOptions(scalar_type_of(type)));
        return std::as_bytes(std::span(static_cast<const char*>(value_.const_data_ptr()), value_.nbytes()));
      };
      write_atomically(Fs::real(), folder_ / name,
                       [&](WritableFile& file) { (void)format::write_safetensors(file, own, bytes_of); });
      for (const Field& field : own) map[field.name] = name;
    }
    write_text("model.safetensors.index.json", Json{{"weight_map", map}}.dump());
    value_.reset();
  }

  // A whole number that bf16 can represent; two names rarely have the same.
  static double value_of(const std::string& name) { return static_cast<double>(std::hash<std::string>()(name) % 251); }

  mutable at::Tensor value_;
};

TEST_F(SevenBillionNames, LoadWithinBoundedMemory) {
  device::count_tensor_memory();
  struct Row {
    DType stored;
    at::ScalarType kept;
    std::int64_t most;  // bytes in addition to the model
  };
  for (const Row& row : {Row{DType::bf16, at::kBFloat16, 0}, Row{DType::f16, at::kBFloat16, kLoadingBytes},
                         Row{DType::f32, at::kBFloat16, kLoadingBytes}}) {
    write_all(row.stored, 5);
    const auto model = model_of(narrow(), {folder_.string()}, row.kept);
    const device::TensorMemory before = device::tensor_memory();
    device::reset_peak_tensor_memory();
    const std::string told = load_base(*model, model->config());
    constexpr std::int64_t kSmall = 64 << 10;  // bytes of the projector, which is fp32
    EXPECT_LE(device::tensor_memory().peak_bytes, before.live_bytes + static_cast<std::uint64_t>(row.most + kSmall)) << told;
    EXPECT_EQ(device::tensor_memory().live_bytes, before.live_bytes);
    EXPECT_THAT(told, AllOf(HasSubstr("(5 files)"), HasSubstr("not used: the tower's last norm, vision block 23")));
    for (const auto& [name, value] : weights_of(*model)) ASSERT_TRUE(value.eq(value_of(name)).all().item<bool>()) << name;
    EXPECT_EQ(weights_of(*model).size(), fields(row.stored).size() - 2 - 16);
  }
}

}  // namespace
}  // namespace millrace::recipes::image_pairs
