#include "recipes/cosmology/preprocess.h"

#include <ATen/ops/complex.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/view_as_complex.h>

#include "millrace/device/autocast.h"

namespace millrace::recipes::cosmology {
namespace {

at::Tensor scaled(const at::Tensor& volumes, const RecipeConfig& recipe) {
  const at::Tensor value = volumes * recipe.scale;
  return recipe.target_transform == Transform::arcsinh ? value.asinh() : value;
}

}  // namespace

at::Tensor to_volumes(const at::Tensor& pixels, std::int64_t split) {
  const std::int64_t chunk = pixels.size(3) / 2 / split;
  return pixels.view({pixels.size(0), pixels.size(1), pixels.size(2), split, chunk, 2})
      .permute({0, 3, 5, 4, 2, 1})
      .reshape({pixels.size(0) * split, 2, chunk, pixels.size(2), pixels.size(1)});
}

at::Tensor to_sky(const at::Tensor& volumes, std::int64_t split) {
  const auto size = [&](std::int64_t i) { return volumes.size(i); };
  const at::Tensor parts =
      volumes.reshape({size(0) / split, split, 2, size(2), size(3), size(4)}).permute({0, 5, 4, 1, 3, 2}).contiguous();
  return at::view_as_complex(parts).reshape({size(0) / split, size(4), size(3), split * size(2)});
}

void add_noise(at::Tensor& x, double amp, const nn::RowKey& key) {
  x.add_(nn::normal_rows(key, x.sizes().slice(1), x.options()), amp);
}

at::Tensor clean_by_batch(const at::Tensor& pixels, std::int64_t n_fg) {
  const at::Tensor parts = pixels.unflatten(3, {pixels.size(3) / 2, 2});
  std::vector<at::Tensor> cleaned;
  for (std::int64_t part = 0; part < 2; ++part) {
    const at::Tensor x = parts.select(4, part);
    nn::PcaFit fit;
    fit.add(x);
    cleaned.push_back(fit.finish(n_fg).clean(x));
  }
  return at::stack(cleaned, 4).flatten(3);
}

Volumes preprocess(const at::Tensor& x, const at::Tensor& y, const RecipeConfig& recipe, const nn::ForegroundPca* pca,
                   const nn::RowKey& key, const nn::Fused& fused) {
  const at::NoGradGuard no_grad;
  const device::NoAutocast full(x.device().type());
  at::Tensor pixels = nn::as_pixels(x);
  if (recipe.add_noise && recipe.noise_amp > 0) {
    // add_noise() works in place, and without this copy it would change the batch, whose memory `pixels` may share.
    pixels = pixels.clone();
    add_noise(pixels, recipe.noise_amp, key);
  }
  const at::Tensor clean = pca != nullptr ? pca->clean(pixels, fused) : clean_by_batch(pixels, recipe.n_fg);
  const at::Tensor input = scaled(to_volumes(clean, recipe.split), recipe);
  const at::Tensor target = scaled(to_volumes(nn::as_pixels(y), recipe.split), recipe);
  return {input, recipe.predict_residual ? target - input : target};
}

}  // namespace millrace::recipes::cosmology
