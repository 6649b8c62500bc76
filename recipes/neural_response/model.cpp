#include "recipes/neural_response/model.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/zeros.h>

#include <iterator>
#include <optional>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/core/random.h"
#include "millrace/device/autocast.h"
#include "millrace/memory/block.h"

namespace millrace::recipes::neural_response {
namespace {

constexpr double kLeastLogRate = -20.0;
constexpr double kLeastRate = 1e-8;

}  // namespace

DigitalTwin::DigitalTwin(const ModelConfig& config, std::vector<SessionShape> sessions, std::uint64_t seed,
                         const nn::Fused& fused)
    : config_(config), sessions_(std::move(sessions)), fused_(fused) {
  if (auto problems = shape_problems(config_); !problems.empty()) throw ConfigError(std::move(problems));
  const auto adapters = register_module("adapters", std::make_shared<Holder>());
  for (std::size_t k = 0; k < sessions_.size() && config_.adapter.type != AdapterType::none; ++k) {
    adapters_.push_back(std::make_shared<Adapter>(config_.adapter, fused_));
    adapters->put(std::to_string(k), adapters_.back());
  }
  std::int64_t channels = 1;
  if (config_.frontend.type != FrontendType::none) {
    frontend_ = register_module("frontend", std::make_shared<Frontend>(config_.frontend, config_.lag_order, fused_));
    channels = config_.frontend.num_channels;
  }
  if (config_.convnet.type != ConvnetType::none)
    convnet_ = register_module("convnet", std::make_shared<Convnet>(config_.convnet, channels, fused_));
  modulator_ = make_modulator(config_.modulator, feature_channels(config_), config_.behavior_dim, fused_);
  if (modulator_ != nullptr) register_module("modulator", modulator_);
  const auto readouts = register_module("readouts", std::make_shared<Holder>());
  for (std::size_t k = 0; k < sessions_.size(); ++k) {
    readouts_.push_back(make_readout(config_.readout, readout_channels(config_), sessions_[k]));
    readouts->put(std::to_string(k), readouts_.back());
  }
  const at::NoGradGuard no_grad;
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  if (frontend_ != nullptr) frontend_->initialise(generator);
  if (convnet_ != nullptr) convnet_->initialise(generator);
  if (modulator_ != nullptr) modulator_->initialise(generator);
  for (const auto& readout : readouts_) readout->initialise(generator);
}

// Computes everything between the adapters and the readouts.
DigitalTwin::Shared DigitalTwin::core(const at::Tensor& stim, const at::Tensor& behavior) {
  if (fused_.on(kNeededOnly)) nn::count_taken<kNeededOnly>();
  const bool last_frame_only = modulator_ == nullptr || modulator_->reads_last_frame_only();
  at::Tensor x = stim;
  if (is_modulator_only(config_)) x = at::ones({stim.size(0), 1, 1, 1, 1}, stim.options().dtype(wide_type(stim)));
  if (frontend_ != nullptr) x = frontend_->forward(x);
  x = x.transpose(1, 2);  // (N, T, C, H, W) from here on, as the core's frames are
  if (convnet_ != nullptr) x = convnet_->forward(x, last_frame_only, channels_last_);
  if (modulator_ == nullptr) return {x.select(1, x.size(1) - 1), {}};
  const Modulated out =
      memory::block("modulator", *modulator_, [modulator = modulator_, x, behavior] { return modulator->forward(x, behavior); });
  return {out.features, out.error_square};
}

at::Tensor DigitalTwin::adapted(const Rows& rows) {
  return adapters_.empty() ? rows.stim : adapters_[rows.session]->forward(rows.stim);
}

at::Tensor DigitalTwin::rates(std::size_t session, const at::Tensor& features) {
  const device::NoAutocast fp32(features.device().type());
  const at::Tensor out = readouts_[session]->forward(features);
  if (config_.output_activation == Activation::softplus) return at::softplus(out).clamp_min(kLeastRate);
  return out.clamp_min(kLeastLogRate);
}

// Computes the readout and the error of a session from the core's rows [first, first + n).
void DigitalTwin::read(const Rows& rows, const Shared& shared, std::int64_t first, Predicted& out) {
  const std::int64_t n = rows.stim.size(0);
  const auto options = rows.stim.options().dtype(wide_type(rows.stim));
  if (n == 0) {
    out.rates.push_back(at::zeros({0, sessions_[rows.session].units}, options));
  } else {
    out.rates.push_back(rates(rows.session, shared.features.narrow(0, first, n)));
  }
  if (!is_training() || config_.modulator.type != ModulatorType::pc) return;
  out.error_square_mean.push_back(n == 0 ? at::zeros({}, options) : shared.error_square.narrow(0, first, n).mean());
}

void DigitalTwin::joined(std::span<const Rows> batch, Predicted& out) {
  std::vector<at::Tensor> stim, behavior;
  std::vector<std::int64_t> positions;
  for (const Rows& rows : batch) {
    if (rows.stim.size(0) == 0) continue;
    stim.push_back(adapted(rows));
    behavior.push_back(rows.behavior);
    positions.insert(positions.end(), rows.positions.begin(), rows.positions.end());
  }
  Shared shared;
  if (!stim.empty()) {
    const RowScope of_all_sessions(positions);
    shared = stim.size() == 1 ? core(stim[0], behavior[0]) : core(at::cat(stim, 0), at::cat(behavior, 0));
    ++out.forwards;
  }
  std::int64_t first = 0;
  for (const Rows& rows : batch) {
    read(rows, shared, first, out);
    first += rows.stim.size(0);
  }
}

void DigitalTwin::apart(std::span<const Rows> batch, Predicted& out) {
  const auto place = RandomScope::position();
  for (const Rows& rows : batch) {
    // Draws the same random numbers as the joined core draws for these rows, so that the same elements are dropped.
    std::optional<RandomScope> again;
    if (place) again.emplace(*place);
    const RowScope of_session(rows.positions);
    Shared shared;
    if (rows.stim.size(0) > 0) {
      shared = core(adapted(rows), rows.behavior);
      ++out.forwards;
    }
    read(rows, shared, 0, out);
  }
}

Predicted DigitalTwin::forward(std::span<const Rows> batch) {
  for (const Rows& rows : batch) {
    MR_CHECK(rows.session < sessions_.size() && rows.stim.dim() == 5 && rows.stim.size(1) == 1 && rows.behavior.dim() == 2 &&
                 rows.behavior.size(0) == rows.stim.size(0) &&
                 (rows.positions.empty() || std::ssize(rows.positions) == rows.stim.size(0)),
             "rows belong to a session of the model: (N, 1, L, H, W), (N, B), and N positions or no positions");
  }
  Predicted out;
  if (nn::choose<kJoinedCore>(fused_)) {
    joined(batch, out);
  } else {
    apart(batch, out);
  }
  return out;
}

std::vector<std::string> DigitalTwin::names_of(bool heads) const {
  std::vector<std::string> names;
  for (const auto& named : named_parameters()) {
    const bool head = named.key().starts_with("adapters.") || named.key().starts_with("readouts.");
    if (head == heads) names.push_back(named.key());
  }
  return names;
}

std::vector<std::string> DigitalTwin::core_parameters() const { return names_of(false); }
std::vector<std::string> DigitalTwin::head_parameters() const { return names_of(true); }

at::Tensor DigitalTwin::masks(std::size_t session, std::int64_t height, std::int64_t width) const {
  const at::NoGradGuard no_grad;
  return readouts_[session]->masks(height, width);
}

}  // namespace millrace::recipes::neural_response
