#include "millrace/device/attention_guard.h"

#include <ATen/Parallel.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward_native.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_native.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <tuple>

namespace millrace::device {
namespace {

// Each thread asks oneDNN for the matrix product of its own block. If the blocks have the same shape, oneDNN returns the same
// object to all threads. Each call writes the tiles' configuration into that object and then loads it, so the calls race.
constexpr Fault kSharedTiles{
    .name = "pytorch-187912",
    .reported = "pytorch/pytorch #187912, uxlfoundation/oneDNN #5393",
    .what = "fused attention in bf16 and fp16 by several threads: it crashes or writes beyond its memory",
    .from = OnednnIsa::amx,
    .to = OnednnIsa::amx,
    .fixed_in = {},
    .format = std::nullopt,
    .pass = std::nullopt,
    .hits = nullptr,
    .instead = Instead::fp32};

std::atomic<bool> in_force{false};
std::atomic<std::int64_t> gone_around{0};

bool is_hit(const at::Tensor& query) {
  const bool is_half = query.scalar_type() == at::kBFloat16 || query.scalar_type() == at::kHalf;
  if (!is_half || !in_force.load(std::memory_order_relaxed) || at::get_num_threads() < 2) return false;
  gone_around.fetch_add(1, std::memory_order_relaxed);
  return true;
}

at::Tensor wide(const at::Tensor& tensor) { return tensor.to(at::kFloat); }

std::optional<at::Tensor> wide_mask(const std::optional<at::Tensor>& mask) {
  return mask && mask->defined() && mask->scalar_type() != at::kBool ? std::optional(wide(*mask)) : mask;
}

std::tuple<at::Tensor, at::Tensor> attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                             double dropout, bool is_causal, const std::optional<at::Tensor>& mask,
                                             std::optional<double> scale) {
  if (!is_hit(query))
    return at::native::_scaled_dot_product_flash_attention_cpu(query, key, value, dropout, is_causal, mask, scale);
  const auto [out, sums] = at::native::_scaled_dot_product_flash_attention_cpu(wide(query), wide(key), wide(value), dropout,
                                                                               is_causal, wide_mask(mask), scale);
  return {out.to(query.scalar_type()), sums};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> attention_backward(const at::Tensor& gradient, const at::Tensor& query,
                                                                  const at::Tensor& key, const at::Tensor& value,
                                                                  const at::Tensor& out, const at::Tensor& sums, double dropout,
                                                                  bool is_causal, const std::optional<at::Tensor>& mask,
                                                                  std::optional<double> scale) {
  if (!is_hit(query)) {
    return at::native::_scaled_dot_product_flash_attention_cpu_backward(gradient, query, key, value, out, sums, dropout,
                                                                        is_causal, mask, scale);
  }
  const auto [of_query, of_key, of_value] = at::native::_scaled_dot_product_flash_attention_cpu_backward(
      wide(gradient), wide(query), wide(key), wide(value), wide(out), sums, dropout, is_causal, wide_mask(mask), scale);
  const at::ScalarType format = query.scalar_type();
  return {of_query.to(format), of_key.to(format), of_value.to(format)};
}

// Suppresses PyTorch's warnings about kernels that replace other kernels.
class Unsaid : public c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

void stand_before_attention() {
  static std::once_flag once;
  std::call_once(once, [] {
    Unsaid unsaid;
    const c10::WarningUtils::WarningHandlerGuard silence(&unsaid);
    static auto* const library = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
    library->impl("_scaled_dot_product_flash_attention_for_cpu", TORCH_FN(attention));
    library->impl("_scaled_dot_product_flash_attention_for_cpu_backward", TORCH_FN(attention_backward));
  });
}

}  // namespace

const Fault* guard_attention() {
  static const Fault* const row = []() -> const Fault* {
    if (below().isa < kSharedTiles.from) return nullptr;
    stand_before_attention();
    in_force = true;
    return &kSharedTiles;
  }();
  return row;
}

AttentionGuardForTest::AttentionGuardForTest() {
  (void)guard_attention();
  stand_before_attention();
  gone_around = 0;
  in_force = true;
}

AttentionGuardForTest::~AttentionGuardForTest() { in_force = guard_attention() != nullptr; }

std::int64_t AttentionGuardForTest::times() const { return gone_around; }

}  // namespace millrace::device
