// Chooses the number of reader threads at the start, by reading one to three batches.
#pragma once

#include "millrace/base/chosen.h"
#include "millrace/data/loader/detail/batch_work.h"

namespace millrace::data::detail {

[[nodiscard]] int usable_cores() noexcept;  // cores that this process may run on

// `wanted` >= 0 is used as it is; < 0 means that the number is chosen. It is 0 if reading a batch costs less than handing it
// over between threads, and more than the cores if reading mostly waits.
[[nodiscard]] Chosen<int> choose_readers(BatchWork& work, int wanted, int cores);

}  // namespace millrace::data::detail
