#include "recipes/image_pairs/model.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "recipes/image_pairs/decoder.h"
#include "recipes/image_pairs/patches.h"
#include "recipes/image_pairs/vision.h"

namespace millrace::recipes::image_pairs {
namespace {

constexpr std::array<std::string_view, 7> kProjections{"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                                       "gate_proj", "up_proj", "down_proj"};
constexpr double kEmbeddingDeviation = 0.02;
// The adapters have a separate seed, so that the base has the same weights with and without adapters.
constexpr std::uint64_t kAdapterSeed = 0x6c6f7261;

bool is_adapter(std::string_view name) { return name.find(".lora_") != std::string_view::npos; }

Projecting projecting_of(const RecipeConfig& config, const nn::Fused& fused) {
  const double scale = config.lora_r > 0 ? config.lora_alpha / static_cast<double>(config.lora_r) : 1.0;
  return {.scale = scale, .dropout = config.lora_dropout, .fused = fused};
}

double fan_in(const at::Tensor& weight) { return static_cast<double>(weight.numel()) / static_cast<double>(weight.size(0)); }

// Fills `value` with numbers that are drawn in fp32, whatever the type of `value` is. So weights of all types get the same
// numbers, rounded.
template <class Draw>
void fill(at::Tensor& value, const Draw& draw) {
  if (value.scalar_type() == at::kFloat && value.is_cpu()) {
    draw(value);
    return;
  }
  at::Tensor numbers = at::empty(value.sizes(), at::kFloat);
  draw(numbers);
  value.copy_(numbers);
}

void initialise_base(const std::string& name, at::Tensor& value, const RecipeConfig& config, at::Generator& generator) {
  const auto normal = [&](double deviation) {
    fill(value, [&](at::Tensor& numbers) { numbers.normal_(0.0, deviation, generator); });
  };
  if (name.ends_with("bias")) {
    value.zero_();
  } else if (name.ends_with("position_embedding.weight")) {
    normal(config.position_std);
  } else if (name.ends_with("patch_embedding.weight") && config.patch_init == PatchInit::whitened) {
    fill_whitened(value, generator);
  } else if (name.find("embed_tokens") != std::string::npos || name.ends_with("class_embedding")) {
    normal(kEmbeddingDeviation);
  } else if (value.dim() == 1) {
    value.fill_(1.0);  // the weight of a norm
  } else {
    normal(1.0 / std::sqrt(fan_in(value)));
  }
}

void initialise_projector(const std::string& name, at::Tensor& value, at::Generator& generator) {
  if (name.ends_with("bias")) {
    value.zero_();
    return;
  }
  const double bound = std::sqrt(6.0 / static_cast<double>(value.size(0) + value.size(1)));  // Xavier initialisation
  fill(value, [&](at::Tensor& numbers) { numbers.uniform_(-bound, bound, generator); });
}

void initialise_adapter(const std::string& name, at::Tensor& value, at::Generator& generator) {
  if (name.ends_with("lora_B.weight")) {
    value.zero_();
    return;
  }
  const double bound = 1.0 / std::sqrt(fan_in(value));  // Kaiming initialisation with a = sqrt(5)
  fill(value, [&](at::Tensor& numbers) { numbers.uniform_(-bound, bound, generator); });
}

// Initialises the model. `base`: also initialises tower and decoder; otherwise their weights come from files.
void initialise(torch::nn::Module& model, const RecipeConfig& config, std::uint64_t seed, bool base) {
  const at::NoGradGuard no_grad;
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  at::Generator of_projector = at::make_generator<at::CPUGeneratorImpl>(seed + 1);
  at::Generator of_adapters = at::make_generator<at::CPUGeneratorImpl>(seed ^ kAdapterSeed);
  for (auto& item : model.named_parameters()) {
    switch (part_of(item.key())) {
      case Part::lora:
        initialise_adapter(item.key(), item.value(), of_adapters);
        break;
      case Part::projector:
        initialise_projector(item.key(), item.value(), of_projector);
        break;
      default:
        if (base) initialise_base(item.key(), item.value(), config, generator);
    }
  }
}

std::string size_text(std::int64_t value) { return std::to_string(value); }

void add_heads_problem(std::int64_t width, std::int64_t heads, const std::string& of, std::vector<Problem>& problems) {
  if (width % heads == 0) return;
  problems.push_back({"a width of " + size_text(width) + " can't be divided among " + size_text(heads) + " heads",
                      "recipe." + of + "_width, recipe." + of + "_heads",
                      "make recipe." + of + "_width a multiple of recipe." + of + "_heads"});
}

}  // namespace

class Projector : public torch::nn::Module {
 public:
  Projector(std::int64_t in, std::int64_t out, const nn::Fused& fused, at::Device device) : fused_(fused) {
    const Making trained{.device = device};
    const auto layer = [&](const char* name, std::int64_t from) {
      return register_module(name,
                             std::make_shared<Projection>(Projection::Shape{.in = from, .out = out, .bias = true}, trained));
    };
    linear_1_ = layer("linear_1", in);
    linear_2_ = layer("linear_2", out);
  }
  at::Tensor forward(const at::Tensor& features) {
    const nn::LoraProjection first = linear_1_->adapted(), second = linear_2_->adapted();
    const at::Tensor x = nn::linear(features, first.weight, first.bias, fused_);
    return nn::gelu_linear(x, second.weight, second.bias, nn::Gelu::tanh, fused_);
  }
  [[nodiscard]] at::Device device() const { return linear_1_->adapted().weight.device(); }

