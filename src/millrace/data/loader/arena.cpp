#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/data/loader/loader.h"
#include "millrace/system/process_limits.h"

namespace millrace::data {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20U;

std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

std::size_t rounded(std::size_t bytes) { return (bytes + page_size() - 1) / page_size() * page_size(); }

class HostArena final : public Arena {
 public:
  std::byte* allocate(std::size_t bytes) override {
    const std::size_t size = rounded(bytes);
    // Small blocks are mapped without asking may_map(), because they may use the space that keep_address_space() reserved.
    const bool fits = size >= bytes && (size < kHugePage || may_map(size));
    void* memory = fits ? ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;
    if (memory == MAP_FAILED) {
      const bool limited = limit_of(RLIMIT_AS).has_value();
      throw DeviceError({.what = "no memory for a batch of " + human_bytes(static_cast<double>(bytes)) + ": " +
                                 (limited ? "the address space is limited (ulimit -v)" : std::strerror(ENOMEM)),
                         .where = "host memory of the loader",
                         .next = "lower data.batch_size or data.prefetch" + std::string(limited ? ", or raise the limit" : "")});
    }
    // Asks for huge pages, because then the first use of the memory is 5 times faster.
    if (size >= kHugePage) ::madvise(memory, size, MADV_HUGEPAGE);
    auto* first = static_cast<std::byte*>(memory);
    for (std::size_t at = 0; at < size; at += page_size()) first[at] = std::byte{0};
    return first;
  }
  void release(std::byte* memory, std::size_t bytes) noexcept override { ::munmap(memory, rounded(bytes)); }
};

}  // namespace

std::shared_ptr<Arena> Arena::host() {
  static const auto arena = std::make_shared<HostArena>();
  return arena;
}

}  // namespace millrace::data
