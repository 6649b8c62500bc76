// Computes the map of dropout_map.h with tensor operations; 32-bit words are stored in 64-bit integers.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/bitwise_xor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>

#include <array>
#include <cstdint>
#include <vector>

#include "millrace/kernels/detail/dropout_layout.h"
#include "millrace/kernels/dropout_bits.h"
#include "millrace/kernels/dropout_lane.h"
#include "millrace/kernels/plain.h"

namespace millrace::kernels {
namespace {

constexpr std::int64_t kWord = 0xFFFFFFFF;

at::Tensor lower(const at::Tensor& x) { return at::bitwise_and(x, at::Scalar(kWord)); }
at::Tensor upper(const at::Tensor& x) { return lower(at::bitwise_right_shift(x, at::Scalar(32))); }

// philox4x32({c, c >> 32, 0, 0}, key) for all counters c. The product of two words may overflow into the sign, but its bits are
// still right.
std::array<at::Tensor, 4> philox(const at::Tensor& counters, std::uint64_t key) {
  constexpr std::int64_t kA = 0xD2511F53, kB = 0xCD9E8D57;
  std::array<at::Tensor, 4> c = {lower(counters), upper(counters), counters.new_zeros({1}), counters.new_zeros({1})};
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32U);
  for (int round = 0; round < 10; ++round) {
    const at::Tensor a = c[0] * kA, b = c[2] * kB;
    const at::Tensor first = at::bitwise_xor(at::bitwise_xor(upper(b), c[1]), at::Scalar(static_cast<std::int64_t>(k0)));
    const at::Tensor third = at::bitwise_xor(at::bitwise_xor(upper(a), c[3]), at::Scalar(static_cast<std::int64_t>(k1)));
    c = {first, lower(b), third, lower(a)};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return c;
}

}  // namespace

at::Tensor composed_mask(at::IntArrayRef sizes, const Dropout& site, c10::Device device) {
  const at::NoGradGuard no_grad;
  const auto integers = at::TensorOptions(at::kLong).device(device);
  const std::int64_t elements = c10::multiply_integers(sizes);
  const std::int64_t threshold = dropout_threshold(site.p);
  if (elements == 0 || threshold == 0) return at::ones(sizes, integers.dtype(at::kBool));
  if (site.on_device != nullptr) return dropout(at::ones(sizes, integers.dtype(at::kFloat)), site).ne(0);
  const std::vector<DropoutRun> stretches = dropout_runs(site, elements);
  std::vector<at::Tensor> counters;
  for (const DropoutRun& stretch : stretches) {
    const std::int64_t first = stretch.first / kDropoutGroup * detail::kLanesOfGroup;
    counters.push_back(at::arange(first, first + detail::lanes_of(stretch.first, stretch.count), integers));
  }
  const std::array<at::Tensor, 4> words = philox(at::cat(counters), site.key);
  // A site's elements are in the order (groups, words, blocks, halves).
  std::vector<at::Tensor> of_words;
  for (const at::Tensor& word : words) {
    const at::Tensor blocks = word.view({-1, detail::kLanesOfGroup});
    of_words.push_back(
        at::stack({at::bitwise_and(blocks, at::Scalar(0xFFFF)), at::bitwise_right_shift(blocks, at::Scalar(16))}, -1));
  }
  const at::Tensor keeps = at::stack(of_words, 1).ge(at::Scalar(threshold)).flatten();
  std::vector<at::Tensor> parts;
  std::int64_t begin = 0;
  for (const DropoutRun& stretch : stretches) {
    parts.push_back(keeps.narrow(0, begin + stretch.first % kDropoutGroup, stretch.count));
    begin += detail::lanes_of(stretch.first, stretch.count) / detail::kLanesOfGroup * kDropoutGroup;
  }
  return at::cat(parts).view(sizes);
}

}  // namespace millrace::kernels
