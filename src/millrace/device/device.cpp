#include "millrace/device/device.h"

#include <atomic>
#include <charconv>

#include "millrace/base/error.h"
#include "millrace/device/detail/plugin.h"
#include "millrace/system/machine.h"

namespace millrace::device {

namespace {

std::atomic<std::uint64_t> queries{0};

class CpuBackend final : public Backend {
 public:
  [[nodiscard]] int device_count() const override { return 1; }
  [[nodiscard]] std::string device_name(int) const override { return cpu_info().name; }
  [[nodiscard]] std::pair<int, int> compute_capability(int) const override { return {0, 0}; }
  [[nodiscard]] bool has_fast_bf16(int) const override { return cpu_info().avx512_bf16 || cpu_info().amx_bf16; }
  [[nodiscard]] Backend::Nature nature(int) const override {
    return {.in_host_memory = true, .has_double_sums = true, .has_fused_optimizers = true};
  }
  [[nodiscard]] Backend::DriverMemory driver_memory(int) const override {
    const std::uint64_t available = available_memory_bytes();
    return {.free_bytes = available, .total_bytes = resident_bytes() + available};
  }
  void synchronize(int) override {}
  [[nodiscard]] c10::Stream copy_stream(int) override { return c10::Stream(c10::Stream::DEFAULT, c10::Device(c10::kCPU)); }
  void pin(std::byte*, std::size_t) override {}
  void unpin(std::byte*) noexcept override {}

 private:
  [[nodiscard]] Backend::MemoryCounters read_memory(int) const override {
    const std::uint64_t resident = resident_bytes();
    return {.allocated_bytes = resident,
            .reserved_bytes = resident,
            .peak_bytes = peak_resident_bytes(),
            .total_bytes = resident + available_memory_bytes()};
  }
};

std::string list_devices(const Backend* cuda, const std::string& why_no_cuda) {
  std::string list = "cpu";
  for (int i = 0; cuda != nullptr && i < cuda->device_count(); ++i) {
    list += ", cuda:" + std::to_string(i) + " (" + cuda->device_name(i) + ")";
  }
  return cuda != nullptr ? list : list + "; no cuda: " + why_no_cuda;
}

// Returns 1 for "cuda:1" and `local_rank` for "cuda"; nullopt for any other `wish`.
std::optional<int> cuda_index(const std::string& wish, int local_rank) {
  if (wish == "cuda") return local_rank;
  if (!wish.starts_with("cuda:")) return std::nullopt;
  int index = -1;
  const char* const end = wish.data() + wish.size();
  const auto parsed = std::from_chars(wish.data() + 5, end, index);
  return parsed.ec == std::errc() && parsed.ptr == end && index >= 0 ? std::optional(index) : std::nullopt;
}

Choice choose_gpu(int index, const Backend& cuda) {
  const auto [major, minor] = cuda.compute_capability(index);
  return {.device = c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index)),
          .reason = cuda.device_name(index) + ", compute capability " + std::to_string(major) + "." + std::to_string(minor)};
}

}  // namespace

Backend::MemoryCounters Backend::memory(int index) const {
  queries.fetch_add(1, std::memory_order_relaxed);
  return read_memory(index);
}

std::uint64_t memory_queries() noexcept { return queries.load(std::memory_order_relaxed); }

Backend& cpu() {
  static CpuBackend backend;
  return backend;
}

Backend& backend_of(c10::Device device) {
  if (device.is_cpu()) return cpu();
  std::string reason = "Millrace supports only CPUs and NVIDIA GPUs";
  Backend* const backend = device.is_cuda() ? cuda(&reason) : nullptr;
  const int index = device.has_index() ? device.index() : 0;
  if (backend != nullptr && index < backend->device_count()) return *backend;
  throw DeviceError({.what = "device " + device.str() + " can't be used" + (reason.empty() ? "" : ": " + reason),
                     .where = "devices: " + list_devices(backend, reason),
                     .next = "set device.name to one of them, or to auto"});
}

Backend::Nature nature_of(c10::Device device) {
  if (device.is_cpu()) return cpu().nature(0);
  if (!device.is_cuda()) return {};
  return backend_of(device).nature(device.has_index() ? device.index() : 0);
}

Choice detail::choose(const std::string& wish, int local_rank, const Backend* cuda, const std::string& why_no_cuda,
                      bool has_gpu) {
  if (wish == "cpu") return {.reason = "as asked"};
  if (wish == "auto" && cuda == nullptr) {
    Choice choice{.reason = "no GPU to use: " + why_no_cuda};
    if (has_gpu) choice.warning = "this machine has a GPU, but the run will not use it: " + why_no_cuda;
    return choice;
  }
  const std::optional<int> index = cuda_index(wish == "auto" ? "cuda" : wish, local_rank);
  if (index && cuda != nullptr && *index < cuda->device_count()) return choose_gpu(*index, *cuda);
  std::string what = "device.name \"" + wish + "\" is not a device";
  if (index && cuda == nullptr) what = "device.name \"" + wish + "\" needs a GPU that this program can use";
  std::string next = "use auto, cpu" + std::string(cuda != nullptr ? ", cuda or cuda:<number>" : "");
  if (index && cuda != nullptr) {
    const bool is_only = cuda->device_count() == 1;
    if (!wish.starts_with("cuda:"))
      next = "start no more ranks on a machine than it has GPUs" +
             std::string(
                 is_only ? ", or set device.name=cuda:0 if each rank sees a GPU of its own, as with srun --gpus-per-task=1" : "");
    what = "device.name \"" + wish + "\" needs GPU " + std::to_string(*index) + ", but there " +
           (is_only ? "is 1 GPU, number 0" : "are " + std::to_string(cuda->device_count()) + " GPUs, numbered from 0");
  }
  throw ConfigError({.what = what, .where = "devices: " + list_devices(cuda, why_no_cuda), .next = next});
}

}  // namespace millrace::device
