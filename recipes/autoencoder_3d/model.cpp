#include "recipes/autoencoder_3d/model.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/leaky_relu.h>

#include <algorithm>
#include <string>

#include "millrace/base/format.h"
#include "millrace/nn/clamp.h"
#include "recipes/autoencoder_3d/perceptual.h"

namespace millrace::recipes::autoencoder_3d {
namespace {

constexpr double kSlope = 0.2;         // negative slope of the discriminator's leaky ReLUs
constexpr double kInstanceEps = 1e-5;  // epsilon of the discriminator's instance norms
constexpr double kLowestLogVariance = -30, kHighestLogVariance = 20;
constexpr std::int64_t kMostLevels = 8;
constexpr std::int64_t kKernel = 4;  // side of the discriminator's kernels

// The layers of the discriminator, in order: initial_conv, "0", "1", ..., final_conv.
std::vector<Convolution::Shape> discriminator_layers(const RecipeConfig& config) {
  std::int64_t channels = config.disc_channels;
  std::vector<Convolution::Shape> layers = {
      {.in = config.image_channels, .out = channels, .kernel = kKernel, .stride = 2, .padding = 1}};
  for (std::int64_t i = 0; i < config.disc_layers; ++i, channels *= 2) {
    const std::int64_t stride = i + 1 < config.disc_layers ? 2 : 1;
    layers.push_back({.in = channels, .out = 2 * channels, .kernel = kKernel, .stride = stride, .padding = 1, .bias = false});
  }
  layers.push_back({.in = channels, .out = 1, .kernel = kKernel, .stride = 1, .padding = 1});
  return layers;
}

std::string list_text(const std::vector<std::int64_t>& values) {
  std::string text;
  for (const std::int64_t value : values) text += (text.empty() ? "" : ",") + std::to_string(value);
  return "[" + text + "]";
}

void add_level_problems(const RecipeConfig& config, std::vector<Problem>& problems) {
  if (config.attention_levels.size() != config.channels.size()) {
    problems.push_back({"recipe.channels has " + std::to_string(config.channels.size()) + " levels, recipe.attention_levels " +
                            std::to_string(config.attention_levels.size()),
                        "recipe.attention_levels", "give a word (true or false) for each level"});
  }
  if (config.channels.empty() || static_cast<std::int64_t>(config.channels.size()) > kMostLevels) {
    problems.push_back({"a network of " + std::to_string(config.channels.size()) + " levels", "recipe.channels",
                        "give from 1 to " + std::to_string(kMostLevels) + " numbers"});
    return;
  }
  for (const std::int64_t channels : config.channels) {
    if (channels % config.norm_num_groups == 0) continue;
    problems.push_back({std::to_string(channels) + " channels can't be cut into " + std::to_string(config.norm_num_groups) +
                            " groups of equal size",
                        "recipe.channels, recipe.norm_num_groups",
                        "take a number of groups that divides all of " + list_text(config.channels)});
    break;
  }
}

void add_patch_problems(const RecipeConfig& config, std::vector<Problem>& problems) {
  const std::int64_t divisor = size_divisor(config);
  const std::string patch = list_text(config.patch_size);
  for (const std::int64_t side : config.patch_size) {
    if (side % divisor == 0) continue;
    problems.push_back({"a patch of " + patch + " can't be halved " + std::to_string(config.channels.size() - 1) + " times",
                        "recipe.patch_size", "use multiples of " + std::to_string(divisor)});
    return;
  }
  const std::int64_t least = std::ranges::min(config.patch_size);
  if (config.perceptual_weight > 0 && !config.perceptual_weights.empty() && least < kSmallestPerceptualSide) {
    problems.push_back({"a patch of " + patch + " is too small for the perceptual loss, which needs sides of at least " +
                            std::to_string(kSmallestPerceptualSide),
                        "recipe.patch_size", "use a larger patch, or remove recipe.perceptual_weights"});
  }
  if (config.adv_weight <= 0) return;
  const std::int64_t smallest = smallest_side(config);
  if (least >= smallest) return;
  problems.push_back({"a patch of " + patch + " is too small for a discriminator of " + std::to_string(config.disc_layers) +
                          " layers, which needs sides of at least " + std::to_string(smallest),
                      "recipe.patch_size", "use a larger patch, recipe.disc_layers=2, or recipe.adv_weight=0"});
}

}  // namespace

std::vector<Problem> shape_problems(const RecipeConfig& config) {
  std::vector<Problem> problems;
  add_level_problems(config, problems);
  if (problems.empty()) add_patch_problems(config, problems);
  if (config.target == Target::label && config.image_channels == 2) {
    problems.push_back({"with two channels the network reconstructs image and label, not the label alone",
                        "recipe.target, recipe.image_channels", "set recipe.image_channels=1, or leave recipe.target out"});
  }
  return problems;
}

double autoencoder_parameters(const RecipeConfig& config) {
  const Convolution::Shape quant{.in = config.latent_channels, .out = config.latent_channels, .kernel = 1, .padding = 0};
  return parameters_of(encoder_stages(config)) + parameters_of(decoder_stages(config)) + 3 * parameters_of(quant);
}

double discriminator_parameters(const RecipeConfig& config) {
  double count = 0;
  for (const Convolution::Shape& layer : discriminator_layers(config)) count += parameters_of(layer);
  return count;
}

std::int64_t size_divisor(const RecipeConfig& config) { return std::int64_t{1} << (config.channels.size() - 1); }

// The side is computed backwards from the last layer. An instance norm needs more than one voxel, so the last norm must get at
// least two.
std::int64_t smallest_side(const RecipeConfig& config) {
  std::int64_t side = 2;  // the side of the last layer's input
  const std::vector<Convolution::Shape> layers = discriminator_layers(config);
  for (auto layer = layers.rbegin() + 1; layer != layers.rend(); ++layer) side = (side - 1) * layer->stride + kKernel - 2;
  return side;
}

AutoencoderKL::AutoencoderKL(const RecipeConfig& config, const nn::Fused& fused) {
  const StageOptions options{.groups = config.norm_num_groups, .eps = config.norm_eps, .fused = fused};
  encoder_ = register_module("encoder", std::make_shared<Coder>("encoder", encoder_stages(config), options));
  decoder_ = register_module("decoder", std::make_shared<Coder>("decoder", decoder_stages(config), options));
  const Convolution::Shape quant{.in = config.latent_channels, .out = config.latent_channels, .kernel = 1, .padding = 0};
  quant_conv_mu_ = register_module("quant_conv_mu", std::make_shared<Convolution>(quant));
  quant_conv_log_sigma_ = register_module("quant_conv_log_sigma", std::make_shared<Convolution>(quant));
  post_quant_conv_ = register_module("post_quant_conv", std::make_shared<Convolution>(quant));
}

at::Tensor AutoencoderKL::arranged(const at::Tensor& x) const {
  return x.contiguous(channels_last_ ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::Contiguous);
}

AutoencoderKL::Latent AutoencoderKL::encode(const at::Tensor& x) {
  const at::Tensor h = encoder_->forward(arranged(x));
  const at::Tensor mean = quant_conv_mu_->forward(h).to(at::kFloat);
  const at::Tensor log_variance = quant_conv_log_sigma_->forward(h).to(at::kFloat);
  return {mean, (nn::clamp(log_variance, kLowestLogVariance, kHighestLogVariance, "the latent's log variance") / 2).exp()};
}

at::Tensor AutoencoderKL::decode(const at::Tensor& z) { return decoder_->forward(post_quant_conv_->forward(arranged(z))); }

void initialise_as_gan(torch::nn::Module& module, at::Generator& generator) {
  const at::NoGradGuard no_grad;
  for (auto& item : module.named_parameters()) {
    if (item.value().dim() > 1) {
      item.value().normal_(0.0, 0.02, generator);
    } else {
      item.value().zero_();
    }
  }
}

PatchDiscriminator::PatchDiscriminator(const RecipeConfig& config, const nn::Fused& fused) : fused_(fused) {
  const std::vector<Convolution::Shape> shapes = discriminator_layers(config);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const std::string name = i == 0 ? "initial_conv" : i + 1 == shapes.size() ? "final_conv" : std::to_string(i - 1);
    layers_.push_back(register_module(name, std::make_shared<Convolution>(shapes[i], fused)));
  }
}

