#include "recipes/autoencoder_3d/network.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/addmv.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <cmath>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/device/autocast.h"
#include "millrace/memory/block.h"

namespace millrace::recipes::autoencoder_3d {
namespace {

// The number of ATen's attention backend "math", which holds all products of queries and keys in memory.
constexpr std::int64_t kMathChoice = 0;

// Returns x + y. The sum is written into x's memory if x has the sum's type. This is allowed, because x is the result of a
// convolution, whose gradient does not need that result.
at::Tensor add_to(const at::Tensor& x, const at::Tensor& y) {
  return x.scalar_type() == y.scalar_type() ? at::Tensor(x).add_(y) : x + y;
}

// A convolution with a kernel of one voxel, computed as a matrix product, because LibTorch's convolution copies its input and
// output. The layout of x is kept. `bias` may be undefined.
at::Tensor of_voxels(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const at::Tensor matrix = weight.flatten(1);
  if (!x.is_contiguous() && x.is_contiguous(at::MemoryFormat::ChannelsLast3d))
    return at::linear(x.permute({0, 2, 3, 4, 1}), matrix, bias).permute({0, 4, 1, 2, 3});
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes[1] = weight.size(0);
  const at::Tensor matrices = matrix.unsqueeze(0).expand({x.size(0), -1, -1});
  if (!bias.defined()) return at::bmm(matrices, x.flatten(2)).view(sizes);
  return at::baddbmm(bias.view({1, -1, 1}), matrices, x.flatten(2)).view(sizes);
}

struct Norm : Block {
  Norm(std::int64_t channels, const StageOptions& how, bool then_silu) : options(how), silu(then_silu) {
    weight = register_parameter("weight", at::ones({channels}));
    bias = register_parameter("bias", at::zeros({channels}));
  }
  nn::Biased forward(const nn::Biased& x) override { return {branch(x).normed, {}}; }
  [[nodiscard]] nn::Branched branch(const nn::Biased& x) const {
    return nn::branched_group_norm(x, weight, bias, options.groups, options.eps, silu, options.fused);
  }
  // Applies the norm, then the activation if there is one, then the convolution `conv`.
  [[nodiscard]] at::Tensor then(const Convolution& conv, const at::Tensor& x) const {
    return nn::normed_conv3d(x, weight, bias, options.groups, options.eps, silu, conv.weight(), conv.bias(), options.fused);
  }
  StageOptions options;
  bool silu;
  at::Tensor weight, bias;
};

struct Linear : torch::nn::Module {
  explicit Linear(std::int64_t width) {
    weight = register_parameter("weight", at::empty({width, width}, at::kFloat));
    bias = register_parameter("bias", at::empty({width}, at::kFloat));
  }
  [[nodiscard]] at::Tensor forward(const at::Tensor& x) const { return at::linear(x, weight, bias); }
  at::Tensor weight, bias;
};

struct Residual : Block {
  Residual(const Stage& stage, const StageOptions& options)
      : norm1(register_module("norm1", std::make_shared<Norm>(stage.in, options, true))),
        conv1(register_module("conv1", convolution(stage.in, stage.out, options))),
        norm2(register_module("norm2", std::make_shared<Norm>(stage.out, options, true))),
        conv2(register_module("conv2", convolution(stage.out, stage.out, options))) {
    if (stage.in == stage.out) return;
    const Convolution::Shape shape{.in = stage.in, .out = stage.out, .kernel = 1, .padding = 0};
    shortcut = register_module("nin_shortcut", std::make_shared<Convolution>(shape, options.fused));
  }
  nn::Biased forward(const nn::Biased& x) override {
    if (!nn::leaves_out_biases(x.x, norm1->options.fused)) {
      const at::Tensor in = nn::whole(x);
      return {add_to(norm2->then(*conv2, norm1->then(*conv1, in)), shortcut ? shortcut->forward(in) : in), {}};
    }
    const nn::Branched in = norm1->branch(x);
    const nn::Biased past = shortcut ? shortcut->forward(in.x) : in.x;
    const nn::Biased out = conv2->forward(norm2->forward(conv1->forward(nn::Biased{in.normed, {}})));
    return {add_to(out.x, past.x), past.bias.defined() ? out.bias + past.bias : out.bias};
  }
  static std::shared_ptr<Convolution> convolution(std::int64_t in, std::int64_t out, const StageOptions& options) {
    return std::make_shared<Convolution>(Convolution::Shape{.in = in, .out = out}, options.fused);
  }
  std::shared_ptr<Norm> norm1;
  std::shared_ptr<Convolution> conv1;
  std::shared_ptr<Norm> norm2;
  std::shared_ptr<Convolution> conv2, shortcut;
};

struct Projections : torch::nn::Module {
  explicit Projections(std::int64_t width) {
    for (auto [layer, name] : {std::pair{&to_q, "to_q"}, {&to_k, "to_k"}, {&to_v, "to_v"}, {&out_proj, "out_proj"}})
      *layer = register_module(name, std::make_shared<Linear>(width));
  }
  std::shared_ptr<Linear> to_q, to_k, to_v, out_proj;
};

struct Attention : Block {
  Attention(const Stage& stage, const StageOptions& options)
      : norm(register_module("norm", std::make_shared<Norm>(stage.in, options, false))),
        attn(register_module("attn", std::make_shared<Projections>(stage.in))) {}
  nn::Biased forward(const nn::Biased& x) override {
    const nn::Branched in = norm->branch(x);
    const at::Tensor tokens = in.normed.flatten(2).transpose(1, 2);  // (B, DHW, C)
    const at::Tensor mixed =
        self_attention(attn->to_q->forward(tokens), attn->to_k->forward(tokens), attn->to_v->forward(tokens));
    return {in.x.x + attn->out_proj->forward(mixed).transpose(1, 2).reshape(x.x.sizes()), in.x.bias};
  }
  std::shared_ptr<Norm> norm;
  std::shared_ptr<Projections> attn;
};

// Halves each axis: adds a plane of zeros at the axis's end, then applies a convolution of stride 2.
struct Down : Block {
  Down(const Stage& stage, const StageOptions& options)
      : fused(options.fused),
        conv(register_module(
            "conv", std::make_shared<Convolution>(Convolution::Shape{.in = stage.in, .out = stage.out, .stride = 2, .padding = 0},
                                                  options.fused))) {}
  nn::Biased forward(const nn::Biased& x) override { return conv->forward(nn::Biased{nn::zeros_behind(x, fused), {}}); }
  nn::Fused fused;
  std::shared_ptr<Convolution> conv;
};

struct Up : Block {
  Up(const Stage& stage, const StageOptions& options)
      : fused(options.fused),
        postconv(
            register_module("postconv", std::make_shared<Convolution>(Convolution::Shape{.in = stage.in, .out = stage.out}))) {}
  nn::Biased forward(const nn::Biased& x) override {
    return nn::biased_upsampled_conv3d(nn::whole(x), postconv->weight(), postconv->bias(), fused);
  }
  nn::Fused fused;
  std::shared_ptr<Convolution> postconv;
};

std::shared_ptr<Block> make_block(const Stage& stage, const StageOptions& options) {
  switch (stage.kind) {
    case StageKind::residual:
      return std::make_shared<Residual>(stage, options);
    case StageKind::attention:
      return std::make_shared<Attention>(stage, options);
    case StageKind::down:
      return std::make_shared<Down>(stage, options);
    case StageKind::up:
      return std::make_shared<Up>(stage, options);
    case StageKind::norm:
      return std::make_shared<Norm>(stage.in, options, false);
    default:
      return std::make_shared<Convolution>(Convolution::Shape{.in = stage.in, .out = stage.out}, options.fused);
  }
}

// Adds the residual blocks of a level. The first block has `in` channels. If the level has attention, each block is followed by
// attention.
void add_level(std::vector<Stage>& stages, const RecipeConfig& config, std::int64_t in, std::size_t level) {
  const std::int64_t out = config.channels[level];
  for (std::int64_t i = 0; i < config.num_res_blocks; ++i) {
    stages.push_back({StageKind::residual, i == 0 ? in : out, out});
    if (config.attention_levels[level]) stages.push_back({StageKind::attention, out, out});
  }
}

void add_nonlocal(std::vector<Stage>& stages, std::int64_t channels) {
  for (const StageKind kind : {StageKind::residual, StageKind::attention, StageKind::residual})
    stages.push_back({kind, channels, channels});
}

double parameters_of(const Stage& stage) {
  const auto in = static_cast<double>(stage.in), out = static_cast<double>(stage.out);
  const double conv = parameters_of(Convolution::Shape{.in = stage.in, .out = stage.out});
  switch (stage.kind) {
    case StageKind::residual: {
      const double second = parameters_of(Convolution::Shape{.in = stage.out, .out = stage.out});
      return 2 * in + 2 * out + conv + second + (stage.in == stage.out ? 0 : in * out + out);
    }
    case StageKind::attention:
      return 2 * in + 4 * (in * in + in);
    case StageKind::norm:
      return 2 * in;
    default:
      return conv;
  }
}

}  // namespace

double parameters_of(const Convolution::Shape& shape) {
  const auto kernel = static_cast<double>(shape.kernel);
  return static_cast<double>(shape.out) * (static_cast<double>(shape.in) * kernel * kernel * kernel + (shape.bias ? 1 : 0));
}

Convolution::Weights::Weights(const Shape& shape) {
  weight = register_parameter("weight", at::empty({shape.out, shape.in, shape.kernel, shape.kernel, shape.kernel}, at::kFloat));
  if (shape.bias) bias = register_parameter("bias", at::empty({shape.out}, at::kFloat));
}

Convolution::Convolution(const Shape& shape, const nn::Fused& fused)
    : shape_(shape), fused_(fused), weights_(register_module("conv", std::make_shared<Weights>(shape))) {}

bool Convolution::is_of_voxels() const noexcept {
  return shape_.kernel == 1 && shape_.stride == 1 && shape_.padding == 0 && shape_.bias;
}

at::Tensor Convolution::forward(const at::Tensor& x) {
  if (is_of_voxels()) return of_voxels(x, weight(), bias());
  return nn::conv3d(x, weight(), bias(), shape_.stride, shape_.padding, fused_);
}

nn::Biased Convolution::forward(const nn::Biased& x) {
  if (!is_of_voxels()) return nn::biased_conv3d(nn::whole(x), weight(), bias(), shape_.stride, shape_.padding, fused_);
  if (!nn::leaves_out_biases(x.x, fused_)) return {of_voxels(nn::whole(x), weight(), bias()), {}};
  const at::Tensor product = of_voxels(x.x, weight(), {});
  const device::NoAutocast fp32(x.x.device().type());
  return {product, x.bias.defined() ? at::addmv(bias(), weight().flatten(1), x.bias) : bias()};  // W (x + b) = W x + W b
}

std::vector<Stage> encoder_stages(const RecipeConfig& config) {
  std::vector<Stage> stages = {{StageKind::convolution, config.image_channels, config.channels.front()}};
  for (std::size_t level = 0; level < config.channels.size(); ++level) {
    const std::int64_t channels = config.channels[level];
    add_level(stages, config, config.channels[level == 0 ? 0 : level - 1], level);
    if (level + 1 < config.channels.size()) stages.push_back({StageKind::down, channels, channels});
  }
  const std::int64_t deepest = config.channels.back();
  if (config.with_encoder_nonlocal_attn) add_nonlocal(stages, deepest);
  stages.push_back({StageKind::norm, deepest, deepest});
  stages.push_back({StageKind::convolution, deepest, config.latent_channels});
  return stages;
}

std::vector<Stage> decoder_stages(const RecipeConfig& config) {
  std::int64_t channels = config.channels.back();
  std::vector<Stage> stages = {{StageKind::convolution, config.latent_channels, channels}};
  if (config.with_decoder_nonlocal_attn) add_nonlocal(stages, channels);
  for (std::size_t level = config.channels.size(); level-- > 0;) {
    add_level(stages, config, channels, level);
    channels = config.channels[level];
    if (level > 0) stages.push_back({StageKind::up, channels, channels});
  }
  stages.push_back({StageKind::norm, channels, channels});
  stages.push_back({StageKind::convolution, channels, config.image_channels});
  return stages;
}

double parameters_of(const std::vector<Stage>& stages) {
  double count = 0;
  for (const Stage& stage : stages) count += parameters_of(stage);
  return count;
}

Coder::Coder(std::string name, const std::vector<Stage>& stages, const StageOptions& options)
    : name_(std::move(name)), stages_(stages) {
  const auto list = register_module("blocks", std::make_shared<torch::nn::Module>());
  for (const Stage& stage : stages) {
    blocks_.push_back(make_block(stage, options));
    list->register_module(std::to_string(blocks_.size() - 1), blocks_.back());
  }
}

at::Tensor Coder::forward(const at::Tensor& input) {
  nn::Biased x{input, {}};
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    Block& block = *blocks_[i];
    if (stages_[i].kind == StageKind::norm) {  // a norm is always followed by a convolution
      const Norm& norm = dynamic_cast<Norm&>(block);
      auto& conv = dynamic_cast<Convolution&>(*blocks_[++i]);
      const bool apart = nn::leaves_out_biases(x.x, norm.options.fused);
      x = {apart ? conv.forward(norm.branch(x).normed) : norm.then(conv, nn::whole(x)), {}};
    } else if (stages_[i].kind == StageKind::convolution) {
      x = block.forward(x);
    } else {
      x = memory::block(name_ + "." + std::to_string(i), block, [&block, x] { return block.forward(x); });
    }
  }
  return nn::whole(x);
}

