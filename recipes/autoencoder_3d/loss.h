// The losses of the autoencoder and of the discriminator. Each is a term with a sum and a count: the trainer divides the sum by
// the count over the global batch of a step.
#pragma once

#include <ATen/core/Tensor.h>

#include "millrace/core/batch.h"
#include "recipes/autoencoder_3d/config.h"

namespace millrace::recipes::autoencoder_3d {

// The mean absolute or mean squared error over all voxels.
[[nodiscard]] LossTerm reconstruction(const at::Tensor& recon, const at::Tensor& target, ReconLoss kind);

// The Kullback-Leibler divergence of each row's latent from a normal distribution, as a mean over the B rows: 0.5 sum(m^2 + s^2
// - ln(s^2 + 1e-8) - 1), where s is at least 1e-8. Computed in fp32, also under autocast. If `clamp` > 0, a row's value is
// limited to `clamp`; a row whose value is limited has no gradient.
[[nodiscard]] LossTerm divergence(const at::Tensor& mean, const at::Tensor& deviation, double clamp);

// The least-squares loss of the discriminator's judgement (Mao et al. 2017, "Least squares generative adversarial networks"): the
// mean over patches of (a(logit) - goal)^2, where a is a leaky ReLU of slope 0.05 and goal is 1 for real or 0 for generated.
[[nodiscard]] LossTerm judgement(const at::Tensor& logits, double goal);
// For each patch, true if the discriminator rightly judges it to be real (goal 1) or generated (goal 0). It judges a patch to be
// real if a(logit) > 1/2, where a is the leaky ReLU of judgement().
[[nodiscard]] at::Tensor judged_right(const at::Tensor& logits, double goal);

}  // namespace millrace::recipes::autoencoder_3d
