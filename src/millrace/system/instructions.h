// Selects the CPU's instructions that this process uses.
//
// Millrace's kernels, ATen, oneDNN and MKL each use the best set that the CPU has. The environment variable MILLRACE_CPU names
// a lower set for all four, so that each path can be run, tested and timed on one machine. The libraries get the set through
// variables that they read at first use (ATEN_CPU_CAPABILITY, ONEDNN_MAX_CPU_ISA, MKL_ENABLE_INSTRUCTIONS). These variables are
// set before main, in every program that links this file. A variable that already names the same or a lower set does not
// change. An unknown word, or a set that this CPU does not have, ends the program before main, with a ConfigError's text and
// exit code 2. MKL reads its variable on Intel's processors only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace millrace {

// Each set includes those before it. avx2 is AVX2 with FMA; avx512 is AVX512F, BW, DQ and VL; amx is AMX_TILE and AMX_BF16.
enum class InstructionSet : std::uint8_t { portable, avx2, avx512, avx512_bf16, amx };

[[nodiscard]] std::string_view name_of(InstructionSet set) noexcept;
// Returns the best set of this CPU. The set is amx only if the system lets this process use the matrix unit, which the first
// call requests.
[[nodiscard]] InstructionSet hardware_instructions() noexcept;

// Returns the set that this process uses. Any thread may call it.
[[nodiscard]] InstructionSet instructions() noexcept;
// "MILLRACE_CPU=avx2" if the environment sets it, else "".
[[nodiscard]] std::string asked_instructions();

// Returns the set that a value of MILLRACE_CPU names, on a CPU whose best set is `has`. Throws ConfigError for another word or a
// higher set.
[[nodiscard]] InstructionSet read_instructions(const std::string& word, InstructionSet has);

// A library's environment variable and its words for Millrace's instruction sets, lowest first.
struct LibraryWords {
  const char* variable;
  std::string_view words[9];
  std::string_view of_set[5];  // one word for each InstructionSet
};
// Returns the variable's value for this set, or `now` if `now` already names the same or a lower set.
[[nodiscard]] std::string_view library_word(const LibraryWords& library, InstructionSet set, std::string_view now) noexcept;
inline constexpr LibraryWords kLibraryWords[] = {
    {"ATEN_CPU_CAPABILITY", {"default", "avx2", "avx512"}, {"default", "avx2", "avx512", "avx512", "avx512"}},
    {"ONEDNN_MAX_CPU_ISA",
     {"SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2", "AVX512_CORE", "AVX512_CORE_VNNI", "AVX512_CORE_BF16",
      "AVX512_CORE_AMX"},
     {"SSE41", "AVX2", "AVX512_CORE", "AVX512_CORE_BF16", "AVX512_CORE_AMX"}},
    {"MKL_ENABLE_INSTRUCTIONS", {"SSE4_2", "AVX", "AVX2", "AVX512"}, {"SSE4_2", "AVX2", "AVX512", "AVX512", "AVX512"}}};

}  // namespace millrace
