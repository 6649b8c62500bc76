#include <ATen/Version.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "millrace/base/format.h"
#include "millrace/base/utf8.h"
#include "millrace/cli/doctor_forms.h"
#include "millrace/cli/machine/doctor_ranks.h"
#include "millrace/cli/machine/machine_findings.h"
#include "millrace/cli/machine/machine_look.h"
#include "millrace/cli/machine/machine_speed.h"
#include "millrace/cli/shared/arguments.h"
#include "millrace/cli/shared/command.h"
#include "millrace/cli/shared/text.h"
#include "millrace/cli/shared/version.h"
#include "millrace/kernels/kernels.h"
#include "millrace/runs/ledger.h"
#include "millrace/train/run/session.h"

namespace millrace::cli {
namespace {

using Rows = std::vector<std::vector<std::string>>;

constexpr std::string_view kDoctorHelp =
    R"(For a run's folder: says whether the run is running, how or why it ended, where its time went, and what to fix, with the
expected gain, the greatest first. It changes nothing; docs/doctor.md explains each finding.

Without a folder: describes this machine, what a run may use of it, and what limits its speed; each line passes, warns or fails.
It measures for a few seconds: the disks of the current and the cache folder, number formats, the load by other programs, and the
communication of two processes. Started as a rank, it measures the communication of those ranks:
millrace launch --nproc 1 --nodes 2 --rank R --at HOST:PORT doctor.

With a recipe and --verify: checks whether training would work here. It prepares the run as train does and makes some steps. It
checks where weights and batches are, the number format, every callback, which parameters two steps changed, memory, and how busy
the device is. It writes no run folder. Exit code 0 if each check passes, 3 if one warns (with device.name=auto, the lack of a GPU
is a warning), 1 if one fails.

