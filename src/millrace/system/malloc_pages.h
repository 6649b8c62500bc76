// The size of the pages in which malloc requests memory.
//
// A step uses the same megabytes of tensors again and again. With pages of 2 MB the CPU has fewer addresses to look up, and the
// kernel has fewer pages to clear. So steps take 3 to 5 % less time (docs/decisions/0050). glibc requests such pages if the
// environment says so; glibc reads the environment once, before main. The kernel then grants the pages if its setting is
// "madvise", as in many distributions.
#pragma once

#include <string>

namespace millrace {

// Returns true if `environment`, a list of "NAME=VALUE" that ends with null, contains GLIBC_TUNABLES. Allocates nothing.
[[nodiscard]] bool configures_malloc(const char* const* environment) noexcept;
inline constexpr const char* kMallocPages = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1";

// The size of this process's pages and the reason, for plans. Both follow from the environment and from the kernel's setting
// (/sys/kernel/mm/transparent_hugepage/enabled).
struct MallocPages {
  std::string size;    // for example "2 MB" or "4 kB"
  std::string reason;  // for example "malloc asks for such pages: fewer addresses to look up"
};
[[nodiscard]] MallocPages malloc_pages();
// `tunables`: value of GLIBC_TUNABLES, null = not set
[[nodiscard]] MallocPages malloc_pages(const char* tunables, const std::string& kernel);

}  // namespace millrace
