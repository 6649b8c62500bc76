#include "millrace/base/process.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <cstdint>
#include <string_view>

#include "millrace/base/crash.h"

namespace millrace {

void prepare_process() {
  // In order, so that each open gets the number that is free.
  for (int number = STDIN_FILENO; number <= STDERR_FILENO; ++number) {
    if (::fcntl(number, F_GETFD) != -1) continue;
    ::open("/dev/null", number == STDIN_FILENO ? O_WRONLY : O_RDONLY);  // the wrong way round: its use is an error, as it was
  }
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGXFSZ, &ignore, nullptr);
  install_crash_line();
}

std::string build_id() {
  const auto* headers = reinterpret_cast<const ElfW(Phdr)*>(::getauxval(AT_PHDR));
  const std::size_t count = ::getauxval(AT_PHNUM);
  if (headers == nullptr) return "";
  std::uintptr_t base = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (headers[i].p_type == PT_PHDR) base = reinterpret_cast<std::uintptr_t>(headers) - headers[i].p_vaddr;
  }
  constexpr std::size_t kAlignment = 4;
  const auto aligned = [](std::size_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; };
  for (std::size_t i = 0; i < count; ++i) {
    if (headers[i].p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const char*>(base + headers[i].p_vaddr);
    const char* end = at + headers[i].p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      const auto* note = reinterpret_cast<const ElfW(Nhdr)*>(at);
      const char* value = at + sizeof(ElfW(Nhdr)) + aligned(note->n_namesz);
      if (note->n_type == NT_GNU_BUILD_ID) {
        std::string text;
        for (std::size_t byte = 0; byte < note->n_descsz; ++byte) {
          constexpr std::string_view kDigits = "0123456789abcdef";
          const auto bits = static_cast<unsigned char>(value[byte]);
          text += {kDigits[bits >> 4U], kDigits[bits & 15U]};
        }
        return text;
      }
      at = value + aligned(note->n_descsz);
    }
  }
  return "";
}

}  // namespace millrace