 private:
  nn::Fused fused_;
  std::shared_ptr<Projection> linear_1_, linear_2_;
};

std::vector<Problem> shape_problems(const RecipeConfig& config) {
  std::vector<Problem> problems;
  add_heads_problem(config.vision_width, config.vision_heads, "vision", problems);
  add_heads_problem(config.decoder_width, config.decoder_heads, "decoder", problems);
  const std::int64_t head = config.decoder_width / config.decoder_heads;
  if (problems.empty() && head % 2 != 0) {
    problems.push_back(
        {"a decoder head's width " + size_text(head) + " is odd, but positions are encoded by rotating pairs of numbers",
         "recipe.decoder_width, recipe.decoder_heads", "use heads of an even width"});
  }
  if (config.image_size % config.patch_size != 0) {
    problems.push_back({"an image of " + size_text(config.image_size) + " x " + size_text(config.image_size) +
                            " pixels can't be cut into patches of " + size_text(config.patch_size) + " x " +
                            size_text(config.patch_size),
                        "recipe.image_size, recipe.patch_size", "make recipe.image_size a multiple of recipe.patch_size"});
  }
  if (built_vision_blocks(config) < 1) {
    problems.push_back({"block " + size_text(config.vision_feature_layer) + " is not among the " +
                            size_text(config.vision_layers) + " blocks of the vision tower",
                        "recipe.vision_feature_layer", "use a number from -" + size_text(config.vision_layers) + " to -1"});
  }
  for (const std::string& target : config.lora_targets) {
    if (std::ranges::find(kProjections, target) != kProjections.end()) continue;
    problems.push_back({"the decoder has no projection \"" + target + "\" for an adapter", "recipe.lora_targets",
                        "choose among q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj"});
  }
  return problems;
}

Counts parameter_counts(const RecipeConfig& c) {
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const double dv = real(c.vision_width), fv = real(c.vision_hidden), d = real(c.decoder_width), f = real(c.decoder_hidden);
  const double built = real(built_vision_blocks(c)), layers = real(c.decoder_layers), rank = real(c.lora_r);
  const double patches = real(c.image_size / c.patch_size) * real(c.image_size / c.patch_size);
  const double around = dv * 3 * real(c.patch_size) * real(c.patch_size) + dv + (patches + 1) * dv + 2 * dv;
  const double vision_block = 4 * (dv * dv + dv) + 4 * dv + (dv * fv + fv) + (fv * dv + dv);
  Counts counts;
  counts.vision = around + built * vision_block;
  counts.vision_published = around + real(c.vision_layers) * vision_block + 2 * dv;
  counts.projector = dv * d + d + d * d + d;
  counts.decoder = 2 * real(c.vocab_size) * d + layers * (4 * d * d + 3 * d * f + 2 * d) + d;
  for (const std::string_view name : kProjections) {
    if (std::ranges::find(c.lora_targets, name) == c.lora_targets.end()) continue;
    const bool feeds_forward = name == "gate_proj" || name == "up_proj" || name == "down_proj";
    counts.lora += layers * rank * (d + (feeds_forward ? f : d));
  }
  if (c.lora_vision) counts.lora += built * 3 * rank * 2 * dv;
  return counts;
}

Part part_of(std::string_view parameter) {
  if (is_adapter(parameter)) return Part::lora;
  if (parameter.starts_with("vision_tower.")) return Part::vision;
  return parameter.starts_with("multi_modal_projector.") ? Part::projector : Part::decoder;
}

PairModel::PairModel(const RecipeConfig& config, std::uint64_t seed, bool frozen, const nn::Fused& fused, at::Device device,
                     at::ScalarType base_type)
    : config_(config), frozen_(frozen) {
  if (auto problems = shape_problems(config_); !problems.empty()) throw ConfigError(std::move(problems));
  const Making how{.device = device, .base_type = base_type, .frozen = frozen};
  const Projecting projecting = projecting_of(config_, fused);
  tower_ = register_module("vision_tower", std::make_shared<VisionTower>(config_, projecting, how));
  projector_ = register_module("multi_modal_projector",
                               std::make_shared<Projector>(config_.vision_width, config_.decoder_width, fused, device));
  decoder_ = register_module("language_model", std::make_shared<LanguageModel>(config_, projecting, how));
  if (device.type() != at::kMeta) initialise(*this, config_, seed, config_.base_weights.empty());
}

at::Tensor PairModel::features(const at::Tensor& pixels) {
  if (!frozen_ || config_.lora_vision) return tower_->forward(pixels);
  const at::NoGradGuard no_grad;
  return tower_->forward(pixels);
}

at::Tensor PairModel::forward(at::Tensor features, const at::Tensor& images, const Prompts& prompts) {
  at::Tensor projected = projector_->forward(features);
  features.reset();  // drops this reference: the projector's autograd graph holds the features that it needs
  return decoder_->forward(std::move(projected), images, prompts);
}

at::Device PairModel::device() const { return projector_->device(); }

}  // namespace millrace::recipes::image_pairs
