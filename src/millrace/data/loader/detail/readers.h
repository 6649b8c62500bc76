// The first choice of how many reader threads there are, from reading a batch or two.
#pragma once

#include "millrace/base/chosen.h"
#include "millrace/data/loader/detail/batch_work.h"

namespace millrace::data::detail {

[[nodiscard]] int usable_cores() noexcept;  // that this process may run on

// `wanted` < 0: chosen. None where a batch costs less than handing it over; more than there are cores where reading mostly waits.
[[nodiscard]] Chosen<int> choose_readers(BatchWork& work, int wanted, int cores);

}  // namespace millrace::data::detail
