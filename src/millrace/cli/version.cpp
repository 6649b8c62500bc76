#include "millrace/cli/version.h"

#include "millrace/base/instructions.h"
#include "millrace/base/version.h"
#include "millrace/device/device.h"
#include "millrace/kernels/kernels.h"
#include "millrace/train/session.h"

namespace millrace::cli {

std::string version_number() { return std::string(kVersion); }

std::string version_text() {
  const Json all = versions();
  const device::Cpu& cpu = device::cpu_info();
  const std::string asked = asked_instructions();
  return "Millrace " + version_number() + "\nLibTorch " + all.value("libtorch", "") + "\ncompiler " + all.value("compiler", "") +
         "\nCPU      " + cpu.name + ", " + std::to_string(cpu.physical_cores) + (cpu.physical_cores == 1 ? " core" : " cores") +
         ", ATen uses " + cpu.capability + ", our kernels " + std::string(kernels::instruction_set()) +
         (asked.empty() ? "" : ", as " + asked + " says") + "\n";
}

}  // namespace millrace::cli
