// The initial number of reader threads, chosen by reading a batch or two.
#pragma once

#include "millrace/base/chosen.h"
#include "millrace/data/loader/detail/batch_work.h"

namespace millrace::data::detail {

[[nodiscard]] int usable_cores() noexcept;  // cores that this process may run on

// `wanted` < 0: the number is chosen. 0 readers if a batch costs less than handing it over; more readers than cores if reading
// mostly waits.
[[nodiscard]] Chosen<int> choose_readers(BatchWork& work, int wanted, int cores);

}  // namespace millrace::data::detail
