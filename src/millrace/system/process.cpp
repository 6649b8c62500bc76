#include "millrace/system/process.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <string_view>

#include "millrace/system/crash.h"

namespace millrace {

void prepare_process() {
  // open() returns the lowest free number, so the numbers are opened in ascending order.
  for (int number = STDIN_FILENO; number <= STDERR_FILENO; ++number) {
    if (::fcntl(number, F_GETFD) != -1) continue;
    ::open("/dev/null", number == STDIN_FILENO ? O_WRONLY : O_RDONLY);  // in the wrong mode: reads and writes still fail
  }
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGXFSZ, &ignore, nullptr);
  install_crash_line();
}

namespace {

template <typename Value>
Value value_at(std::string_view bytes, std::size_t at) {
  Value value{};
  if (at <= bytes.size() && bytes.size() - at >= sizeof(Value)) std::memcpy(&value, bytes.data() + at, sizeof(Value));
  return value;
}

std::string hexadecimal(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    const auto bits = static_cast<unsigned char>(byte);
    text += {kDigits[bits >> 4U], kDigits[bits & 15U]};
  }
  return text;
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

std::string build_id() {
  constexpr std::size_t kAlignment = 4;
  const auto aligned = [](std::size_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; };
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const auto read = [&file](std::size_t begin, std::size_t size) {
    std::string bytes(size, '\0');
    file.seekg(static_cast<std::streamoff>(begin));
    if (!file.read(bytes.data(), static_cast<std::streamsize>(size))) bytes.clear();
    return bytes;
  };
  const auto header = value_at<ElfW(Ehdr)>(read(0, sizeof(ElfW(Ehdr))), 0);
  for (std::size_t i = 0; i < header.e_phnum; ++i) {
    const auto segment = value_at<ElfW(Phdr)>(read(header.e_phoff + i * sizeof(ElfW(Phdr)), sizeof(ElfW(Phdr))), 0);
    if (segment.p_type != PT_NOTE) continue;
    const std::string notes = read(segment.p_offset, segment.p_filesz);
    for (std::size_t at = 0; at + sizeof(ElfW(Nhdr)) <= notes.size();) {
      const auto note = value_at<ElfW(Nhdr)>(notes, at);
      const std::size_t value = at + sizeof(note) + aligned(note.n_namesz);
      if (note.n_type == NT_GNU_BUILD_ID && value < notes.size())
        return hexadecimal(std::string_view(notes).substr(value, note.n_descsz));
      at = value + aligned(note.n_descsz);
    }
  }
  return "";
}

std::filesystem::path cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0')
    return std::filesystem::path(cache) / "millrace";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0')
    return std::filesystem::path(home) / ".cache" / "millrace";
  return std::filesystem::path("runs") / "cache";
}

}  // namespace millrace
