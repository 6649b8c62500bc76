// Turns visibilities into the network's input, on their device: adds noise, removes the foreground, scales, changes the layout.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "millrace/nn/noise.h"
#include "millrace/nn/pca.h"
#include "recipes/cosmology/config.h"

namespace millrace::recipes::cosmology {

// to_volumes() turns complex (B, baselines, frequencies, RA) into (B * split, 2, RA / split, frequencies, baselines). Chunk c of
// row b gets the index b * split + c. to_sky() is the inverse.
[[nodiscard]] at::Tensor to_volumes(const at::Tensor& pixels, std::int64_t split);  // `pixels`: a result of as_pixels(), (B, bl,
                                                                                    // f, 2 RA) real numbers
[[nodiscard]] at::Tensor to_sky(const at::Tensor& volumes, std::int64_t split);     // returns complex numbers

// Adds amp * a normal random number to each real and each imaginary part. x is a result of as_pixels() and is changed in place.
void add_noise(at::Tensor& x, double amp, const nn::RowKey& key);

// For pca="batch": removes foreground components that are computed from this batch only. Real and imaginary parts have separate
// means and components.
[[nodiscard]] at::Tensor clean_by_batch(const at::Tensor& pixels, std::int64_t n_fg);

struct Volumes {
  at::Tensor input, target;
};
// Adds noise, removes the foreground, scales and changes the layout, in this order. The foreground is never removed from the
// target, because the target has none. Computed in fp32, also under autocast. If `pca` is null, clean_by_batch() removes the
// foreground.
[[nodiscard]] Volumes preprocess(const at::Tensor& x, const at::Tensor& y, const RecipeConfig& recipe,
                                 const nn::ForegroundPca* pca, const nn::RowKey& key, const nn::Fused& fused = {});

}  // namespace millrace::recipes::cosmology