  RECIPE --verify       followed by FILE, --preset, --data, --off, --section.key=VALUE as in train
  --json                as JSON
  --self                time saved here by remedies, next to the doctor's prediction
  --strict              exit code 3 if the run died, or there is a finding about the run or the machine

Without a folder: exit code 1 if something on the machine would stop a run; else 3 with --strict and a finding; else 0. A missing
GPU does not count.
)";

std::string instructions_text(const device::Cpu& cpu) {
  std::vector<std::string> sets;
  for (const auto& [has, name] : {std::pair{cpu.avx2, "AVX2"}, std::pair{cpu.avx512, "AVX512"},
                                  std::pair{cpu.avx512_bf16, "AVX512_BF16"}, std::pair{cpu.amx_bf16, "AMX_BF16"}}) {
    if (has) sets.emplace_back(name);
  }
  return (sets.empty() ? "portable" : joined(sets, ", ")) + "; ATen uses " + cpu.capability + ", our kernels " +
         std::string(kernels::instruction_set());
}

std::string gpus_text(const MachineView& machine) {
  if (!machine.cuda.empty()) return "none is used: " + machine.cuda;
  device::Backend& backend = *device::cuda();
  std::vector<std::string> all;
  for (int i = 0; i < backend.device_count(); ++i) {
    const auto [major, minor] = backend.compute_capability(i);
    all.push_back(backend.device_name(i) + ", sm_" + std::to_string(major) + std::to_string(minor) + ", " +
                  human_bytes(static_cast<double>(backend.memory(i).total_bytes)));
  }
  return joined(all, "; ");
}

// Returns "oneDNN 3.7.1" for the answer "Intel(R) MKL-DNN v3.7.1 (Git Hash ...)": `name`, then the first word of the answer
// that is a version.
std::string library_text(const std::string& name, const std::string& answer) {
  for (std::size_t at = 0; at < answer.size(); ++at) {
    const std::size_t end = std::min(answer.find_first_of(" -(", at), answer.size());
    const std::size_t begin = at + (answer[at] == 'v' ? 1 : 0);
    if (begin < end && answer[begin] >= '0' && answer[begin] <= '9') return name + " " + answer.substr(begin, end - begin);
    at = end;
  }
  return name;
}

std::string libraries_text() {
  return library_text("oneDNN", at::get_mkldnn_version()) + ", " + library_text("MKL", at::get_mkl_version()) + ", " +
         library_text("OpenMP", at::get_openmp_version());
}

std::string gpu_text(const doctor::Nvml::Reading& gpu) {
  std::string text = gpu.name;
  if (gpu.capability)
    text += ", capability " + std::to_string(gpu.capability->first) + "." + std::to_string(gpu.capability->second);
  if (gpu.memory_used && gpu.memory_total)
    text += ", " + human_bytes(static_cast<double>(*gpu.memory_used)) + " of " +
            human_bytes(static_cast<double>(*gpu.memory_total)) + " used";
  if (gpu.utilisation) text += ", busy " + percent(*gpu.utilisation);
  if (gpu.mhz) text += ", " + significant(*gpu.mhz, 4) + (gpu.most_mhz ? " of " + significant(*gpu.most_mhz, 4) : "") + " MHz";
  if (gpu.celsius) text += ", " + significant(*gpu.celsius, 3) + " C";
  if (gpu.watts) text += ", " + significant(*gpu.watts, 3) + " W";
  if (!gpu.held_back.empty()) text += ", held back by " + joined(gpu.held_back, ", ");
  return text;
}

// True if CUDA may number the GPUs differently from the driver, and CUDA can't be asked, because no run would use it.
bool may_count_otherwise(const MachineView& machine) {
  const std::vector<doctor::Nvml::Reading>& gpus = machine.gpu.gpus;
  const char* order = std::getenv("CUDA_DEVICE_ORDER");
  const bool differ = std::ranges::any_of(gpus, [&](const doctor::Nvml::Reading& gpu) { return gpu.name != gpus.front().name; });
  return differ && !machine.cuda.empty() && !machine.gpu.visible.starts_with("GPU-") &&
         (order == nullptr || std::string_view(order) != "PCI_BUS_ID");
}

void add_gpus(const MachineView& machine, Rows& rows) {
  const MachineView::GpuView& view = machine.gpu;
  std::string driver = view.driver.empty() ? view.silence : view.driver;
  if (!view.visible.empty()) driver += "; CUDA_VISIBLE_DEVICES=" + printable(view.visible);
  if (may_count_otherwise(machine))
    driver +=
        "; GPUs have the numbers of nvidia-smi, while CUDA counts the fastest first unless CUDA_DEVICE_ORDER=PCI_BUS_ID is set";
  rows.push_back({"GPU driver", driver});
  for (std::size_t i = 0; i < view.gpus.size(); ++i) rows.push_back({"GPU " + std::to_string(i), gpu_text(view.gpus[i])});
}

std::string rate_text(double bytes) { return human_bytes(bytes) + "/s"; }

std::string folder_text(const MachineView::FolderRoom& folder) {
  std::string text = human_bytes(static_cast<double>(folder.free_bytes)) + " free in " + folder.path.string();
  if (folder.write_rate) text += "; writes " + rate_text(*folder.write_rate);
  if (folder.read_rate) text += ", reads " + rate_text(*folder.read_rate);
  return text;
}

// The speed of the cores in fp32 and in bf16, and the ratio of these speeds, which is the most that bf16 can gain.
std::string format_text(const FormatRate& rate) {
  return human_rate(rate.fp32 / 1e9) + " GFLOP/s in fp32, " + human_rate(rate.bf16 / 1e9) +
         " in bf16: " + significant(rate.bf16 / rate.fp32, 2) + " times as fast";
}

std::string clock_text(const MachineView& machine) {
  if (!machine.mhz) return "not reported";
  return significant(*machine.mhz, 4) + " MHz" + (machine.most_mhz ? " of " + significant(*machine.most_mhz, 4) : "") +
         ", of a busy core";
}

Rows rows_of(const MachineView& machine, const std::optional<RankRates>& ranks) {
  const Json all = versions();
  const device::ProcessResources& given = machine.resources;
  Rows rows = {
      {"Millrace", version_number() + ", LibTorch " + all.value("libtorch", "") + ", compiler " + all.value("compiler", "")},
      {"CPU", machine.cpu.name},
      {"instructions", instructions_text(machine.cpu)},
      {"cores", std::to_string(machine.cpu.physical_cores) + " for a run; CPUs allowed " + std::to_string(given.allowed_cpus) +
                    " of " + std::to_string(given.machine_cpus) + ", control group " +
                    (given.cpu_quota ? significant(*given.cpu_quota, 3) : "without limit")},
      {"memory", human_bytes(static_cast<double>(given.available_memory)) + " free of " +
                     human_bytes(static_cast<double>(given.machine_memory)) + ", control group " +
                     (given.group_memory ? human_bytes(static_cast<double>(*given.group_memory)) : "without limit")},
      {"libraries", libraries_text()},
      {"GPU", gpus_text(machine)}};
  add_gpus(machine, rows);
  for (const MachineView::FolderRoom& folder : machine.folders) rows.push_back({folder.what, folder_text(folder)});
  for (const FormatRate& rate : measure_formats()) rows.push_back({rate.work, format_text(rate)});
  rows.push_back({"clock", clock_text(machine)});
  rows.push_back({"others", "use " + significant(machine.busy_cores, 2) + " cores" +
                                (machine.busiest.empty() ? "" : "; the busiest: " + machine.busiest)});
  rows.push_back({"open files", machine.open_files ? with_commas(static_cast<std::int64_t>(*machine.open_files)) + " at most"
                                                   : "without limit"});
  rows.push_back({"shared memory", machine.shared_memory
                                       ? human_bytes(static_cast<double>(*machine.shared_memory)) + " free in /dev/shm"
                                       : "there is no /dev/shm"});
  rows.push_back({"ranks", ranks ? to_text(*ranks) : "two processes could not meet"});
  rows.push_back({"ports", std::to_string(kUsualPort) + (machine.taken_port == kUsualPort ? " is taken" : " is free") +
                               (ranks ? "; two processes met at another port" : "")});
  return rows;
}

std::string level_of(const std::string& row, const std::vector<Finding>& findings) {
  std::string level = "pass";
  for (const Finding& finding : findings) {
    if (finding.row != row) continue;
    if (finding.stops_runs) return "FAIL";
    level = "warn";
  }
  return level;
}

Json json_of(const Rows& rows, const std::vector<Finding>& findings) {
  Json report = {{"machine", Json::object()}, {"levels", Json::object()}, {"findings", Json::array()}};
  for (const auto& row : rows) {
    report["machine"][with_underscores(row[0])] = row[1];
    report["levels"][with_underscores(row[0])] = level_of(row[0], findings);
  }
  for (const Finding& finding : findings) {
    report["findings"].push_back({{"id", finding.id},
                                  {"row", with_underscores(finding.row)},
                                  {"stops_runs", finding.stops_runs},
                                  {"what", finding.what},
                                  {"next", finding.next}});
  }
  return report;
}

void print_machine(Rows rows, const std::vector<Finding>& findings) {
  for (auto& row : rows) row.insert(row.begin(), level_of(row[0], findings));
  print(table(rows) + "\n");
  for (const Finding& finding : findings)
    print((finding.stops_runs ? "FAIL  " : "warn  ") + finding.what + "\n  next  " + finding.next + "\n");
  if (findings.empty()) print("nothing here limits a run\n");
}

int run_doctor(const Invocation& call) {
  Arguments arguments(call.words);
  const bool json = arguments.flag("json");
  const bool strict = arguments.flag("strict");
  const bool self = arguments.flag("self");
  if (arguments.flag("verify")) return doctor_verify(call, std::move(arguments), json);
  const std::optional<std::string> run = arguments.positional();
  arguments.finish("doctor");
  if (self && run)
    throw UsageError({"--self is about all remedies that were tried here, not about one run", "flag --self",
                      "leave out --self or " + printable(*run)});
  if (self) return doctor_self(json);
  if (run) return doctor_run(*run, json ? DoctorOutput::json : DoctorOutput::text, strict);
  if (is_rank()) return doctor_ranks(json);
  device::set_threads(device::cpu_info().physical_cores);
  MachineView machine = look_at_machine(/*disks=*/true);
  const std::optional<RankRates> ranks = measure_ranks(machine.ranks_failure);
  const Rows rows = rows_of(machine, ranks);
  const std::vector<Finding> findings = findings_of(machine);
  if (json)
    print_json(json_of(rows, findings));
  else
    print_machine(rows, findings);
  if (std::ranges::any_of(findings, &Finding::stops_runs)) return 1;
  constexpr int kFound = 3;
  return strict && !findings.empty() ? kFound : 0;
}

}  // namespace

constinit const Command kDoctor = {.name = "doctor",
                                   .arguments = "[RUN | RECIPE --verify] [--self] [--json] [--strict]",
                                   .summary = "finds what slows or breaks a run or this machine, and the gain from fixing it",
                                   .group = "Look at things",
                                   .help = kDoctorHelp,
                                   .run = run_doctor};

}  // namespace millrace::cli
