// Predicts whether oneDNN's bf16 weight gradient of a volume on AMX may write beyond its buffers (docs/known-faults.md).
#pragma once

#include "millrace/device/faults.h"

namespace millrace::device::detail {

// Returns true for each shape that fails with some number of threads and samples, so also for some shapes that are right with
// the present numbers. The call must have five sizes, and a stride, a padding and a dilation for each direction or one for all
// directions. oneDNN transposes rows of both operands into buffers. A buffer holds one block of rows, and the block has as many
// rows as fit into the level 2 cache. oneDNN's loop over volumes counts rows from the top of the plane. So the rows of the last
// plane run past the end of the buffer, unless a thread transposes fewer planes than the buffer holds. The result depends only
// on sizes. Source: compute_diff_weights_3d() and init_conf_bwd_w() of oneDNN, 2.7 and later.
[[nodiscard]] bool rows_may_overrun(const ConvolutionCall& call);

}  // namespace millrace::device::detail
