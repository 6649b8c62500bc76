#include "millrace/base/shell_word.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>

namespace millrace {
namespace {

TEST(ShellWord, PlainWordsStayAsTheyAre) {
  for (const char* const word : {"train", "--data.batch_size=4", "/data/a_b-1.txt", "HOST:29500", "a,b", "50%", "me@host"})
    EXPECT_EQ(shell_word(word), word);
}

TEST(ShellWord, AllElseIsQuoted) {
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word("=ls"), "'=ls'");
}

// The text that a shell makes of this word.
std::string through_shell(const std::string& word) {
  std::FILE* const shell = ::popen(("printf %s " + word).c_str(), "r");  // NOLINT(cert-env33-c)
  if (shell == nullptr) return "no shell";
  std::array<char, 256> text{};
  const std::size_t size = std::fread(text.data(), 1, text.size(), shell);
  EXPECT_EQ(::pclose(shell), 0);
  return {text.data(), size};
}

TEST(ShellWord, AShellReadsTheSameText) {
  for (const std::string text : {"plain", "a b", "it's", "'", "$HOME `ls` \\", "~", "a\nb", "#x", "\"q\"", "Äpfel", "=x", "*"})
    EXPECT_EQ(through_shell(shell_word(text)), text);
}

}  // namespace
}  // namespace millrace
