// A substitute for the CUDA driver of a process that uses it: two GPUs, the second of which is the faster one and so comes first.
#include <cstdio>

extern "C" {

int cuDeviceGet(int* device, int number) {
  *device = 1 - number;
  return number < 0 || number > 1 ? 101 : 0;
}
int cuDeviceGetPCIBusId(char* address, int size, int device) {
  const int length = std::snprintf(address, static_cast<unsigned>(size), "0000:%d1:00.0", device == 0 ? 2 : 4);
  return length < size ? 0 : 1;
}
}
