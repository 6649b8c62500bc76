#include "millrace/train/assembly/kept_trials.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <cpuid.h>
#include <torch/nn/module.h>
#include <torch/version.h>

#include <cstdlib>

#include "millrace/base/hash.h"
#include "millrace/base/version.h"
#include "millrace/device/device.h"
#include "millrace/doctor/nvml.h"
#include "millrace/kernels/kernels.h"
#include "millrace/telemetry/spans.h"

namespace millrace {
namespace {

constexpr std::uint64_t kLargestFile = 4 << 20;
// Raise this number when a kernel's speed or a trial's method changes much: results under an older number are then ignored.
constexpr int kRevision = 6;

// The environment variables that change a step's time: they forbid instructions to the libraries, or say how threads wait.
std::string limits() {
  std::string text;
  for (const char* name :
       {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", "GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}) {
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') text += std::string(", ") + name + "=" + value;
  }
  return text;
}

std::string this_machine() {
  const device::Cpu& cpu = device::cpu_info();
  return this_cpu() + ", " + std::string(kernels::instruction_set()) + ", " + cpu.capability + limits() + ", " +
         std::to_string(at::get_num_threads()) + " threads on " + std::to_string(cpu.physical_cores) + " cores, millrace " +
         std::string(kVersion) + "." + std::to_string(kRevision) + ", torch " + TORCH_VERSION + ", " + at::get_mkldnn_version();
}

std::string gpu_of(at::Device device) {
  const device::Backend& backend = device::backend_of(device);
  const int index = device.has_index() ? device.index() : 0;
  std::string no_driver;
  const auto nvml = doctor::Nvml::open(no_driver);
  return this_gpu(backend.device_name(index), backend.compute_capability(index), nvml ? nvml->driver() : "");
}

const telemetry::Counter& looks() {
  static const telemetry::Counter counter("kept_trials");
  return counter;
}

}  // namespace

std::string this_cpu() {
  std::string text = device::cpu_info().name;
  unsigned signature = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &signature, &b, &c, &d) == 0) return text;
  const auto bits = [signature](unsigned from, unsigned count) { return (signature >> from) & ((1U << count) - 1U); };
  constexpr unsigned kExtended = 15;
  const unsigned family = bits(8, 4) + (bits(8, 4) == kExtended ? bits(20, 8) : 0U);
  const unsigned model = bits(4, 4) + 16U * bits(16, 4);
  return text + ", family " + std::to_string(family) + ", model " + std::to_string(model) + ", stepping " +
         std::to_string(bits(0, 4));
}

std::string this_gpu(const std::string& name, std::pair<int, int> capability, const std::string& driver) {
  return ", on " + name + ", compute capability " + std::to_string(capability.first) + "." + std::to_string(capability.second) +
         ", driver " + (driver.empty() ? "unknown" : driver);
}

KeptTrials::KeptTrials(Fs& fs, const std::filesystem::path& folder, bool writes, at::Device device)
    : fs_(fs), file_(folder.empty() ? folder : folder / "trials.json"), writes_(writes), machine_(this_machine()) {
  if (!device.is_cpu() && !file_.empty()) machine_ += gpu_of(device);
  if (!file_.empty()) looks().add(1);
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

bool is_verdict(const std::optional<Json>& result) {
  const auto has_text = [&](const char* key) { return result->contains(key) && result->at(key).is_string(); };
  return result && result->is_object() && has_text("value") && has_text("reason");
}

std::string step_trial(std::string_view what, std::string_view recipe, const Json& config, const torch::nn::Module& model,
                       const Batch& batch) {
  Json read_by_steps = config;
  for (const char* section : {"run", "log", "snapshot", "data", "optim", "precision"}) read_by_steps.erase(section);
  Json& train = read_by_steps["train"];
  const bool repeats = train.is_object() && train.value("deterministic", false);
  train = train.is_object() && train.contains("off") ? Json{{"off", train["off"]}} : Json();
  if (repeats) train["deterministic"] = true;
  Sha256 hash;
  hash.update(recipe);
  hash.update(read_by_steps.dump(-1, ' ', false, Json::error_handler_t::replace));
  hash.update(to_text(batch));
  for (const auto& parameter : model.named_parameters()) {
    hash.update(parameter.key());
    hash.update(c10::str(parameter.value().sizes()));
  }
  return std::string(what) + " " + std::string(recipe) + " " + hash.hex().substr(0, 16);
}

namespace {

std::string trial_with(const std::string& trial, const Json& values) {
  Sha256 hash;
  hash.update(values.dump(-1, ' ', false, Json::error_handler_t::replace));
  return trial + " of " + hash.hex().substr(0, 16);
}

}  // namespace

std::optional<Json> find_format(const KeptTrials& kept, const std::string& trial, const Json& values) {
  for (const std::string& name : {trial, trial_with(trial, values)}) {
    if (auto known = kept.find(name); is_verdict(known)) return known;
  }
  return std::nullopt;
}

void keep_format(KeptTrials& kept, const std::string& trial, const Json& values, const std::string& format,
                 const std::string& reason) {
  kept.keep(format == "fp32" ? trial : trial_with(trial, values), {{"value", format}, {"reason", reason}});
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
