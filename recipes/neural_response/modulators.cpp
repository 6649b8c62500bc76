#include "recipes/neural_response/modulators.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/affine_grid_generator.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/grid_sampler.h>
#include <ATen/ops/im2col.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>

#include <optional>
#include <string>
#include <vector>

#include "millrace/device/autocast.h"
#include "recipes/neural_response/core.h"

namespace millrace::recipes::neural_response {
namespace {

using Sizes = std::vector<std::int64_t>;

std::shared_ptr<Weights> linear_weights(std::int64_t in, std::int64_t out) {
  return std::make_shared<Weights>(Sizes{out, in}, true);
}

// Makes the rows of a matrix orthonormal, or the columns if there are fewer columns than rows, as torch's orthogonal_() does.
void orthogonal(const at::Tensor& weight, at::Generator& generator) {
  const std::int64_t rows = weight.size(0), columns = weight.numel() / rows;
  const at::Tensor random = at::randn({std::max(rows, columns), std::min(rows, columns)}, generator);
  const auto [q, r] = at::linalg_qr(random);
  const at::Tensor turned = q * r.diagonal().sign();
  weight.copy_((rows < columns ? turned.t() : turned).reshape(weight.sizes()));
}

at::Tensor last_frame(const at::Tensor& x) { return x.select(1, x.size(1) - 1); }

// A convolutional GRU whose reset gate is computed but not used, as in VisionCore: h' = h + sigmoid(z) (tanh(n) - h), where (z,
// r, n) = conv_x(x) + conv_h(h) and h = 0 at first. x consists of the features and then the embedded behaviour, which is the same
// for all pixels.
class ConvGru : public torch::nn::Module {
 public:
  ConvGru(std::int64_t channels, std::int64_t embedded, std::int64_t hidden, std::int64_t kernel, bool needed_only)
      : channels_(channels), hidden_(hidden), kernel_(kernel), needed_only_(needed_only) {
    conv_x_ = std::make_shared<Weights>(Sizes{3 * hidden, channels + embedded, kernel, kernel}, true);
    conv_h_ = std::make_shared<Weights>(Sizes{3 * hidden, hidden, kernel, kernel}, false);
    const auto cell = register_module("cell", std::make_shared<Holder>());
    cell->put("conv_x", conv_x_);
    cell->put("conv_h", conv_h_);
  }

  void initialise(at::Generator& generator) {
    conv_x_->initialise(generator);
    orthogonal(conv_h_->weight, generator);
  }

  // Returns the last state, (N, hidden, H, W), for features (N, T, C, H, W) and behavior (N, E).
  at::Tensor forward(const at::Tensor& features, const at::Tensor& behavior) const {
    return needed_only_ ? needed(features, behavior) : whole(features, behavior);
  }

 private:
  [[nodiscard]] at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight,
                                       const std::optional<at::Tensor>& bias) const {
    return at::conv2d(x, weight, bias, {{1, 1}}, {{kernel_ / 2, kernel_ / 2}});
  }

  [[nodiscard]] at::Tensor whole(const at::Tensor& features, const at::Tensor& behavior) const {
    const std::int64_t rows = features.size(0), frames = features.size(1), height = features.size(3), width = features.size(4);
    const at::Tensor map =
        behavior.view({rows, 1, behavior.size(1), 1, 1}).expand({rows, frames, behavior.size(1), height, width});
    const at::Tensor x = at::cat({features, map.to(features.scalar_type())}, 2);
    const at::Tensor gates = convolution(x.flatten(0, 1), conv_x_->weight, conv_x_->bias).unflatten(0, {rows, frames});
    at::Tensor h = at::zeros({rows, hidden_, height, width}, features.options().dtype(wide_type(features)));
    for (std::int64_t t = 0; t < frames; ++t) {
      const at::Tensor step = gates.select(1, t) + convolution(h, conv_h_->weight, {});
      const auto parts = step.chunk(3, 1);
      h = at::lerp(h, wide(at::tanh(parts[2])), wide(at::sigmoid(parts[0])));
    }
    return h;
  }

