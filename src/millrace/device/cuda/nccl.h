// NCCL for device/rank_groups.h. nccl.cpp implements it if the build found NCCL's header, else no_nccl.cpp.
#pragma once

#include <string>

#include "millrace/device/rank_groups.h"

namespace millrace::device {

// Returns an object that lives as long as the program. In a build without NCCL, returns null, and `reason` says why.
[[nodiscard]] RankGroups* nccl_groups(std::string& reason);

}  // namespace millrace::device
