#include "recipes/autoencoder_3d/perceptual.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/philox.h"
#include "recipes/common/weights.h"

namespace millrace::recipes::autoencoder_3d {
namespace {

// The layers of SqueezeNet 1.1: its first convolution, pools, and "fire" modules.
enum class Kind : std::uint8_t { convolution, pool, fire };
struct Layer {
  int number;  // index in torchvision's list "features"
  Kind kind;
  int slice;  // number of the slice in the package lpips, from 1
  bool tap;   // true: a "tap", which means that LPIPS compares the outputs of this layer; seven layers are taps
  std::int64_t in = 0, squeezed = 0, out = 0;
};
constexpr std::array<Layer, 12> kLayers = {{{0, Kind::convolution, 1, true, 3, 0, 64},
                                            {2, Kind::pool, 2, false},
                                            {3, Kind::fire, 2, false, 64, 16, 128},
                                            {4, Kind::fire, 2, true, 128, 16, 128},
                                            {5, Kind::pool, 3, false},
                                            {6, Kind::fire, 3, false, 128, 32, 256},
                                            {7, Kind::fire, 3, true, 256, 32, 256},
                                            {8, Kind::pool, 4, false},
                                            {9, Kind::fire, 4, true, 256, 48, 384},
                                            {10, Kind::fire, 5, true, 384, 48, 384},
                                            {11, Kind::fire, 6, true, 384, 64, 512},
                                            {12, Kind::fire, 7, true, 512, 64, 512}}};
constexpr std::array<double, 3> kShift = {-0.030, -0.088, -0.188};
constexpr std::array<double, 3> kScale = {0.458, 0.448, 0.450};
constexpr double kTiny = 1e-10;  // the small number that the package lpips adds to avoid a division by 0

std::string name_of(const Layer& layer) { return "net.slice" + std::to_string(layer.slice) + "." + std::to_string(layer.number); }
std::string head_name(std::size_t tap) { return "lin" + std::to_string(tap) + ".model.1.weight"; }

// Returns the tensor that is called `name` or has another accepted form of this name; null if there is no such tensor.
const at::Tensor* find(const Tensors& tensors, const std::string& name) {
  std::vector<std::string> names = {name};
  if (name.starts_with("net.slice")) names.push_back("features." + name.substr(name.find('.', 4) + 1));
  for (const std::string& each : names) {
    for (const std::string& prefix : {std::string(), std::string("perceptual_function.")}) {
      if (const auto found = tensors.find(prefix + each); found != tensors.end()) return &found->second;
    }
  }
  return nullptr;
}

// The slices of x (B, C, D, H, W) across `axis`, as images (B * n * C, 3, rows, columns). Each channel of a slice becomes an
// image of its own.
at::Tensor images_of(const at::Tensor& x, std::int64_t axis, const at::Tensor& numbers) {
  const std::int64_t rows = x.size(0), size = x.size(axis + 2);
  const at::Tensor first = x.movedim(axis + 2, 1);  // (B, size, C, a, b)
  const at::Tensor places = (numbers + at::arange(rows, numbers.options()).unsqueeze(1) * size).reshape({-1});
  const at::Tensor taken = first.reshape({rows * size, first.size(2), first.size(3), first.size(4)}).index_select(0, places);
  return taken.reshape({-1, 1, taken.size(2), taken.size(3)}).expand({-1, 3, -1, -1});
}

}  // namespace

Slices drawn_slices(const nn::RowKey& key, const std::array<std::int64_t, 3>& size) {
  Slices slices;
  const auto rows = static_cast<std::int64_t>(key.positions.size());
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const auto count = std::max<std::int64_t>(1, static_cast<std::int64_t>(kSlicePart * static_cast<double>(size[axis])));
    slices[axis] = at::empty({rows, count}, at::kLong);
    auto* out = slices[axis].mutable_data_ptr<std::int64_t>();
    for (std::int64_t row = 0; row < rows; ++row) {
      Philox draws(make_key(key.seed, key.site, key.epoch, key.positions[static_cast<std::size_t>(row)], axis));
      std::vector<std::int64_t> all(static_cast<std::size_t>(size[axis]));
      std::iota(all.begin(), all.end(), 0);
      for (std::int64_t i = 0; i < count; ++i) {  // shuffles only as far as needed for the first `count` entries
        const auto at = static_cast<std::size_t>(i);
        std::swap(all[at], all[at + static_cast<std::size_t>(draws.below(static_cast<std::uint64_t>(size[axis] - i)))]);
        *out++ = all[at];
      }
    }
  }
  return slices;
}

Perceptual::Perceptual(const std::filesystem::path& from, bool maps) : Perceptual(tensors_of(quiet_weights(from)), maps, from) {}