  // `weight`: a weight or a bias with rows for z, then r, then n. Returns the rows for z and n, because r is not used.
  [[nodiscard]] at::Tensor used(const at::Tensor& weight) const { return weight.unflatten(0, {3, hidden_}).slice(0, 0, 3, 2); }

  // Convolves a map that has the same value at all pixels: the result at a pixel is that value times the sum of the taps that do
  // not reach over the border. (N, 2 hidden, H, W) fp32.
  [[nodiscard]] at::Tensor constant(const at::Tensor& behavior, const at::Tensor& weight, std::int64_t height,
                                    std::int64_t width) const {
    const device::NoAutocast fp32(behavior.device().type());
    const std::int64_t pad = kernel_ / 2;
    const at::Tensor inside = at::im2col(at::ones({1, 1, height, width}, behavior.options()), {{kernel_, kernel_}}, {{1, 1}},
                                         {{pad, pad}}, {{1, 1}});  // (1, taps, H W)
    const at::Tensor taps = at::matmul(behavior, weight.permute({2, 0, 1, 3, 4}).reshape({behavior.size(1), -1}));
    return at::matmul(taps.view({-1, kernel_ * kernel_}), inside[0]).view({behavior.size(0), 2 * hidden_, height, width});
  }

  [[nodiscard]] at::Tensor needed(const at::Tensor& features, const at::Tensor& behavior) const {
    const std::int64_t rows = features.size(0), frames = features.size(1), height = features.size(3), width = features.size(4);
    const at::Tensor of_x = used(conv_x_->weight);  // (2, hidden, C + E, k, k)
    const at::Tensor of_features = of_x.narrow(2, 0, channels_).flatten(0, 1);
    const at::Tensor maps = constant(wide(behavior), of_x.narrow(2, channels_, behavior.size(1)), height, width);
    const at::Tensor gates =
        convolution(images_of(features), of_features, used(conv_x_->bias).flatten()).unflatten(0, {rows, frames}) +
        maps.unsqueeze(1);
    const at::Tensor of_h = used(conv_h_->weight).flatten(0, 1);
    at::Tensor h;
    // The first state is zero, and so is conv_h of the first state. With a single frame, conv_h is computed nevertheless, so
    // that its gradient is zeros instead of undefined: weight decay needs a gradient to act.
    if (frames == 1) h = at::zeros({rows, hidden_, height, width}, maps.options());
    for (std::int64_t t = 0; t < frames; ++t) {
      at::Tensor step = gates.select(1, t);
      if (h.defined()) step = step + convolution(h, of_h, {});
      const at::Tensor open = at::sigmoid(step.narrow(1, 0, hidden_)), next = at::tanh(step.narrow(1, hidden_, hidden_));
      h = h.defined() ? at::lerp(h, next, open) : open * next;
    }
    return h;
  }

  std::int64_t channels_, hidden_, kernel_;
  bool needed_only_;
  std::shared_ptr<Weights> conv_x_, conv_h_;
};

class Recurrent : public Modulator {
 public:
  Recurrent(const ModulatorConfig& config, std::int64_t channels, std::int64_t behavior_dim, const char* name,
            const nn::Fused& fused)
      : fused_(fused), beh_emb_(register_module("beh_emb", linear_weights(behavior_dim, config.beh_emb_dim))) {
    gru_ = register_module(name, std::make_shared<ConvGru>(channels, config.beh_emb_dim, config.hidden_dim, config.kernel_size,
                                                           fused.on(kNeededOnly)));
  }
  bool reads_last_frame_only() const override { return false; }
  void initialise(at::Generator& generator) override {
    beh_emb_->initialise(generator);
    gru_->initialise(generator);
  }

 protected:
  at::Tensor run(const at::Tensor& features, const at::Tensor& behavior) {
    return gru_->forward(features, nn::linear(behavior, beh_emb_->weight, beh_emb_->bias, fused_));
  }

