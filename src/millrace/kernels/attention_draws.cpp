#include "millrace/kernels/attention_draws.h"

#include <atomic>

namespace millrace::kernels {
namespace {

std::atomic<bool> is_counted{false};

}  // namespace

void set_counted_attention(bool counted) noexcept { is_counted.store(counted, std::memory_order_relaxed); }
bool counts_attention() noexcept { return is_counted.load(std::memory_order_relaxed); }

}  // namespace millrace::kernels