at::Tensor PatchDiscriminator::forward(const at::Tensor& x) {
  const auto layout = channels_last_ ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::Contiguous;
  at::Tensor y = at::leaky_relu(layers_.front()->forward(x.contiguous(layout)), kSlope);
  for (std::size_t i = 1; i + 1 < layers_.size(); ++i)
    y = nn::instance_norm_leaky(layers_[i]->forward(y), kInstanceEps, kSlope, fused_);
  return layers_.back()->forward(y);
}

VolumeGan::VolumeGan(const RecipeConfig& config, std::uint64_t seed, const nn::Fused& fused) {
  if (auto problems = shape_problems(config); !problems.empty()) throw ConfigError(std::move(problems));
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  autoencoder_ = std::make_shared<AutoencoderKL>(config, fused);
  initialise_as_torch(*autoencoder_, generator);
  for (auto& child : autoencoder_->named_children()) register_module(child.key(), child.value());
  if (config.adv_weight <= 0) return;
  discriminator_ = std::make_shared<PatchDiscriminator>(config, fused);
  initialise_as_gan(*discriminator_, generator);
  for (auto& child : discriminator_->named_children()) register_module(child.key(), child.value());
}

PatchDiscriminator& VolumeGan::discriminator() {
  MR_CHECK(discriminator_, "with recipe.adv_weight=0 there is no discriminator");
  return *discriminator_;
}

void VolumeGan::set_channels_last(bool channels_last) noexcept {
  autoencoder_->set_channels_last(channels_last);
  if (discriminator_) discriminator_->set_channels_last(channels_last);
}

}  // namespace millrace::recipes::autoencoder_3d
