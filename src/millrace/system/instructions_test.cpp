#include "millrace/system/instructions.h"

#include <gmock/gmock.h>

#include "millrace/base/error.h"
#include "tests/support/refusal.h"

namespace millrace {
namespace {

using testing::HasSubstr;

std::string refusal(const std::string& word, InstructionSet has) {
  return millrace::refusal<ConfigError>([&] { (void)read_instructions(word, has); });
}

TEST(Instructions, AWordNamesASetThatTheCpuHas) {
  for (const InstructionSet set : {InstructionSet::portable, InstructionSet::avx2, InstructionSet::avx512,
                                   InstructionSet::avx512_bf16, InstructionSet::amx}) {
    EXPECT_EQ(read_instructions(std::string(name_of(set)), InstructionSet::amx), set);
    EXPECT_EQ(read_instructions(std::string(name_of(set)), set), set);
  }
}

TEST(Instructions, OtherWordsAndHigherSetsAreRefused) {
  EXPECT_EQ(refusal("avx3", InstructionSet::avx512),
            "ConfigError  there is no instruction set \"avx3\"\n"
            "  where    MILLRACE_CPU\n"
            "  next     set MILLRACE_CPU to portable, avx2 or avx512, or unset it");
  EXPECT_EQ(refusal("avx512", InstructionSet::avx2),
            "ConfigError  this CPU does not have the instruction set \"avx512\"\n"
            "  where    MILLRACE_CPU\n"
            "  next     set MILLRACE_CPU to portable or avx2, or unset it");
  EXPECT_THAT(refusal("AVX2", InstructionSet::portable), HasSubstr("set MILLRACE_CPU to portable, or unset it"));
}

TEST(Instructions, ThisProcessUsesNoMoreThanTheCpuHas) {
  EXPECT_LE(instructions(), hardware_instructions());
  if (asked_instructions().empty()) {
    EXPECT_EQ(instructions(), hardware_instructions());
  } else {
    EXPECT_EQ(asked_instructions(), "MILLRACE_CPU=" + std::string(name_of(instructions())));
  }
}

TEST(Instructions, LibrariesAreLoweredAndNeverRaised) {
  const auto& [aten, onednn, mkl] = kLibraryWords;
  EXPECT_EQ(library_word(aten, InstructionSet::avx2, ""), "avx2");
  EXPECT_EQ(library_word(aten, InstructionSet::avx2, "avx512"), "avx2");
  EXPECT_EQ(library_word(aten, InstructionSet::avx2, "default"), "default");
  EXPECT_EQ(library_word(aten, InstructionSet::avx512_bf16, ""), "avx512");
  EXPECT_EQ(library_word(onednn, InstructionSet::portable, "AVX2"), "SSE41");
  EXPECT_EQ(library_word(onednn, InstructionSet::avx2, "AVX"), "AVX");
  EXPECT_EQ(library_word(onednn, InstructionSet::avx2, "sse41"), "sse41");
  EXPECT_EQ(library_word(onednn, InstructionSet::avx2, "AVX512_CORE_AMX"), "AVX2");
  EXPECT_EQ(library_word(onednn, InstructionSet::avx512, "ALL"), "AVX512_CORE");
  EXPECT_EQ(library_word(onednn, InstructionSet::avx512_bf16, "AVX512_CORE_VNNI"), "AVX512_CORE_VNNI");
  EXPECT_EQ(library_word(onednn, InstructionSet::avx512_bf16, "AVX512_CORE_AMX"), "AVX512_CORE_BF16");
  EXPECT_EQ(library_word(onednn, InstructionSet::amx, ""), "AVX512_CORE_AMX");
  EXPECT_EQ(library_word(mkl, InstructionSet::avx2, "SSE4_2"), "SSE4_2");
  EXPECT_EQ(library_word(mkl, InstructionSet::avx2, "AVX512_E4"), "AVX2");
}

}  // namespace
}  // namespace millrace
