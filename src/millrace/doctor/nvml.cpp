#include "millrace/doctor/nvml.h"

#include <dlfcn.h>

#include <array>
#include <charconv>
#include <utility>

#include "millrace/base/format.h"
#include "millrace/base/utf8.h"

namespace millrace::doctor {
namespace {

// Declarations as in the manual. The library comes with the driver, and its header is not needed to build Millrace.
using Device = void*;
struct Utilisation {
  unsigned gpu = 0, memory = 0;  // use in per cent
};
struct MemoryInfo {
  unsigned long long total = 0, free = 0, used = 0;
};
constexpr int kSuccess = 0, kClockOfMultiprocessors = 1, kTemperatureOfGpu = 0;

struct Reason {
  unsigned long long bit;
  std::string_view text;
};
constexpr std::array kReasons = {Reason{0x04, "power limit"},        Reason{0x08, "hardware slowdown"},
                                 Reason{0x10, "slowest of a group"}, Reason{0x20, "heat (driver)"},
                                 Reason{0x40, "heat (hardware)"},    Reason{0x80, "power brake"}};

// Returns the PCI address of the GPU that has the number `index` in CUDA; "" if this process does not use CUDA. NVML counts GPUs
// by their addresses, and CUDA counts the fastest first unless CUDA_DEVICE_ORDER says otherwise. Does not load CUDA, because
// that takes time and memory.
std::string address_in_cuda(int index) {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return "";
  auto* const get = reinterpret_cast<int (*)(int*, int)>(::dlsym(library, "cuDeviceGet"));
  auto* const address = reinterpret_cast<int (*)(char*, int, int)>(::dlsym(library, "cuDeviceGetPCIBusId"));
  int device = 0;
  std::array<char, 32> text{};
  const bool is_known = get != nullptr && address != nullptr && get(&device, index) == kSuccess &&
                        address(text.data(), static_cast<int>(text.size()), device) == kSuccess;
  ::dlclose(library);
  return is_known ? std::string(text.data()) : "";
}

}  // namespace

struct Nvml::Calls {
  Calls() = default;
  ~Calls() {
    if (begun) shutdown();
    if (library != nullptr) ::dlclose(library);
  }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  template <class Function>
  bool find(const char* symbol, Function*& function) {
    function = reinterpret_cast<Function*>(::dlsym(library, symbol));
    if (function == nullptr) missing = symbol;
    return function != nullptr;
  }

  void* library = nullptr;
  bool begun = false;
  std::string missing;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error)(int) = nullptr;
  int (*driver)(char*, unsigned) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, Device*) = nullptr;
  int (*by_id)(const char*, Device*) = nullptr;
  int (*by_address)(const char*, Device*) = nullptr;  // null if the library lacks it
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*capability)(Device, int*, int*) = nullptr;
  int (*utilisation)(Device, Utilisation*) = nullptr;
  int (*memory)(Device, MemoryInfo*) = nullptr;
  int (*clock)(Device, int, unsigned*) = nullptr;
  int (*most_clock)(Device, int, unsigned*) = nullptr;
  int (*temperature)(Device, int, unsigned*) = nullptr;
  int (*power)(Device, unsigned*) = nullptr;              // milliwatts
  int (*reasons)(Device, unsigned long long*) = nullptr;  // reasons that keep the clock low
};

std::unique_ptr<Nvml> Nvml::open(std::string& why, const char* library) {
  auto calls = std::make_unique<Calls>();
  calls->library = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (calls->library == nullptr) {
    why = std::string("no NVIDIA driver reports GPUs (") + library + " is not there)";
    return nullptr;
  }
  Calls& c = *calls;
  const bool whole = c.find("nvmlInit_v2", c.init) && c.find("nvmlShutdown", c.shutdown) && c.find("nvmlErrorString", c.error) &&
                     c.find("nvmlSystemGetDriverVersion", c.driver) && c.find("nvmlDeviceGetCount_v2", c.count) &&
                     c.find("nvmlDeviceGetHandleByIndex_v2", c.by_index) && c.find("nvmlDeviceGetHandleByUUID", c.by_id) &&
                     c.find("nvmlDeviceGetName", c.name) && c.find("nvmlDeviceGetCudaComputeCapability", c.capability) &&
                     c.find("nvmlDeviceGetUtilizationRates", c.utilisation) && c.find("nvmlDeviceGetMemoryInfo", c.memory) &&
                     c.find("nvmlDeviceGetClockInfo", c.clock) && c.find("nvmlDeviceGetMaxClockInfo", c.most_clock) &&
                     c.find("nvmlDeviceGetTemperature", c.temperature) && c.find("nvmlDeviceGetPowerUsage", c.power) &&
                     c.find("nvmlDeviceGetCurrentClocksThrottleReasons", c.reasons);
  if (!whole) {
    why = std::string(library) + " can't be used: it lacks the function " + c.missing;
    return nullptr;
  }
  if (const int code = c.init(); code != kSuccess) {
    const char* text = c.error(code);
    why = std::string("the NVIDIA driver does not answer (") + library + ": " +
          (text == nullptr ? "error " + std::to_string(code) : printable(text)) + ")";
    return nullptr;
  }
  c.begun = true;
  c.find("nvmlDeviceGetHandleByPciBusId_v2", c.by_address);
  return std::unique_ptr<Nvml>(new Nvml(std::move(calls)));
}

