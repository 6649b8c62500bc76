// Selects the table of kernels.
#include <ATen/core/Tensor.h>

#include <array>
#include <atomic>

#include "millrace/kernels/detail/choice.h"
#include "millrace/kernels/kernels.h"
#include "millrace/system/instructions.h"

namespace millrace::kernels {
namespace {

// The tables are in the order of InstructionSet.
constexpr std::size_t kTables = 5;
const std::array<const detail::Table*, kTables>& all_tables() noexcept {
  static const std::array<const detail::Table*, kTables> all{&detail::portable_table(), &detail::avx2_table(),
                                                             &detail::avx512_table(), &detail::avx512_bf16_table(),
                                                             &detail::amx_table()};
  return all;
}

const detail::Table& best_table() noexcept {
  static const detail::Table& best = *all_tables().at(static_cast<std::size_t>(instructions()));
  return best;
}

std::atomic<const detail::Table*> chosen_table{nullptr};  // null = the best table

}  // namespace

std::string_view instruction_set() noexcept { return best_table().name; }

namespace detail {

const Table& table() noexcept {
  const Table* table = chosen_table.load(std::memory_order_relaxed);
  return table == nullptr ? best_table() : *table;
}

void set_table(const Table* table) noexcept { chosen_table.store(table, std::memory_order_relaxed); }

std::span<const Table* const> usable_tables() noexcept {
  return std::span(all_tables()).first(static_cast<std::size_t>(instructions()) + 1);
}

}  // namespace detail

}  // namespace millrace::kernels
