// Selects the table of kernels.
#pragma once

#include <span>

#include "millrace/kernels/detail/table.h"

namespace millrace::kernels::detail {

// The table in use: the best that this CPU supports and MILLRACE_CPU permits (system/instructions.h), unless set_table() chose
// another.
const Table& table() noexcept;

// Sets the table in use, for tests that run every kernel with each table that this CPU supports. Null selects the best table
// again.
void set_table(const Table* table) noexcept;
std::span<const Table* const> usable_tables() noexcept;

}  // namespace millrace::kernels::detail
