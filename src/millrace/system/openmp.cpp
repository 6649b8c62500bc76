#include "millrace/system/openmp.h"

#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "millrace/base/format.h"

namespace millrace {

bool configures_openmp_waits(const char* const* environment) noexcept {
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    for (const char* name : {"OMP_WAIT_POLICY=", "GOMP_SPINCOUNT="}) {
      if (std::strncmp(*environment, name, std::strlen(name)) == 0) return true;
    }
  }
  return false;
}

bool are_openmp_waits_ours() {
  const char* const count = std::getenv("GOMP_SPINCOUNT");
  return std::getenv("OMP_WAIT_POLICY") == nullptr &&
         (count == nullptr || "GOMP_SPINCOUNT=" + std::string(count) == kOpenmpWaits);
}

std::string openmp_waits() {
  const char* const count = std::getenv("GOMP_SPINCOUNT");  // GOMP_SPINCOUNT takes precedence over OMP_WAIT_POLICY
  const char* const policy = std::getenv("OMP_WAIT_POLICY");
  if (count != nullptr && "GOMP_SPINCOUNT=" + std::string(count) == kOpenmpWaits)
    return "threads spin briefly and then sleep; they sleep at once while other programs want the cores";
  if (count != nullptr) return "threads wait as GOMP_SPINCOUNT=" + std::string(count) + " says";
  if (policy == nullptr) return "threads spin while they wait: GOMP_SPINCOUNT is not set";
  return "threads wait as OMP_WAIT_POLICY=" + std::string(policy) + " says";
}

std::string other_threads_asked(int threads) {
  if (std::getenv("TORCHELASTIC_RESTART_COUNT") != nullptr) return "";
  for (const char* name : {"OMP_NUM_THREADS", "MKL_NUM_THREADS"}) {
    const char* const value = std::getenv(name);
    if (value != nullptr && *value != '\0' && std::to_string(threads) != value) return std::string(name) + "=" + printable(value);
  }
  return "";
}

}  // namespace millrace
