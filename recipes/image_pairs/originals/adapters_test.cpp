#include "recipes/image_pairs/originals/adapters.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "millrace/base/json.h"
#include "millrace/snapshot/snapshot.h"
#include "recipes/image_pairs/originals/base_weights.h"
#include "tests/support/refusal.h"

namespace millrace::recipes::image_pairs {
namespace {

namespace stdfs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

RecipeConfig tiny() {
  RecipeConfig config;
  config.image_size = 16;
  config.patch_size = 8;
  config.vision_width = 8;
  config.vision_layers = 2;
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

class Adapters : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = stdfs::path(testing::TempDir()) / ("adapters_" + std::to_string(::getpid()));
    stdfs::remove_all(folder_);
    torch::manual_seed(4);
    const at::NoGradGuard no_grad;
    for (auto& item : source_.named_parameters()) {
      if (item.value().requires_grad()) item.value().copy_(at::randn_like(item.value()));
    }
  }
  void TearDown() override { stdfs::remove_all(folder_); }

  static bool same(const PairModel& a, const PairModel& b, Part part) {
    const auto theirs = b.named_parameters();
    for (const auto& item : a.named_parameters()) {
      if (part_of(item.key()) == part && !at::equal(item.value(), theirs[item.key()])) return false;
    }
    return true;
  }
  [[nodiscard]] std::string refused(const RecipeConfig& config) const {
    PairModel model(config, 3, true);
    const Message message = refusal_message<SnapshotError>([&] { (void)read_adapter(model, folder_); });
    EXPECT_FALSE(message.where.empty() || message.next.empty()) << to_text("SnapshotError", message);
    return to_text("SnapshotError", message);
  }
  void change_config(const std::function<void(Json&)>& change) const {
    Json config = Json::parse(std::ifstream(folder_ / "adapter_config.json"));
    change(config);
    std::ofstream(folder_ / "adapter_config.json") << config.dump();
  }
  void change_tensors(const std::function<void(Tensors&)>& change) const {
    Tensors tensors = snapshot::read_tensors(folder_ / "adapter_model.safetensors");
    change(tensors);
    snapshot::write_tensors(Fs::real(), folder_ / "adapter_model.safetensors", tensors);
  }

