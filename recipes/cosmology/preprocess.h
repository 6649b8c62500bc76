// From visibilities to the network's input, on their device: noise, foreground removal, scale, layout.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "millrace/nn/noise.h"
#include "millrace/nn/pca.h"
#include "recipes/cosmology/config.h"

namespace millrace::recipes::cosmology {

// complex (B, baselines, frequencies, RA) -> (B * split, 2, RA / split, frequencies, baselines), index b * split + chunk; and
// back.
[[nodiscard]] at::Tensor to_volumes(const at::Tensor& pixels, std::int64_t split);  // from as_pixels(): (B, bl, f, 2 RA) reals
[[nodiscard]] at::Tensor to_sky(const at::Tensor& volumes, std::int64_t split);     // complex

// x += amp * normal numbers, for real and imaginary parts alike; x is the result of as_pixels() and is changed in place.
void add_noise(at::Tensor& x, double amp, const nn::RowKey& key);

// pca="batch": real and imaginary part each get a mean and components of this batch alone.
[[nodiscard]] at::Tensor clean_by_batch(const at::Tensor& pixels, std::int64_t n_fg);

struct Volumes {
  at::Tensor input, target;
};
// Order: noise, PCA, scale, layout; the target is never cleaned. fp32 throughout, also under autocast. A null `pca` means
// clean_by_batch().
[[nodiscard]] Volumes preprocess(const at::Tensor& x, const at::Tensor& y, const RecipeConfig& recipe,
                                 const nn::ForegroundPca* pca, const nn::RowKey& key, const nn::Fused& fused = {});

}  // namespace millrace::recipes::cosmology
