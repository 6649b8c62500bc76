// Which table of kernels is in use.
#pragma once

#include <span>

#include "millrace/kernels/detail/table.h"

namespace millrace::kernels::detail {

// The best table that this CPU supports and MILLRACE_CPU permits (system/instructions.h), or that of set_table.
const Table& table() noexcept;

// For tests, which run every kernel with each table that this CPU supports; null = the best again.
void set_table(const Table* table) noexcept;
std::span<const Table* const> usable_tables() noexcept;

}  // namespace millrace::kernels::detail
