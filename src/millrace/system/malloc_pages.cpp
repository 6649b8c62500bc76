#include "millrace/system/malloc_pages.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>

namespace millrace {
namespace {

constexpr std::string_view kName = "GLIBC_TUNABLES=";

}  // namespace

bool configures_malloc(const char* const* environment) noexcept {
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    if (std::strncmp(*environment, kName.data(), kName.size()) == 0) return true;
  }
  return false;
}

MallocPages malloc_pages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string kernel;
  std::getline(file, kernel);
  return malloc_pages(std::getenv("GLIBC_TUNABLES"), kernel);
}

MallocPages malloc_pages(const char* tunables, const std::string& kernel) {
  const auto says = [&](std::string_view word) { return kernel.find(word) != std::string::npos; };
  if (says("[always]")) return {"2 MB", "the kernel uses such pages for all programs"};
  if (!says("[madvise]")) return {"4 kB", "the kernel has larger pages turned off"};
  const std::string asked = tunables == nullptr ? "" : tunables;
  if (std::string(kName) + asked == kMallocPages) return {"2 MB", "malloc asks for such pages: fewer addresses to look up"};
  if (asked.find("glibc.malloc.hugetlb=") != std::string::npos) return {"as asked", "GLIBC_TUNABLES=" + asked + " sets it"};
  return {"4 kB", asked.empty() ? "GLIBC_TUNABLES does not ask for larger pages"
                                : "GLIBC_TUNABLES=" + asked + " does not ask for larger pages"};
}

}  // namespace millrace
