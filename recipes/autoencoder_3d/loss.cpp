#include "recipes/autoencoder_3d/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/leaky_relu.h>

#include <algorithm>
#include <array>

#include "millrace/device/autocast.h"
#include "millrace/nn/clamp.h"
#include "millrace/nn/losses.h"

namespace millrace::recipes::autoencoder_3d {
namespace {

constexpr double kJudgementSlope = 0.05;
constexpr double kLeastDeviation = 1e-8;

at::Tensor activated(const at::Tensor& logits) { return at::leaky_relu(logits.to(at::kFloat), kJudgementSlope); }

}  // namespace

LossTerm reconstruction(const at::Tensor& recon, const at::Tensor& target, ReconLoss kind) {
  LossTerm term = kind == ReconLoss::l1 ? nn::mean_absolute_error(recon, target) : nn::mean_squared_error(recon, target);
  term.name = "recon";
  return term;
}

LossTerm divergence(const at::Tensor& mean, const at::Tensor& deviation, double clamp) {
  const device::NoAutocast full(mean.device().type());
  const at::Tensor variance = deviation.to(at::kFloat).clamp_min(kLeastDeviation).square();
  const at::Tensor each = mean.to(at::kFloat).square() + variance - (variance + kLeastDeviation).log() - 1;
  at::Tensor rows = each.flatten(1).sum(1) * 0.5;
  if (clamp > 0) rows = nn::clamp(rows, 0, clamp, "the divergence (recipe.kl_clamp)");
  const auto count = static_cast<double>(rows.size(0));
  return {.sum = rows.sum(),
          .count = at::full({}, count, rows.options()),
          .nominal_count = std::max(count, 1.0),
          .name = "kl",
          .per_row = true};
}

LossTerm judgement(const at::Tensor& logits, double goal) {
  const at::Tensor judged = activated(logits);
  return nn::mean_squared_error(judged, at::full({}, goal, judged.options()).expand_as(judged));
}

at::Tensor judged_right(const at::Tensor& logits, double goal) {
  const at::Tensor real = activated(logits).gt(0.5);
  return goal > 0.5 ? real : real.logical_not();
}

}  // namespace millrace::recipes::autoencoder_3d