 private:
  nn::Fused fused_;
  std::shared_ptr<Weights> beh_emb_;
  std::shared_ptr<ConvGru> gru_;
};

class ConvGruModulator final : public Recurrent {
 public:
  ConvGruModulator(const ModulatorConfig& config, std::int64_t channels, std::int64_t behavior_dim, const nn::Fused& fused)
      : Recurrent(config, channels, behavior_dim, "gru", fused) {
    output_proj_ =
        register_module("output_proj", std::make_shared<Weights>(Sizes{config.hidden_dim, config.hidden_dim, 1, 1}, true));
  }
  Modulated forward(const at::Tensor& features, const at::Tensor& behavior) override {
    return {at::conv2d(run(features, behavior), output_proj_->weight, output_proj_->bias), {}};
  }
  void initialise(at::Generator& generator) override {
    Recurrent::initialise(generator);
    output_proj_->initialise(generator);
  }

 private:
  std::shared_ptr<Weights> output_proj_;
};

// Predicts the last frame from the earlier frames. The readouts get the frame and the prediction's error.
class PredictiveCoding final : public Recurrent {
 public:
  PredictiveCoding(const ModulatorConfig& config, std::int64_t channels, std::int64_t behavior_dim, const nn::Fused& fused)
      : Recurrent(config, channels, behavior_dim, "predictor", fused) {}
  Modulated forward(const at::Tensor& features, const at::Tensor& behavior) override {
    const at::Tensor last = wide(last_frame(features));
    const at::Tensor error = last - run(features.narrow(1, 0, features.size(1) - 1), behavior);
    at::Tensor square;
    if (is_training()) square = error.square().mean({1, 2, 3});
    return {at::cat({last, error}, 1), square};
  }
};

// Layers for behaviour: linear, activation, dropout, and so on. The last layer is only linear, unless the config says otherwise.
class Encoder : public torch::nn::Module {
 public:
  Encoder(const EncoderConfig& config, std::int64_t in, const nn::Fused& fused)
      : config_(config), fused_(fused), adds_input_(config.residual && in == config.dims.back()) {
    const auto mlp = register_module("mlp", std::make_shared<Holder>());
    for (std::size_t i = 0; i < config.dims.size(); ++i) {
      layers_.push_back(linear_weights(in, config.dims[i]));
      in = config.dims[i];
      mlp->put(std::to_string(i) + (is_active(i) ? ".linear" : ""), layers_.back());
    }
  }
  void initialise(at::Generator& generator) {
    for (const auto& layer : layers_) layer->initialise(generator);
  }
  at::Tensor forward(const at::Tensor& behavior) const {
    at::Tensor x = behavior;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      x = nn::linear(x, layers_[i]->weight, layers_[i]->bias, fused_);
      const bool drops = is_training() && i + 1 < layers_.size();
      if (is_active(i)) x = activated(x, drops ? config_.dropout : 0.0);
    }
    return adds_input_ ? x + behavior : x;
  }

 private:
  [[nodiscard]] at::Tensor activated(const at::Tensor& x, double dropout) const {
    if (config_.activation == EncoderActivation::silu) return nn::dropout(at::silu(x), dropout, fused_);
    return nn::gelu_dropout(x, dropout, fused_);
  }
  [[nodiscard]] bool is_active(std::size_t layer) const {
    return layer + 1 < config_.dims.size() || config_.last_layer_activation;
  }
  EncoderConfig config_;
  nn::Fused fused_;
  bool adds_input_;
  std::vector<std::shared_ptr<Weights>> layers_;
};

// The base class of modulators that use one frame and an encoder of behaviour.
class Encoded : public Modulator {
 public:
  Encoded(const ModulatorConfig& config, std::int64_t behavior_dim, const nn::Fused& fused)
      : fused_(fused),
        encoder_(register_module("encoder", std::make_shared<Encoder>(config.encoder_params, behavior_dim, fused))) {}
  bool reads_last_frame_only() const override { return true; }
  void initialise(at::Generator& generator) override { encoder_->initialise(generator); }

 protected:
  // Applies a layer that gives a number for each channel: (N, out, 1, 1).
  [[nodiscard]] at::Tensor per_channel(const at::Tensor& encoded, const Weights& head) const {
    return nn::linear(encoded, head.weight, head.bias, fused_).unsqueeze(2).unsqueeze(3);
  }
  nn::Fused fused_;
  std::shared_ptr<Encoder> encoder_;
};

