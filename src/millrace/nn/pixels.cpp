#include "millrace/nn/pixels.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/core/batch.h"
#include "millrace/kernels/operation_span.h"
#include "millrace/kernels/parallel.h"

namespace millrace::nn {
namespace {

constexpr std::size_t kPlanes = 3;
constexpr std::array<float, kPlanes> kMean = {.48145466F, .4578275F, .40821073F},
                                     kDeviation = {.26862954F, .26130258F, .27577711F};  // for values in [0, 1]

using ByteTables = std::array<std::array<float, 256>, kPlanes>;  // for each plane, the result for each byte value

ByteTables byte_tables() {
  ByteTables all{};
  for (std::size_t c = 0; c < kPlanes; ++c) {
    for (std::size_t value = 0; value < all[c].size(); ++value)
      all[c][value] = (static_cast<float>(value) / 255.0F - kMean[c]) / kDeviation[c];
  }
  return all;
}

void to_planes(const ByteTables& of, const std::uint8_t* pixels, std::size_t count, float* out) {
  for (std::size_t i = 0; i < count; ++i, pixels += kPlanes) {
    for (std::size_t c = 0; c < kPlanes; ++c) out[c * count + i] = of[c][pixels[c]];
  }
}

// Converts in a single pass, because on a CPU several passes over values that exceed the caches would cost more than the fast
// decoding of images saves.
at::Tensor on_host(const at::Tensor& images) {
  const kernels::OperationSpan span("millrace::to_planes", images);
  static const ByteTables of = byte_tables();
  std::vector<std::int64_t> shape = images.sizes().vec();
  const std::int64_t height = shape[shape.size() - 3], width = shape[shape.size() - 2], places = height * width;
  shape.insert(shape.end() - 3, static_cast<std::int64_t>(kPlanes));
  shape.pop_back();
  const at::Tensor bytes = images.contiguous();
  at::Tensor values = at::empty(shape, images.options().dtype(at::kFloat));
  const auto* const from = bytes.const_data_ptr<std::uint8_t>();
  auto* const to = values.mutable_data_ptr<float>();
  const std::int64_t image = places * static_cast<std::int64_t>(kPlanes);
  kernels::parallel(image == 0 ? 0 : bytes.numel() / image, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) to_planes(of, from + i * image, static_cast<std::size_t>(places), to + i * image);
  });
  return values;
}

}  // namespace

at::Tensor clip_pixels(const at::Tensor& images) {
  const at::NoGradGuard no_grad;
  if (images.scalar_type() != at::kByte || images.dim() < 3 || images.size(-1) != static_cast<std::int64_t>(kPlanes)) {
    throw DataError(
        {"nn::clip_pixels takes u8 [...,height,width,3], but was given " + to_text(Tensors{{"images", images}}),
         "nn::clip_pixels",
         "bring them to that form in prepare(): narrow(-1, 0, 3) drops a fourth channel, expand() repeats a grey one"});
  }
  if (images.is_cpu()) return on_host(images);
  // Made on the device, because a copy from the host would need a wait.
  const auto filled = [&](const std::array<float, kPlanes>& of) {
    at::Tensor values = at::empty({static_cast<std::int64_t>(kPlanes), 1, 1}, images.options().dtype(at::kFloat));
    for (std::size_t i = 0; i < kPlanes; ++i) values[static_cast<std::int64_t>(i)].fill_(of[i]);
    return values;
  };
  const at::Tensor mean = filled(kMean), deviation = filled(kDeviation);
  return images.movedim(-1, -3).to(at::kFloat, false, false, at::MemoryFormat::Contiguous).div_(255).sub_(mean).div_(deviation);
}

}  // namespace millrace::nn
