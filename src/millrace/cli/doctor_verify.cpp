#include "millrace/cli/doctor_forms.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "millrace/base/format.h"
#include "millrace/cli/machine/machine_look.h"
#include "millrace/cli/shared/take_run.h"
#include "millrace/cli/shared/text.h"
#include "millrace/cli/shared/version.h"
#include "millrace/measure/verification.h"
#include "millrace/train/run/session.h"

namespace millrace::cli {
namespace {

using Level = Check::Level;

void take_findings(const std::vector<Finding>& findings, bool of_hardware, Check& check) {
  constexpr std::array<std::string_view, 4> kHardware = {"GPU", "cores", "instructions", "clock"};
  for (const Finding& finding : findings) {
    if ((std::ranges::find(kHardware, finding.row) != kHardware.end()) != of_hardware) continue;
    check.level = std::max(check.level, finding.stops_runs ? Level::fail : Level::warn);
    check.found += "; " + finding.what;
    check.next += (check.next.empty() ? "" : "; ") + finding.next;
  }
}

Check environment_of(const MachineView& machine, const std::vector<Finding>& findings) {
  Check check{.name = "environment",
              .found = "Millrace " + version_number() + ", LibTorch " + versions().value("libtorch", "") + "; " +
                       human_bytes(static_cast<double>(machine.resources.available_memory)) + " of memory free"};
  for (const MachineView::FolderRoom& folder : machine.folders)
    check.found += ", " + human_bytes(static_cast<double>(folder.free_bytes)) + " in the " + folder.what;
  take_findings(findings, /*of_hardware=*/false, check);
  return check;
}

Check hardware_of(const MachineView& machine, const std::vector<Finding>& findings, const std::string& wish) {
  Check check{.name = "hardware",
              .found = machine.cpu.name + ", " + std::to_string(machine.cpu.physical_cores) + " cores for a run"};
  if (machine.cuda.empty()) {
    check.found += "; " + device::cuda()->device_name(0);
  } else if (wish == "auto") {
    check.level = Level::warn;
    check.found += "; no GPU is used (" + machine.cuda + "): training uses the CPU";
    check.next = "if you want to use the CPU, set device.name=cpu";
  }
  take_findings(findings, /*of_hardware=*/true, check);
  return check;
}

void print_check(const Check& check) {
  constexpr std::size_t kWidth = 21;
  std::string line = std::string(name_of(check.level)) + "  " + check.name;
  line += std::string(kWidth - std::min(kWidth, check.name.size()), ' ') + check.found + "\n";
  if (!check.next.empty()) line += "  next  " + check.next + "\n";
  print(line);
  std::fflush(stdout);  // shown now, because the next check may take minutes
}

std::string verdict_of(const std::vector<Check>& checks) {
  const auto count = [&](Level level) { return std::ranges::count(checks, level, &Check::level); };
  if (count(Level::fail) > 0)
    return "training would not work here: " + checks.back().name + " fails; the checks after it were not made";
  const auto warned = count(Level::warn);
  const std::string all = std::to_string(checks.size()) + " checks";
  if (warned == 0) return "ready to train: " + all + " pass";
  return "ready to train: of " + all + " " + std::to_string(warned) + (warned == 1 ? " warns" : " warn") + ", none fails";
}

Json json_of(const std::vector<Check>& checks) {
  Json report = {{"checks", Json::array()}, {"ready", std::ranges::count(checks, Level::fail, &Check::level) == 0}};
  for (const Check& check : checks)
    report["checks"].push_back(
        {{"name", check.name}, {"level", name_of(check.level)}, {"found", check.found}, {"next", check.next}});
  return report;
}

}  // namespace

int doctor_verify(const Invocation& call, Arguments arguments, bool json) {
  if (const auto named = arguments.value("recipe")) arguments.add(*named);
  const Entry& entry = take_recipe(arguments, call.recipes, "doctor --verify");
  telemetry::Console console(telemetry::Console::Mode::quiet, json ? 2 : 1);
  const RunRequest request = take_run(entry, arguments, console);
  const auto wish = config::read<RunConfig>(request.config.values).device.name;
  const MachineView machine = look_at_machine(/*disks=*/false);
  const std::vector<Finding> findings = findings_of(machine);
  std::vector<Check> checks = {environment_of(machine, findings), hardware_of(machine, findings, wish)};
  if (!json) std::ranges::for_each(checks, print_check);
  const auto fails = [&] { return std::ranges::count(checks, Level::fail, &Check::level) > 0; };
  if (!fails()) {
    const auto report = [json](const Check& check) {
      if (!json) print_check(check);
    };
    const std::vector<Check> made = verify_run(request, report);
    checks.insert(checks.end(), made.begin(), made.end());
  }
  json ? print_json(json_of(checks)) : print(verdict_of(checks) + "\n");
  if (fails()) return 1;
  constexpr int kWarned = 3;
  return std::ranges::count(checks, Level::warn, &Check::level) > 0 ? kWarned : 0;
}

}  // namespace millrace::cli
