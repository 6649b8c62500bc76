// NCCL for device/rank_groups.h. nccl.cpp implements it if the build found NCCL's header, else no_nccl.cpp.
#pragma once

#include <string>

#include "millrace/device/rank_groups.h"

namespace millrace::device {

// The result lives as long as the program. Null in a build without NCCL, with the reason.
[[nodiscard]] RankGroups* nccl_groups(std::string& reason);

}  // namespace millrace::device
