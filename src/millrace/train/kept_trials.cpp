#include "millrace/train/kept_trials.h"

#include <ATen/Parallel.h>
#include <torch/version.h>

#include "millrace/base/version.h"
#include "millrace/device/device.h"
#include "millrace/kernels/kernels.h"

namespace millrace {
namespace {

constexpr std::uint64_t kLargestFile = 4 << 20;
// To be raised when a kernel's speed has changed much.
constexpr int kRevision = 1;

std::string this_machine() {
  const device::Cpu& cpu = device::cpu_info();
  return cpu.name + ", " + std::string(kernels::instruction_set()) + ", " + cpu.capability + ", " +
         std::to_string(at::get_num_threads()) + " threads, millrace " + std::string(kVersion) + "." + std::to_string(kRevision) +
         ", torch " + TORCH_VERSION;
}

}  // namespace

KeptTrials::KeptTrials(Fs& fs, const std::filesystem::path& folder, bool writes)
    : fs_(fs), file_(folder.empty() ? folder : folder / "trials.json"), writes_(writes), machine_(this_machine()) {
  const Json all = read();
  if (const auto found = all.find(machine_); found != all.end() && found->is_object()) mine_ = *found;
}

Json KeptTrials::read() const {
  std::error_code missing;
  if (file_.empty() || std::filesystem::file_size(file_, missing) > kLargestFile || missing) return Json::object();
  try {
    Json all = Json::parse(fs_.read_file(file_), nullptr, /*allow_exceptions=*/false);
    if (all.is_object()) return all;
  } catch (const FsError&) {  // NOLINT(bugprone-empty-catch): a cache that can't be read is an empty one
  }
  return Json::object();
}

std::optional<Json> KeptTrials::find(const std::string& trial) const {
  const auto found = mine_.find(trial);
  return found == mine_.end() ? std::nullopt : std::optional(*found);
}

void KeptTrials::keep(const std::string& trial, Json result) {
  mine_[trial] = std::move(result);
  is_new_ = true;
}

void KeptTrials::save() {
  if (!is_new_ || !writes_ || file_.empty()) return;
  is_new_ = false;
  Json all = read();
  Json& kept = all[machine_];
  if (!kept.is_object()) kept = Json::object();
  kept.update(mine_);
  try {
    fs_.create_directories(file_.parent_path());
    write_atomically(fs_, file_, all.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  } catch (const FsError&) {  // NOLINT(bugprone-empty-catch): the next run makes its own trial
  }
}

}  // namespace millrace
