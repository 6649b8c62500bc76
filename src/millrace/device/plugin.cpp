#include <dlfcn.h>

#include "millrace/device/detail/plugin.h"
#include "millrace/system/machine.h"

namespace millrace::device {

namespace fs = std::filesystem;

namespace {

constexpr int kLeastCapability = 8;  // major number; cuda/plugin.cmake compiles the kernels for 8.0 and later

bool has_driver() {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver != nullptr) dlclose(driver);
  return driver != nullptr;
}

struct Opened {
  Backend* backend = nullptr;
  std::string reason;
};

Opened open_cuda() {
  Opened opened;
  if (!has_driver()) {
    opened.reason = "no NVIDIA driver (libcuda.so.1 is not there)";
    return opened;
  }
  std::error_code ignored;
  const fs::path folder = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  Backend* const backend = detail::open_plugin(
      {folder, folder / "lib", folder.parent_path() / "lib", folder.parent_path().parent_path() / "lib"}, opened.reason);
  if (backend == nullptr) return opened;
  if (backend->device_count() == 0) {
    if (opened.reason.empty()) opened.reason = "the NVIDIA driver lists no GPU";
    return opened;
  }
  opened.backend = backend;
  return opened;
}

}  // namespace

const kernels::DeviceTable* detail::kernels_for(const Backend& cuda, const kernels::DeviceTable* own) {
  for (int i = 0; i < cuda.device_count(); ++i)
    if (cuda.compute_capability(i).first < kLeastCapability) return nullptr;
  return own;
}

Backend* detail::open_plugin(const std::vector<fs::path>& folders, std::string& reason) {
  for (const fs::path& folder : folders) {
    const fs::path file = folder / kPluginFile;
    std::error_code ignored;
    if (!fs::exists(file, ignored)) continue;
    // The library is never closed, because it loads LibTorch's CUDA libraries, whose kernels stay registered.
    void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* const error = dlerror();
      reason = "the CUDA plugin does not load: " + std::string(error != nullptr ? error : "unknown error");
      return nullptr;
    }
    const auto entry = reinterpret_cast<PluginEntry>(dlsym(library, kPluginEntry));
    Backend* const backend = entry == nullptr ? nullptr : entry(kPluginInterface);
    if (backend == nullptr) {
      reason = "the CUDA plugin " + file.string() + " belongs to another Millrace version";
      return nullptr;
    }
    if (const auto own = reinterpret_cast<KernelsEntry>(dlsym(library, kKernelsEntry)); own != nullptr)
      kernels::set_device_table(c10::kCUDA, kernels_for(*backend, own()));
    const auto why = reinterpret_cast<NoDeviceEntry>(dlsym(library, kNoDeviceEntry));
    if (backend->device_count() == 0 && why != nullptr) reason = why();
    return backend;
  }
  reason = std::string("this build has no CUDA plugin (") + kPluginFile + ")";
  return nullptr;
}

Backend* cuda(std::string* reason) {
  static const Opened opened = open_cuda();
  if (reason != nullptr) *reason = opened.reason;
  return opened.backend;
}

Choice choose(const std::string& wish, int local_rank) {
  std::string reason;
  const Backend* const backend = cuda(&reason);
  return detail::choose(wish, local_rank, backend, reason, Machine().has_nvidia_gpu());
}

}  // namespace millrace::device
