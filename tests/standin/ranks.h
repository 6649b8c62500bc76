// The transport of stand-in tensors between the processes of a run: Gloo, on the memory as kernels see it.
#pragma once

#include "millrace/device/rank_groups.h"

namespace millrace::standin {

[[nodiscard]] device::RankGroups& rank_groups();

}  // namespace millrace::standin
