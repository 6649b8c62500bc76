// The losses of both networks, as terms: the trainer divides a sum by its count over the global batch of a step.
#pragma once

#include <ATen/core/Tensor.h>

#include "millrace/core/batch.h"
#include "recipes/autoencoder_3d/config.h"

namespace millrace::recipes::autoencoder_3d {

// Mean absolute or mean squared error over all voxels.
[[nodiscard]] LossTerm reconstruction(const at::Tensor& recon, const at::Tensor& target, ReconLoss kind);

// Kullback-Leibler divergence of each row's latent from a normal distribution, a mean over rows (B): 0.5 sum(m^2 + s^2 - ln(s^2 +
// 1e-8) - 1), s at least 1e-8; fp32, also under autocast. `clamp` > 0 is the largest value of a row; beyond it there is no
// gradient.
[[nodiscard]] LossTerm divergence(const at::Tensor& mean, const at::Tensor& deviation, double clamp);

// Least squares of a discriminator's judgement (Mao et al. 2017, "Least squares generative adversarial networks"): mean over
// patches of (a(logit) - goal)^2, a = leaky ReLU of slope 0.05; goal 1 = real, 0 = generated.
[[nodiscard]] LossTerm judgement(const at::Tensor& logits, double goal);
// Whether each patch is rightly judged real (goal 1) or generated (goal 0): a(logit) on the right side of 1/2.
[[nodiscard]] at::Tensor judged_right(const at::Tensor& logits, double goal);

}  // namespace millrace::recipes::autoencoder_3d
