#include "millrace/cli/machine/machine_look.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>

#include "millrace/cli/machine/doctor_ranks.h"
#include "millrace/cli/machine/machine_speed.h"
#include "millrace/system/instructions.h"
#include "millrace/system/process.h"
#include "millrace/train/assembly/assembly.h"

namespace millrace::cli {
namespace {

MachineView::FolderRoom room_of(const std::string& what, std::filesystem::path path) {
  std::error_code error;
  // If the folder does not exist, this looks at the nearest existing parent folder, because the folder would be created there.
  std::filesystem::path there = std::filesystem::absolute(path, error);
  while (!std::filesystem::exists(there, error) && there.has_relative_path()) there = there.parent_path();
  const auto space = std::filesystem::space(there, error);
  return {.what = what,
          .path = std::move(path),
          .free_bytes = error ? 0 : space.available,
          .is_writable = ::access(there.c_str(), W_OK | X_OK) == 0};
}

std::optional<std::uint64_t> open_files_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

MachineView::GpuView gpus() {
  MachineView::GpuView view;
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible != nullptr) view.visible = visible;
  const auto nvml = doctor::Nvml::open(view.silence);
  if (nvml == nullptr) return view;
  view.driver = nvml->driver();
  for (int i = 0; i < nvml->count(); ++i) {
    if (auto reading = nvml->read(i, visible)) view.gpus.push_back(*std::move(reading));
  }
  return view;
}

std::optional<std::uint64_t> shared_memory() {
  std::error_code error;
  const auto space = std::filesystem::space("/dev/shm", error);
  return error ? std::nullopt : std::optional<std::uint64_t>(space.available);
}

}  // namespace

MachineView look_at_machine(bool disks) {
  MachineView machine{.cpu = device::cpu_info(),
                      .resources = device::process_resources(),
                      .cuda = "",
                      .asked_instructions = asked_instructions(),
                      .folders = {}};
  if (device::cuda(&machine.cuda) != nullptr) machine.cuda.clear();
  machine.folders = {room_of("current folder", "."), room_of("cache folder", cache_folder())};
  for (MachineView::FolderRoom& folder : machine.folders) {
    if (!disks) break;
    const auto rates = measure_disk(folder.path);
    if (!rates) continue;
    folder.write_rate = rates->write;
    folder.read_rate = rates->read;
  }
  const Neighbourhood neighbours = watch_neighbours();
  machine.busy_cores = neighbours.busy_cores;
  machine.busiest = neighbours.busiest;
  machine.mhz = neighbours.mhz;
  machine.most_mhz = neighbours.most_mhz;
  machine.open_files = open_files_limit();
  machine.gpu = gpus();
  machine.shared_memory = shared_memory();
  if (!port_is_free(kUsualPort)) machine.taken_port = kUsualPort;
  return machine;
}

}  // namespace millrace::cli
