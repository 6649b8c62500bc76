// Chooses the number of reader threads at the start, by reading one to three batches.
#pragma once

#include "millrace/base/chosen.h"
#include "millrace/data/loader/detail/batch_work.h"

namespace millrace::data::detail {

[[nodiscard]] int usable_cores() noexcept;  // returns the number of cores that this process may run on

// Returns `wanted` if it is 0 or more; otherwise chooses the number. The choice is 0 if reading a batch costs less than handing
// it over between threads. The choice may exceed the number of cores if reading mostly waits.
[[nodiscard]] Chosen<int> choose_readers(BatchWork& work, int wanted, int cores);

}  // namespace millrace::data::detail
