#include "recipes/neural_response/readout.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>

#include <algorithm>
#include <cmath>

#include "millrace/base/error.h"
#include "millrace/device/autocast.h"

namespace millrace::recipes::neural_response {
namespace {

constexpr double kLeastDeviation = 1e-3;
constexpr float kLeastMeanCount = 1e-3F;

void initialise_bias(const at::Tensor& bias, const ReadoutConfig& config, const SessionShape& session) {
  if (!bias.defined()) return;
  bias.zero_();
  if (!config.bias_from_rates || session.mean_counts.empty()) return;
  MR_CHECK(static_cast<std::int64_t>(session.mean_counts.size()) == session.units, "a mean count for each unit");
  for (std::size_t u = 0; u < session.mean_counts.size(); ++u)
    bias[static_cast<std::int64_t>(u)].fill_(std::log(std::max(session.mean_counts[u], kLeastMeanCount)));
}

class Gaussian final : public Readout {
 public:
  Gaussian(const ReadoutConfig& config, std::int64_t channels, SessionShape session)
      : config_(config), session_(std::move(session)) {
    const std::int64_t n = session_.units;
    features_ = register_module("features", std::make_shared<Weights>(std::vector<std::int64_t>{n, channels, 1, 1}, false));
    mean_ = register_parameter("mean", at::empty({n, 2}, at::kFloat));
    std_ = register_parameter("std", at::empty({n, 2}, at::kFloat));
    theta_ = register_parameter("theta", at::empty({n}, at::kFloat));
    if (config.bias) bias_ = register_parameter("bias", at::empty({n}, at::kFloat));
  }

  void initialise(at::Generator& generator) override {
    features_->initialise(generator);
    mean_.normal_(0.0, 1.0, generator).mul_(config_.initial_mean_scale);
    std_.fill_(config_.initial_std);
    theta_.zero_();
    initialise_bias(bias_, config_, session_);
  }

  // The exponent is a quadratic form of the pixel's position: a term of the row, a term of the column and a mixed term.
  at::Tensor masks(std::int64_t height, std::int64_t width) const override {
    const auto places = [&](std::int64_t size) {
      return at::arange(size, mean_.options()) - 0.5 * static_cast<double>(size - 1);
    };
    const at::Tensor y = places(height).view({1, -1, 1}) - mean_.select(1, 0).view({-1, 1, 1});  // (n, H, 1)
    const at::Tensor x = places(width).view({1, 1, -1}) - mean_.select(1, 1).view({-1, 1, 1});   // (n, 1, W)
    const at::Tensor cosine = theta_.cos().view({-1, 1, 1}), sine = theta_.sin().view({-1, 1, 1});
    const at::Tensor deviation = std_.clamp_min(kLeastDeviation);
    const at::Tensor first = (y * cosine + x * sine) / deviation.select(1, 0).view({-1, 1, 1});
    const at::Tensor second = (x * cosine - y * sine) / deviation.select(1, 1).view({-1, 1, 1});
    const at::Tensor bell = at::exp(-0.5 * (first.square() + second.square()));
    return bell / (bell.sum({1, 2}, true) + 1e-8);
  }

  // Applies the mask before the features' weights. For n units that leaves n C numbers for each row instead of n H W. Both
  // orders need n C H W multiplications and take the same time, but the product with the mask is a single one over all rows.
  at::Tensor forward(const at::Tensor& features) override {
    const device::NoAutocast fp32(features.device().type());
    const std::int64_t rows = features.size(0), channels = features.size(1), n = session_.units;
    const at::Tensor mask = masks(features.size(2), features.size(3)).view({n, -1});
    const at::Tensor seen = at::linear(wide(features).flatten(2).flatten(0, 1), mask).view({rows, channels, n});
    const at::Tensor out = (seen * features_->weight.view({n, channels}).t()).sum(1);
    return bias_.defined() ? out + bias_ : out;
  }

 private:
  ReadoutConfig config_;
  SessionShape session_;
  std::shared_ptr<Weights> features_;
  at::Tensor mean_, std_, theta_, bias_;
};

class Linear final : public Readout {
 public:
  Linear(const ReadoutConfig& config, std::int64_t channels, SessionShape session)
      : config_(config), session_(std::move(session)) {
    fc_ = register_module("fc", std::make_shared<Weights>(std::vector<std::int64_t>{session_.units, channels}, config.bias));
  }
  void initialise(at::Generator& generator) override {
    fc_->initialise(generator);
    initialise_bias(fc_->bias, config_, session_);
  }
  at::Tensor masks(std::int64_t, std::int64_t) const override { return {}; }
  at::Tensor forward(const at::Tensor& features) override {
    const device::NoAutocast fp32(features.device().type());
    const at::Tensor mean = features.mean({2, 3}, false, wide_type(features));
    return fc_->bias.defined() ? at::linear(mean, fc_->weight, fc_->bias) : at::linear(mean, fc_->weight);
  }

 private:
  ReadoutConfig config_;
  SessionShape session_;
  std::shared_ptr<Weights> fc_;
};

}  // namespace

std::shared_ptr<Readout> make_readout(const ReadoutConfig& config, std::int64_t channels, const SessionShape& session) {
  if (config.type == ReadoutType::linear) return std::make_shared<Linear>(config, channels, session);
  return std::make_shared<Gaussian>(config, channels, session);
}

}  // namespace millrace::recipes::neural_response
