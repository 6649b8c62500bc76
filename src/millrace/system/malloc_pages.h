// The size of the pages in which malloc requests memory.
//
// A step goes through the same megabytes of tensors again and again. With pages of 2 MB the CPU has fewer addresses to look up,
// and the kernel fewer pages to clear: steps take 3 to 5 % less (docs/decisions/0050). glibc requests them if its environment
// says so, which it reads once, before main, and gets them if the kernel gives them on request ("madvise"), as in many
// distributions.
#pragma once

#include <string>

namespace millrace {

// Whether GLIBC_TUNABLES is in a list of "NAME=VALUE" that ends with null. Allocates nothing.
[[nodiscard]] bool configures_malloc(const char* const* environment) noexcept;
inline constexpr const char* kMallocPages = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1";

// For plans: the pages of this process, by its environment and the kernel's setting
// (/sys/kernel/mm/transparent_hugepage/enabled).
struct MallocPages {
  std::string size;    // "2 MB" or "4 kB"
  std::string reason;  // "malloc asks for them: fewer addresses to look up"
};
[[nodiscard]] MallocPages malloc_pages();
[[nodiscard]] MallocPages malloc_pages(const char* tunables, const std::string& kernel);  // null: not set

}  // namespace millrace