Nvml::Nvml(std::unique_ptr<Calls> calls) : calls_(std::move(calls)) {
  std::array<char, 96> text{};
  if (calls_->driver(text.data(), text.size()) == kSuccess) driver_ = printable(text.data());
  unsigned count = 0;
  if (calls_->count(&count) == kSuccess) count_ = static_cast<int>(count);
}

Nvml::~Nvml() = default;

std::optional<Nvml::Reading> Nvml::read(int index, const char* visible) const {
  const Calls& c = *calls_;
  Device device = nullptr;
  int physical = index;
  std::string id;
  if (visible != nullptr) {
    std::string_view rest = visible;
    physical = -1;
    for (int i = 0; !rest.empty() && i <= index; ++i) {
      const std::size_t comma = std::min(rest.find(','), rest.size());
      const std::string_view word = rest.substr(0, comma);
      rest.remove_prefix(std::min(comma + 1, rest.size()));
      int number = -1;
      const auto [end, fault] = std::from_chars(word.data(), word.data() + word.size(), number);
      const bool is_number = fault == std::errc() && end == word.data() + word.size() && number >= 0;
      if (!is_number && !word.starts_with("GPU-")) return std::nullopt;
      physical = is_number ? number : -1;
      id = is_number ? "" : std::string(word);
      if (i < index && rest.empty()) return std::nullopt;
    }
  }
  if (id.empty()) {
    if (physical < 0) return std::nullopt;
    const std::string address = c.by_address == nullptr ? "" : address_in_cuda(index);
    const bool found = !address.empty() && c.by_address(address.c_str(), &device) == kSuccess;
    if (!found && c.by_index(static_cast<unsigned>(physical), &device) != kSuccess) return std::nullopt;
  }
  if (!id.empty() && c.by_id(id.c_str(), &device) != kSuccess) return std::nullopt;

  Nvml::Reading reading;
  std::array<char, 96> name{};
  if (c.name(device, name.data(), name.size()) == kSuccess) reading.name = printable(name.data());
  if (int major = 0, minor = 0; c.capability(device, &major, &minor) == kSuccess) reading.capability = {major, minor};
  if (Utilisation used; c.utilisation(device, &used) == kSuccess) reading.utilisation = used.gpu / 100.0;
  if (MemoryInfo memory; c.memory(device, &memory) == kSuccess) {
    reading.memory_used = memory.used;
    reading.memory_total = memory.total;
  }
  unsigned value = 0;
  if (c.clock(device, kClockOfMultiprocessors, &value) == kSuccess) reading.mhz = value;
  if (c.most_clock(device, kClockOfMultiprocessors, &value) == kSuccess) reading.most_mhz = value;
  if (c.temperature(device, kTemperatureOfGpu, &value) == kSuccess) reading.celsius = value;
  if (c.power(device, &value) == kSuccess) reading.watts = value * 1e-3;
  if (unsigned long long bits = 0; c.reasons(device, &bits) == kSuccess) {
    for (const Reason& reason : kReasons) {
      if ((bits & reason.bit) != 0) reading.held_back.emplace_back(reason.text);
    }
  }
  return reading;
}

Json Nvml::Reading::to_json() const {
  Json json = Json::object();
  const auto add = [&json](const char* key, const auto& value) {
    if (value) json[key] = *value;
  };
  json["name"] = name;
  if (capability) json["capability"] = std::to_string(capability->first) + "." + std::to_string(capability->second);
  add("utilisation", utilisation);
  add("memory_used_bytes", memory_used);
  add("memory_total_bytes", memory_total);
  add("mhz", mhz);
  add("most_mhz", most_mhz);
  add("celsius", celsius);
  add("watts", watts);
  if (!held_back.empty()) json["held_back"] = held_back;
  return json;
}

}  // namespace millrace::doctor
