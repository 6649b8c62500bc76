// Which table of kernels is in use.
#include <ATen/core/Tensor.h>

#include <array>
#include <atomic>

#include "millrace/kernels/detail/choice.h"
#include "millrace/kernels/kernels.h"

namespace millrace::kernels {
namespace {

bool has_avx512() noexcept {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
}

const detail::Table& best_table() noexcept {
  static const detail::Table& best = []() -> const detail::Table& {
    if (!has_avx512()) return detail::portable_table();
    return __builtin_cpu_supports("avx512bf16") ? detail::avx512_bf16_table() : detail::avx512_table();
  }();
  return best;
}

std::atomic<const detail::Table*> chosen{nullptr};  // null = the best one

}  // namespace

std::string_view instruction_set() noexcept { return best_table().name; }

namespace detail {

const Table& table() noexcept {
  const Table* table = chosen.load(std::memory_order_relaxed);
  return table == nullptr ? best_table() : *table;
}

void set_table(const Table* table) noexcept { chosen.store(table, std::memory_order_relaxed); }

std::span<const Table* const> usable_tables() noexcept {
  static const std::array<const Table*, 3> all{&portable_table(), &avx512_table(), &avx512_bf16_table()};
  const std::size_t count = !has_avx512() ? 1 : __builtin_cpu_supports("avx512bf16") ? 3 : 2;
  return std::span(all).first(count);
}

}  // namespace detail

}  // namespace millrace::kernels