  RecipeConfig config_ = tiny();
  PairModel source_{config_, 1, true};
  stdfs::path folder_;
};

TEST_F(Adapters, AreReadAsTheyWereWritten) {
  EXPECT_THAT(write_adapter(Fs::real(), source_, config_, folder_), HasSubstr("adapter: 20 weights in "));
  PairModel read(config_, 2, true);
  EXPECT_THAT(read_adapter(read, folder_), HasSubstr("adapter: 20 weights from "));
  EXPECT_TRUE(same(source_, read, Part::lora));
  EXPECT_TRUE(same(source_, read, Part::projector));
  EXPECT_FALSE(same(source_, read, Part::decoder));
  PairModel from_file(config_, 2, true);
  (void)read_adapter(from_file, folder_ / "adapter_model.safetensors");
  EXPECT_TRUE(same(source_, from_file, Part::lora));
}

TEST_F(Adapters, AreReadUnderEarlierNamesAndWithoutAProjector) {
  (void)write_adapter(Fs::real(), source_, config_, folder_);
  change_tensors([](Tensors& tensors) {
    Tensors earlier;
    for (const auto& [name, value] : tensors) {
      const std::string now = "base_model.model.model.language_model.", then = "base_model.model.language_model.model.";
      if (!name.starts_with(now)) continue;
      std::string other = then + name.substr(now.size());
      other.insert(other.rfind(".weight"), ".default");  // the name that a state dict has
      earlier[other] = value;
    }
    tensors = earlier;
  });
  PairModel read(config_, 2, true), untouched(config_, 2, true);
  EXPECT_THAT(read_adapter(read, folder_), HasSubstr("the file has no projector"));
  EXPECT_TRUE(same(source_, read, Part::lora));
  EXPECT_TRUE(same(untouched, read, Part::projector));
}

TEST_F(Adapters, OfAnotherKindAreRefusedWithTheKeyThatWouldFit) {
  const auto changed = [&](const std::function<void(Json&)>& change) {
    (void)write_adapter(Fs::real(), source_, config_, folder_);
    change_config(change);
    return refused(config_);
  };
  EXPECT_THAT(changed([](Json& c) { c["r"] = 16; }), AllOf(HasSubstr("have r 16"), HasSubstr("recipe.lora_r=16")));
  EXPECT_THAT(changed([](Json& c) { c["lora_alpha"] = 64; }),
              AllOf(HasSubstr("lora_alpha 64"), HasSubstr("recipe.lora_alpha=64")));
  EXPECT_THAT(changed([](Json& c) { c["use_dora"] = true; }), HasSubstr("use_dora"));
  EXPECT_THAT(changed([](Json& c) { c["use_rslora"] = true; }), HasSubstr("use_rslora"));
  EXPECT_THAT(changed([](Json& c) { c["rank_pattern"] = {{"q_proj", 4}}; }), HasSubstr("rank_pattern"));
  EXPECT_THAT(changed([](Json& c) { c["peft_type"] = "IA3"; }), HasSubstr("no adapters of low rank"));
  EXPECT_THAT(changed([](Json& c) { c = Json::array(); }), HasSubstr("no adapters of low rank"));
  stdfs::remove(folder_ / "adapter_config.json");
  EXPECT_THAT(refused(config_), HasSubstr("can't read the adapter's adapter_config.json"));
  stdfs::remove(folder_ / "adapter_model.safetensors");
  EXPECT_THAT(refused(config_), HasSubstr("there is no adapter_model.safetensors"));
}

TEST_F(Adapters, OfOtherProjectionsAreNamed) {
  (void)write_adapter(Fs::real(), source_, config_, folder_);
  RecipeConfig other = config_;
  other.lora_targets = {"q_proj"};
  EXPECT_THAT(refused(other), AllOf(HasSubstr("k_proj.lora_A.weight"), HasSubstr("recipe.lora_targets")));
  other.lora_targets = {"q_proj", "k_proj", "v_proj", "o_proj", "up_proj"};
  EXPECT_THAT(refused(other), AllOf(HasSubstr("up_proj.lora_A.weight"), HasSubstr("recipe.lora_targets")));
  const std::string name = "base_model.model.model.language_model.layers.1.self_attn.o_proj.lora_B.weight";
  change_tensors([&](Tensors& tensors) { tensors[name] = at::ones({16, 3}); });
  EXPECT_THAT(refused(config_), AllOf(HasSubstr("has shape [16,3]"), HasSubstr("expects [16,2]")));
}

TEST_F(Adapters, AreMultipliedIntoTheWeightsTheyStandBeside) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    stdfs::remove_all(folder_);
    PairModel model(config_, 1, true, {}, at::kCPU, type);
    {
      const at::NoGradGuard no_grad;
      for (auto& item : model.named_parameters()) {
        if (item.value().requires_grad()) item.value().copy_(at::randn_like(item.value()));
      }
    }
    EXPECT_THAT(merge_adapters(Fs::real(), model, config_, folder_), HasSubstr("in 1 file of"));
    const Tensors merged = snapshot::read_tensors(folder_ / "model.safetensors");
    const auto parameters = model.named_parameters();
    EXPECT_EQ(merged.size(), parameters.size() - 16);
    for (const auto& [name, value] : merged) {
      const at::Tensor* a = parameters.find(name.substr(0, name.rfind('.')) + ".lora_A.weight");
      at::Tensor expected = parameters[name].detach();
      EXPECT_EQ(value.scalar_type(), expected.scalar_type()) << name;
      if (a != nullptr) {
        const at::Tensor& b = parameters[name.substr(0, name.rfind('.')) + ".lora_B.weight"];
        expected = (expected.to(at::kFloat) + 4 * at::matmul(b, *a)).to(type);
        EXPECT_FALSE(at::equal(value, parameters[name])) << name;
      }
      EXPECT_TRUE(at::allclose(value.to(at::kFloat), expected.to(at::kFloat), 1e-2, 1e-5)) << name;
    }
    EXPECT_EQ(Json::parse(std::ifstream(folder_ / "config.json"))["vision_config"]["num_hidden_layers"], 1);
    stdfs::remove(folder_ / "model.safetensors");
    EXPECT_THAT(refusal<SnapshotError>([&] { (void)merge_adapters(Fs::real(), model, config_, folder_); }),
                HasSubstr("the folder has a config.json already"))
        << "it may be that of a run";
  }
}

// A network without adapters but with the merged weights must give the answers of the network with adapters.
TEST_F(Adapters, MergedInShardsAreABase) {
  EXPECT_THAT(merge_adapters(Fs::real(), source_, config_, folder_, 4000), HasSubstr(" files of "));
  RecipeConfig without = config_;
  without.lora_r = 0;
  without.vision_layers = 1;
  without.vision_feature_layer = -1;
  without.base_weights = {folder_.string()};
  PairModel merged(without, 2, true);
  (void)load_base(merged, without);
  const at::NoGradGuard no_grad;
  source_.eval();
  const at::Tensor pixels = at::ones({2, 3, 16, 16}) * at::ones({2, 1, 1, 1}).cumsum(0),
                   images = at::ones({1, 2}, at::kLong).cumsum(1) - 1;
  const Prompts prompts = to_tensors({prompt_of(config_)}, at::kCPU);
  const at::Tensor adapted = source_.forward(source_.features(pixels), images, prompts);
  EXPECT_TRUE(at::allclose(merged.forward(merged.features(pixels), images, prompts), adapted, 1e-4, 1e-4));
  EXPECT_THAT(refusal<SnapshotError>([&] { (void)merge_adapters(Fs::real(), source_, config_, folder_); }),
              HasSubstr("the folder has weights already"));
}

TEST_F(Adapters, ThatAreNotThereCanNotBeWritten) {
  RecipeConfig without = config_;
  without.lora_r = 0;
  const PairModel model(without, 1, true);
  EXPECT_THROW((void)write_adapter(Fs::real(), model, without, folder_), SnapshotError);
  std::ofstream(folder_.string()) << "a file";
  EXPECT_THROW((void)write_adapter(Fs::real(), source_, config_, folder_ / "inside"), SnapshotError);
  EXPECT_THROW((void)merge_adapters(Fs::real(), source_, config_, folder_ / "inside"), SnapshotError);
}

}  // namespace
}  // namespace millrace::recipes::image_pairs
