// libmillrace_cuda.so: all of Millrace's code that needs CUDA. The library links LibTorch's CUDA libraries, which registers
// their kernels.
#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/device/cuda/nccl.h"
#include "millrace/device/cuda/record.h"
#include "millrace/device/detail/plugin.h"

namespace millrace::device {

namespace {

// Lets the allocator's segments grow. Otherwise batches of other sizes would leave unusable holes: an epoch's last batch, the
// batches of a validation, and smaller batches after an out-of-memory error. Call it before the first allocation. The
// allocator's environment variable takes precedence.
void let_segments_grow() {
  if (std::getenv("PYTORCH_ALLOC_CONF") != nullptr || std::getenv("PYTORCH_CUDA_ALLOC_CONF") != nullptr) return;
  c10::CachingAllocator::setAllocatorSettings("expandable_segments:True");
}

// True if the allocator's segments can grow. They can't on a vGPU that is not allowed to map memory into reserved addresses.
// They can't in WSL either: the driver refuses the kind of memory that LibTorch asks for (pytorch/pytorch#192330), and the first
// tensor would end the run.
bool segments_can_grow(int devices) {
  if (::access("/dev/dxg", F_OK) == 0) return false;  // WSL
  void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr) return true;
  using Get = int (*)(int* device, int ordinal);
  using Ask = int (*)(int* value, int attribute, int device);
  const auto get = reinterpret_cast<Get>(::dlsym(driver, "cuDeviceGet"));
  const auto ask = reinterpret_cast<Ask>(::dlsym(driver, "cuDeviceGetAttribute"));
  constexpr int kVirtualMemory = 102;  // CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED; cudart has no name for it
  bool can = true;
  for (int i = 0; i < devices && get != nullptr && ask != nullptr; ++i) {
    int device = 0, value = 1;
    if (get(&device, i) == 0 && ask(&value, kVirtualMemory, device) == 0) can = can && value != 0;
  }
  ::dlclose(driver);
  return can;
}

c10::DeviceIndex as_index(int index) { return static_cast<c10::DeviceIndex>(index); }

class CudaBackend final : public Backend {
 public:
  CudaBackend() {
    if (segments_can_grow(c10::cuda::device_count())) let_segments_grow();
    for (int i = 0; i < c10::cuda::device_count(); ++i) {
      cudaDeviceProp properties{};
      if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) break;
      devices_.push_back({properties.name, {properties.major, properties.minor}, properties.totalGlobalMem});
    }
  }
  [[nodiscard]] int device_count() const override { return static_cast<int>(devices_.size()); }
  [[nodiscard]] std::string device_name(int index) const override { return at(index).name; }
  [[nodiscard]] std::pair<int, int> compute_capability(int index) const override { return at(index).capability; }
  [[nodiscard]] bool has_fast_bf16(int index) const override { return at(index).capability.first >= 8; }

  [[nodiscard]] Backend::Nature nature(int index) const override {
    return {.has_double_sums = true,
            .has_fused_optimizers = true,
            .has_float_rate = true,
            .has_tf32 = at(index).capability.first >= 8};
  }

  [[nodiscard]] Backend::DriverMemory driver_memory(int index) const override {
    const c10::cuda::CUDAGuard guard(as_index(index));
    std::size_t free = 0;
    std::size_t total = 0;
    check(cudaMemGetInfo(&free, &total), "the driver does not report the free memory", "cuda:" + std::to_string(index));
    return {free, total};
  }

  // The stream has high priority, because a copy that waits behind a step's kernels comes too late.
  [[nodiscard]] c10::Stream copy_stream(int index) override {
    const std::scoped_lock lock(mutex_);
    auto it = copy_streams_.find(index);
    if (it == copy_streams_.end())
      it = copy_streams_.emplace(index, c10::cuda::getStreamFromPool(/*isHighPriority=*/true, as_index(index)).unwrap()).first;
    return it->second;
  }