void initialise_as_torch(torch::nn::Module& module, at::Generator& generator) {
  const at::NoGradGuard no_grad;
  double bound = 0;  // the bound of the uniform distribution; 0 for a norm's weight
  for (auto& item : module.named_parameters()) {
    at::Tensor& value = item.value();
    if (item.key().ends_with("weight")) bound = value.dim() > 1 ? 1.0 / std::sqrt(static_cast<double>(value[0].numel())) : 0;
    // The weight of a layer comes before its bias, so a bias gets the bound of its weight.
    if (bound > 0) value.uniform_(-bound, bound, generator);
  }
}

at::Tensor self_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const auto one_head = [](const at::Tensor& x) { return x.unsqueeze(1); };
  const at::Tensor queries = one_head(q), keys = one_head(k), values = one_head(v);
  const std::int64_t tokens = q.size(1);
  if (tokens > kMostMappedTokens && at::_fused_sdp_choice(queries, keys, values) == kMathChoice) {
    const double bytes = static_cast<double>(q.size(0)) * static_cast<double>(tokens) * static_cast<double>(tokens) * 4;
    throw DeviceError({.what = "attention over " + std::to_string(tokens) + " voxels of " + std::to_string(q.size(2)) +
                               " channels has no fused kernel on this device, and the attention map alone would take " +
                               human_bytes(bytes),
                       .where = "recipe.attention_levels, recipe.patch_size",
                       .next = "use precision.dtype=bf16, at most 256 channels, fewer attention levels or a smaller patch"});
  }
  return at::scaled_dot_product_attention(queries, keys, values).squeeze(1);
}

}  // namespace millrace::recipes::autoencoder_3d
