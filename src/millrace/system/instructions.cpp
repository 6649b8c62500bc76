#include "millrace/system/instructions.h"

#include <cpuid.h>
#include <strings.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>

#include "millrace/base/error.h"
#include "millrace/base/format.h"

namespace millrace {
namespace {

constexpr const char* kVariable = "MILLRACE_CPU";
constexpr std::array<std::string_view, 5> kNames{"portable", "avx2", "avx512", "avx512_bf16", "amx"};

// Returns true if the CPU has AMX_BF16 and AMX_TILE and the kernel grants this process the tile registers. A process must
// request them (Linux 5.16).
bool may_use_tiles() noexcept {
  constexpr unsigned kTileBf16 = 1U << 22U, kTile = 1U << 24U;
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // the kernel's ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kTileBf16) == 0 || (d & kTile) == 0) return false;
  static const bool may = ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return may;
}

std::string asked() {
  const char* const word = std::getenv(kVariable);
  return word == nullptr ? "" : word;
}

// Returns the names of the sets up to `best`: "portable, avx2 or avx512".
std::string names_up_to(InstructionSet best) {
  std::string text;
  for (std::size_t i = 0; i <= static_cast<std::size_t>(best); ++i) {
    if (i > 0) text += i == static_cast<std::size_t>(best) ? " or " : ", ";
    text += kNames.at(i);
  }
  return text;
}

// Sets the libraries' variables. Runs before main and before the program's own objects are constructed, but after the libraries
// are loaded. At this point no library has read its variable yet.
[[gnu::constructor(102)]] void lower_libraries() {
  __builtin_cpu_init();
  const std::string word = asked();
  if (word.empty()) return;
  try {
    const InstructionSet set = read_instructions(word, hardware_instructions());
    for (const LibraryWords& library : kLibraryWords) {
      const char* const now = std::getenv(library.variable);
      const std::string value(library_word(library, set, now == nullptr ? "" : now));
      ::setenv(library.variable, value.c_str(), 1);
    }
  } catch (const ConfigError& error) {
    const std::string text = std::string(error.what()) + "\n";
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    ::_exit(written < 0 ? 1 : error.exit_code());
  }
}

}  // namespace

std::string_view name_of(InstructionSet set) noexcept { return kNames.at(static_cast<std::size_t>(set)); }

InstructionSet hardware_instructions() noexcept {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return InstructionSet::portable;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vl")) {
    return InstructionSet::avx2;
  }
  if (!__builtin_cpu_supports("avx512bf16")) return InstructionSet::avx512;
  return may_use_tiles() ? InstructionSet::amx : InstructionSet::avx512_bf16;
}

InstructionSet instructions() noexcept {
  static const InstructionSet set = [] {
    const std::string word = asked();
    return word.empty() ? hardware_instructions() : read_instructions(word, hardware_instructions());
  }();
  return set;
}

std::string asked_instructions() {
  const std::string word = asked();
  return word.empty() ? "" : std::string(kVariable) + "=" + word;
}

InstructionSet read_instructions(const std::string& word, InstructionSet has) {
  const auto* const found = std::find(kNames.begin(), kNames.end(), word);
  const std::string next = "set " + std::string(kVariable) + " to " + names_up_to(has) + ", or unset it";
  if (found == kNames.end()) throw ConfigError({"there is no instruction set " + quoted(word), kVariable, next});
  const auto set = static_cast<InstructionSet>(std::distance(kNames.begin(), found));
  if (set > has) throw ConfigError({"this CPU does not have the instruction set " + quoted(word), kVariable, next});
  return set;
}

std::string_view library_word(const LibraryWords& library, InstructionSet set, std::string_view now) noexcept {
  const std::string_view wanted = library.of_set[static_cast<std::size_t>(set)];
  for (const std::string_view word : library.words) {
    if (!word.empty() && word.size() == now.size() && ::strncasecmp(word.data(), now.data(), word.size()) == 0) return now;
    if (word == wanted) break;
  }
  return wanted;
}

}  // namespace millrace
