// A substitute for the NVIDIA driver's management library: two GPUs, the second of which is hot.
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

int copy(const char* text, char* to, unsigned size) {
  if (std::strlen(text) + 1 > size) return 7;  // too small
  std::snprintf(to, size, "%s", text);
  return 0;
}

struct Gpu {
  const char* name;
  unsigned used, clock, heat;
  unsigned long long reasons;
};
constexpr Gpu kGpus[] = {{"NVIDIA Test 80GB", 37, 1980, 41, 0x1}, {"NVIDIA Test 40GB", 99, 1200, 91, 0x40 | 0x1 | 0x4}};

const Gpu& of(void* device) { return *static_cast<const Gpu*>(device); }
void* handle(unsigned index) { return const_cast<Gpu*>(&kGpus[index]); }  // as the driver hands them out

}  // namespace

extern "C" {

int nvmlInit_v2() { return std::getenv("FAKE_NVML_FAILS") == nullptr ? 0 : 9; }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int code) { return code == 9 ? "Driver Not Loaded" : "Unknown Error"; }
int nvmlSystemGetDriverVersion(char* text, unsigned size) { return copy("550.54.15", text, size); }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index > 1) return 2;
  *device = handle(index);
  return 0;
}
int nvmlDeviceGetHandleByUUID(const char* id, void** device) {
  if (std::strcmp(id, "GPU-b") != 0) return 6;
  *device = handle(1);
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** device) {
  const bool first = std::strcmp(address, "0000:21:00.0") == 0;
  if (!first && std::strcmp(address, "0000:41:00.0") != 0) return 6;
  *device = handle(first ? 0 : 1);
  return 0;
}
int nvmlDeviceGetName(void* device, char* text, unsigned size) { return copy(of(device).name, text, size); }
int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  *major = 9;
  *minor = 0;
  return 0;
}
int nvmlDeviceGetUtilizationRates(void* device, unsigned* rates) {
  rates[0] = of(device).used;
  rates[1] = 5;
  return 0;
}
int nvmlDeviceGetMemoryInfo(void*, unsigned long long* memory) {
  memory[0] = 80'000'000'000ULL;
  memory[2] = 12'000'000'000ULL;
  memory[1] = memory[0] - memory[2];
  return 0;
}
int nvmlDeviceGetClockInfo(void* device, int, unsigned* mhz) {
  *mhz = of(device).clock;
  return 0;
}
int nvmlDeviceGetMaxClockInfo(void*, int, unsigned* mhz) {
  *mhz = 1980;
  return 0;
}
int nvmlDeviceGetTemperature(void* device, int, unsigned* celsius) {
  *celsius = of(device).heat;
  return 0;
}
int nvmlDeviceGetPowerUsage(void*, unsigned*) { return 3; }  // not supported
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* reasons) {
  *reasons = of(device).reasons;
  return 0;
}
}
