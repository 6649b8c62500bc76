// Whether oneDNN's bf16 weight gradient of a volume on AMX may write beyond its buffers (docs/known-faults.md).
#pragma once

#include "millrace/device/faults.h"

namespace millrace::device::detail {

// Of a call with five sizes and one stride, padding and dilation for each direction or for all. oneDNN turns rows of both
// operands into buffers for a block of rows, as many as level 2 of the cache holds, and its loop over volumes counts rows from
// the top of the plane: the rows of the last plane run past the end of the buffer unless a thread turns fewer planes than the
// buffer has room for. Holds each shape that is hit with any number of threads and samples, by sizes alone, and some that are
// right with the number at hand. Source: compute_diff_weights_3d() and init_conf_bwd_w() of oneDNN, 2.7 and later.
[[nodiscard]] bool rows_may_overrun(const ConvolutionCall& call);

}  // namespace millrace::device::detail
