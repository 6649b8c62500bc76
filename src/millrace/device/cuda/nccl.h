// NCCL behind device/rank_groups.h: nccl.cpp where the build found its header, no_nccl.cpp elsewhere.
#pragma once

#include <string>

#include "millrace/device/rank_groups.h"

namespace millrace::device {

// Lives as long as the program; null with a reason in a build without NCCL.
[[nodiscard]] RankGroups* nccl_groups(std::string& reason);

}  // namespace millrace::device
