#include "millrace/cli/version.h"

#include "millrace/base/version.h"
#include "millrace/device/device.h"
#include "millrace/train/session.h"

namespace millrace::cli {

std::string version_number() { return std::string(kVersion); }

std::string version_text() {
  const Json all = versions();
  const device::Cpu& cpu = device::cpu_info();
  return "Millrace " + version_number() + "\nLibTorch " + all.value("libtorch", "") + "\ncompiler " + all.value("compiler", "") +
         "\nCPU      " + cpu.name + ", " + std::to_string(cpu.physical_cores) + (cpu.physical_cores == 1 ? " core" : " cores") +
         ", ATen uses " + cpu.capability + "\n";
}

}  // namespace millrace::cli