Perceptual::Perceptual(const Tensors& weights, bool maps, const std::filesystem::path& from)
    : torch::nn::Module("Perceptual"), maps_(maps) {
  const auto keep = [&](const std::string& name, const std::vector<std::int64_t>& shape) {
    const at::Tensor* found = find(weights, name);
    if (found == nullptr || found->sizes() != at::IntArrayRef(shape)) {
      throw SnapshotError({found == nullptr ? "the perceptual network's weights have no " + name
                                            : "the perceptual network's " + name + " has another shape than LPIPS's SqueezeNet",
                           from.string(), "give the state dict of lpips.LPIPS(net=\"squeeze\") as a safetensors file"});
    }
    std::string buffer = name;
    std::ranges::replace(buffer, '.', '_');  // dots are replaced, because a buffer's name must not contain dots
    weights_[name] = register_buffer(buffer, found->detach().to(at::kFloat).clone());
  };
  std::size_t tap = 0;
  for (const Layer& layer : kLayers) {
    const std::string name = name_of(layer);
    const auto convolution = [&](const std::string& part, std::int64_t out, std::int64_t in, std::int64_t kernel) {
      keep(name + part + ".weight", {out, in, kernel, kernel});
      keep(name + part + ".bias", {out});
    };
    if (layer.kind == Kind::convolution) convolution("", layer.out, layer.in, 3);
    if (layer.kind == Kind::fire) {
      convolution(".squeeze", layer.squeezed, layer.in, 1);
      convolution(".expand1x1", layer.out / 2, layer.squeezed, 1);
      convolution(".expand3x3", layer.out / 2, layer.squeezed, 3);
    }
    if (layer.tap) keep(head_name(tap++), {1, layer.out, 1, 1});
  }
}

const at::Tensor& Perceptual::weight(const std::string& name) const { return weights_.find(name)->second; }

std::array<at::Tensor, 7> Perceptual::features(const at::Tensor& images) const {
  std::array<at::Tensor, 7> taps;
  std::size_t tap = 0;
  at::Tensor x = images;
  for (const Layer& layer : kLayers) {
    const auto convolved = [&](const at::Tensor& input, const std::string& part, std::int64_t stride, std::int64_t padding) {
      const std::string name = name_of(layer) + part;
      return at::conv2d(input, weight(name + ".weight"), weight(name + ".bias"), stride, padding).relu();
    };
    if (layer.kind == Kind::pool) {
      x = at::max_pool2d(x, 3, 2, 0, 1, true);
    } else if (layer.kind == Kind::convolution) {
      x = convolved(x, "", 2, 0);
    } else {
      const at::Tensor squeezed = convolved(x, ".squeeze", 1, 0);
      x = at::cat({convolved(squeezed, ".expand1x1", 1, 0), convolved(squeezed, ".expand3x3", 1, 1)}, 1);
    }
    if (!layer.tap) continue;
    const at::Tensor wide = x.to(at::kFloat);
    // If all channels are 0, the square root would have no derivative. kTiny^2 keeps the derivative finite, and the quotient is
    // then 0.
    taps.at(tap++) = wide / ((wide.square().sum(1, true) + kTiny * kTiny).sqrt() + kTiny);
  }
  return taps;
}

at::Tensor Perceptual::distances(const at::Tensor& recon, const at::Tensor& target, const Slices& slices) const {
  if (!range_.defined() || range_.device() != recon.device())
    // host: copied to the device once, not in each step
    range_ = at::stack({at::tensor(at::ArrayRef<double>(kShift)), at::tensor(at::ArrayRef<double>(kScale))})
                 .view({2, 1, 3, 1, 1})
                 .to(recon.device());
  const auto scaled = [&](const at::Tensor& images) {
    const at::Tensor shift = range_[0].to(images.scalar_type()), scale = range_[1].to(images.scalar_type());
    return ((maps_ ? images * 2 - 1 : images) - shift) / scale;
  };
  at::Tensor sum;
  for (std::int64_t axis = 0; axis < 3; ++axis) {
    const at::Tensor& numbers = slices.at(static_cast<std::size_t>(axis));
    const std::array<at::Tensor, 7> ours = features(scaled(images_of(recon, axis, numbers)));
    std::array<at::Tensor, 7> theirs;
    {
      const at::NoGradGuard no_grad;
      theirs = features(scaled(images_of(target, axis, numbers)));
    }
    at::Tensor of_images;
    for (std::size_t tap = 0; tap < ours.size(); ++tap) {
      const at::Tensor weighed = (ours.at(tap) - theirs.at(tap)).square() * weight(head_name(tap));
      const at::Tensor distance = weighed.sum(1).mean(at::IntArrayRef{1, 2});
      of_images = of_images.defined() ? of_images + distance : distance;
    }
    const at::Tensor of_rows = of_images.reshape({recon.size(0), -1}).mean(1);
    sum = sum.defined() ? sum + of_rows : of_rows;
  }
  return sum;
}

}  // namespace millrace::recipes::autoencoder_3d
