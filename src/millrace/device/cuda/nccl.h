// NCCL for device/rank_groups.h: nccl.cpp if the build found its header, else no_nccl.cpp.
#pragma once

#include <string>

#include "millrace/device/rank_groups.h"

namespace millrace::device {

// Lives as long as the program; null with a reason in a build without NCCL.
[[nodiscard]] RankGroups* nccl_groups(std::string& reason);

}  // namespace millrace::device
