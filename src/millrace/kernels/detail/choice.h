// Which table of kernels is in use.
#pragma once

#include <span>

#include "millrace/kernels/detail/table.h"

namespace millrace::kernels::detail {

// The best this CPU has and MILLRACE_CPU leaves (system/instructions.h), or the one of set_table.
const Table& table() noexcept;

// For tests, which run every kernel on each table this CPU can run; null = the best again.
void set_table(const Table* table) noexcept;
std::span<const Table* const> usable_tables() noexcept;

}  // namespace millrace::kernels::detail
