// Records the work of a GPU as a CUDA graph.
#pragma once

#include <functional>
#include <memory>

#include "millrace/device/recording.h"

namespace millrace::device {

// See Backend::record().
[[nodiscard]] std::unique_ptr<Recording> record_graph(int index, const std::function<void()>& work);

}  // namespace millrace::device