  void synchronize(int index) override {
    const c10::cuda::CUDAGuard guard(as_index(index));
    C10_CUDA_CHECK(cudaDeviceSynchronize());  // device/errors.h classifies this call's error
  }

  void pin(std::byte* memory, std::size_t bytes) override {
    check(cudaHostRegister(memory, bytes, cudaHostRegisterDefault),
          human_bytes(static_cast<double>(bytes)) + " of host memory can't be page-locked", "loader slots");
  }

  void unpin(std::byte* memory) noexcept override { cudaHostUnregister(memory); }

  void reset_peak(int index) override {
    if (c10::cuda::CUDACachingAllocator::get()->initialized()) c10::cuda::CUDACachingAllocator::resetPeakStats(as_index(index));
  }

  void release_cached(int) override {
    if (c10::cuda::CUDACachingAllocator::get()->initialized()) c10::cuda::CUDACachingAllocator::emptyCache();
  }

  [[nodiscard]] std::unique_ptr<Recording> record(int index, const std::function<void()>& work) override {
    return record_graph(index, work);
  }

  [[nodiscard]] RankGroups* rank_groups(std::string& reason) override { return nccl_groups(reason); }

 private:
  struct Device {
    std::string name;
    std::pair<int, int> capability;
    std::uint64_t total_bytes;
  };

  [[nodiscard]] const Device& at(int index) const {
    MR_CHECK(index >= 0 && index < device_count(), "no GPU " + std::to_string(index));
    return devices_[static_cast<std::size_t>(index)];
  }

  // Reads the allocator's counters instead of the driver's, because then nothing waits for the GPU.
  [[nodiscard]] Backend::MemoryCounters read_memory(int index) const override {
    using c10::CachingAllocator::StatType;
    Backend::MemoryCounters counters{.total_bytes = at(index).total_bytes};
    if (!c10::cuda::CUDACachingAllocator::get()->initialized()) return counters;
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(as_index(index));
    constexpr auto kAll = static_cast<std::size_t>(StatType::AGGREGATE);
    counters.allocated_bytes = static_cast<std::uint64_t>(stats.allocated_bytes[kAll].current);
    counters.reserved_bytes = static_cast<std::uint64_t>(stats.reserved_bytes[kAll].current);
    counters.peak_bytes = static_cast<std::uint64_t>(stats.allocated_bytes[kAll].peak);
    return counters;
  }

  static void check(cudaError_t status, const std::string& what, const std::string& where) {
    if (status == cudaSuccess) return;
    (void)cudaGetLastError();  // clears the error, which a later call would report again
    throw DeviceError({.what = what + ": " + cudaGetErrorString(status),
                       .where = where,
                       .next = "run again with CUDA_LAUNCH_BLOCKING=1 to see which operation failed, or with device.name=cpu"});
  }

  std::vector<Device> devices_;
  std::mutex mutex_;
  std::map<int, c10::Stream> copy_streams_;
};

}  // namespace

}  // namespace millrace::device

extern "C" __attribute__((visibility("default"))) millrace::device::Backend* millrace_cuda_backend(int interface) {
  if (interface != millrace::device::detail::kPluginInterface) return nullptr;
  try {
    static millrace::device::CudaBackend backend;
    return &backend;
  } catch (...) {
    return nullptr;
  }
}

extern "C" __attribute__((visibility("default"))) const char* millrace_cuda_no_device() {
  try {
    static const std::string reason = [] {
      int count = 0, driver = 0, runtime = 0;
      const cudaError_t status = cudaGetDeviceCount(&count);
      (void)cudaGetLastError();  // clears the error, which a later call would report again
      if (status == cudaSuccess && count > 0) return std::string();
      (void)cudaDriverGetVersion(&driver);
      (void)cudaRuntimeGetVersion(&runtime);
      return millrace::device::detail::why_no_device(static_cast<int>(status), cudaGetErrorString(status), driver, runtime,
                                                     std::getenv("CUDA_VISIBLE_DEVICES"));
    }();
    return reason.c_str();
  } catch (...) {
    return "";
  }
}
