#include "millrace/cli/shared/version.h"

#include "millrace/base/version.h"
#include "millrace/device/device.h"
#include "millrace/kernels/kernels.h"
#include "millrace/system/instructions.h"
#include "millrace/train/run/session.h"

namespace millrace::cli {

namespace {

std::string gpu_text() {
  std::string why_not;
  device::Backend* cuda = device::cuda(&why_not);
  if (cuda == nullptr) return "none: " + why_not;
  const int count = cuda->device_count();
  return cuda->device_name(0) + (count > 1 ? " and " + std::to_string(count - 1) + " more" : "");
}

}  // namespace

std::string version_number() { return std::string(kVersion); }

std::string version_text() {
  const Json all = versions();
  const device::Cpu& cpu = device::cpu_info();
  const std::string asked = asked_instructions();
  return "Millrace " + version_number() + "\nLibTorch " + all.value("libtorch", "") + "\ncompiler " + all.value("compiler", "") +
         "\nCPU      " + cpu.name + ", " + std::to_string(cpu.physical_cores) + (cpu.physical_cores == 1 ? " core" : " cores") +
         ", ATen uses " + cpu.capability + ", our kernels " + std::string(kernels::instruction_set()) +
         (asked.empty() ? "" : ", as " + asked + " says") + "\nGPU      " + gpu_text() + "\n";
}

}  // namespace millrace::cli
