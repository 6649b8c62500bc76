#include "millrace/device/cuda/nccl.h"

namespace millrace::device {

RankGroups* nccl_groups(std::string& reason) {
  reason = "this build has no NCCL: " MILLRACE_NO_NCCL;  // cuda/plugin.cmake defines MILLRACE_NO_NCCL
  return nullptr;
}

}  // namespace millrace::device