class Film final : public Encoded {
 public:
  Film(const ModulatorConfig& config, std::int64_t channels, std::int64_t behavior_dim, const nn::Fused& fused)
      : Encoded(config, behavior_dim, fused) {
    scale_ = register_module("scale_layer", linear_weights(config.encoder_params.dims.back(), channels));
    shift_ = register_module("shift_layer", linear_weights(config.encoder_params.dims.back(), channels));
  }
  Modulated forward(const at::Tensor& features, const at::Tensor& behavior) override {
    const at::Tensor encoded = encoder_->forward(behavior);
    return {at::addcmul(per_channel(encoded, *shift_), per_channel(encoded, *scale_), last_frame(features)), {}};
  }
  void initialise(at::Generator& generator) override {
    Encoded::initialise(generator);
    scale_->weight.fill_(1.0);
    for (const at::Tensor& zero : {scale_->bias, shift_->weight, shift_->bias}) zero.zero_();
  }

 private:
  std::shared_ptr<Weights> scale_, shift_;
};

class Concat final : public Encoded {
 public:
  using Encoded::Encoded;
  Modulated forward(const at::Tensor& features, const at::Tensor& behavior) override {
    const at::Tensor last = last_frame(features), encoded = encoder_->forward(behavior);
    const at::Tensor map = encoded.unsqueeze(2).unsqueeze(3).expand({last.size(0), encoded.size(1), last.size(2), last.size(3)});
    return {at::cat({last, map.to(last.scalar_type())}, 1), {}};
  }
};

// Moves the frame by an affine map, and blends the result with the original frame. Each channel has its own weight for the
// blend.
class SpatialTransformer final : public Encoded {
 public:
  SpatialTransformer(const ModulatorConfig& config, std::int64_t channels, std::int64_t behavior_dim, const nn::Fused& fused)
      : Encoded(config, behavior_dim, fused) {
    theta_ = register_module("theta_head", linear_weights(config.encoder_params.dims.back(), 6));
    alpha_ = register_module("alpha_head", linear_weights(config.encoder_params.dims.back(), channels));
  }
  Modulated forward(const at::Tensor& features, const at::Tensor& behavior) override {
    const at::Tensor last = wide(last_frame(features)), encoded = encoder_->forward(behavior);
    const at::Tensor theta = wide(nn::linear(encoded, theta_->weight, theta_->bias, fused_)).view({-1, 2, 3});
    const at::Tensor grid = at::affine_grid_generator(theta, last.sizes(), false);
    const at::Tensor moved = at::grid_sampler(last, grid, 0, 0, false);  // bilinear, with zeros outside
    return {at::lerp(last, moved, wide(at::sigmoid(per_channel(encoded, *alpha_)))), {}};
  }
  void initialise(at::Generator& generator) override {
    Encoded::initialise(generator);
    for (const at::Tensor& zero : {theta_->weight, theta_->bias, alpha_->weight, alpha_->bias}) zero.zero_();
    theta_->bias[0].fill_(1.0);
    theta_->bias[4].fill_(1.0);
  }

 private:
  std::shared_ptr<Weights> theta_, alpha_;
};

}  // namespace

std::shared_ptr<Modulator> make_modulator(const ModulatorConfig& config, std::int64_t channels, std::int64_t behavior_dim,
                                          const nn::Fused& fused) {
  switch (config.type) {
    case ModulatorType::convgru:
      return std::make_shared<ConvGruModulator>(config, channels, behavior_dim, fused);
    case ModulatorType::pc:
      return std::make_shared<PredictiveCoding>(config, channels, behavior_dim, fused);
    case ModulatorType::film:
      return std::make_shared<Film>(config, channels, behavior_dim, fused);
    case ModulatorType::concat:
      return std::make_shared<Concat>(config, behavior_dim, fused);
    case ModulatorType::stn:
      return std::make_shared<SpatialTransformer>(config, channels, behavior_dim, fused);
    case ModulatorType::none:
      break;
  }
  return nullptr;
}

}  // namespace millrace::recipes::neural_response
