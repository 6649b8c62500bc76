// The pages that the program makes from its tables: a manual page for man, completions for shells.
#include <gmock/gmock.h>

#include <sstream>

#include "process.h"

namespace millrace::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Result page(const std::string& name) { return run({MILLRACE_PROGRAM, "docs", name}); }

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// What bash offers for the last word of `line`, one a line.
std::string offered(const std::string& line) {
  const Scratch scratch;
  write_text(scratch.path() / "completion", page("bash").out);
  const std::string script =
      "source completion; COMP_LINE=\"$1\"; COMP_POINT=${#1}; read -ra COMP_WORDS <<<\"$1\"; [[ $1 != *' ' ]] || "
      "COMP_WORDS+=(''); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); compopt() { :; }; _millrace; printf '%s\\n' "
      "\"${COMPREPLY[@]}\"";
  const Result result = run({"/bin/bash", "-c", script, "bash", line}, {.folder = scratch.path()});
  EXPECT_EQ(result.err, "");
  return "\n" + result.out;
}

TEST(Docs, ThePageOfAManualHasEveryCommandAndNoLineThatRoffWouldTakeForARequest) {
  const Result manual = page("man");
  ASSERT_EQ(manual.exit_code, 0) << manual.err;
  EXPECT_THAT(manual.out, HasSubstr(".TH MILLRACE 1"));
  for (const std::string& line : lines_of(run({MILLRACE_PROGRAM, "--help"}).out)) {
    if (!line.starts_with("  ") || line.starts_with("  -") || line.size() < 4) continue;
    const std::string word = line.substr(2, line.find(' ', 2) - 2);
    std::string shown = word;
    for (std::size_t at = 0; (at = shown.find('-', at)) != std::string::npos; at += 2) shown.insert(at, "\\");
    EXPECT_THAT(manual.out, HasSubstr(shown));
  }
  for (const std::string& line : lines_of(manual.out)) {
    if (line.starts_with(".")) {
      EXPECT_THAT(line, ::testing::MatchesRegex(R"(\.(TH|SH|SS|TP|B|I|nf|fi)( .*)?)"));
    }
  }
}

TEST(Docs, BashOffersCommandsThenRecipesFlagsAndKeys) {
  EXPECT_THAT(offered("millrace tr"), HasSubstr("\ntrain\n"));
  EXPECT_THAT(offered("millrace gen"), HasSubstr("\ngenerate\n"));  // a recipe's
  EXPECT_THAT(offered("millrace docs"), Not(HasSubstr("docs")));    // not in --help either
  EXPECT_THAT(offered("millrace train cosm"), HasSubstr("\ncosmology\n"));
  EXPECT_THAT(offered("millrace train cosmology --pre"), HasSubstr("\n--preset\n"));
  EXPECT_THAT(offered("millrace train cosmology --optim.learning"), HasSubstr("\n--optim.learning_rate=\n"));
  EXPECT_THAT(offered("millrace doctor --"), HasSubstr("\n--strict\n"));
  EXPECT_THAT(offered("millrace report --op"), Not(HasSubstr("optim")));  // it takes no recipe, so no keys
}

TEST(Docs, ShellsTakeTheirCompletion) {
  for (const std::string& shell : {std::string("bash"), std::string("zsh"), std::string("fish")}) {
    const Result completion = page(shell);
    ASSERT_EQ(completion.exit_code, 0) << completion.err;
    EXPECT_THAT(completion.out, HasSubstr("max-batch"));
    const Scratch scratch;
    write_text(scratch.path() / "completion", completion.out);
    const Result checked =
        run({"/bin/sh", "-c", "command -v " + shell + " >/dev/null || exit 0; exec " + shell + " -n completion"},
            {.folder = scratch.path()});
    EXPECT_EQ(checked.exit_code, 0) << checked.err;
  }
}

TEST(Docs, AnUnknownPageIsNamed) {
  const Result result = page("manual");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(
      result.err,
      "UsageError  there is no page \"manual\"\n  where    millrace docs\n  next     write config, man, bash, zsh or fish\n");
}

}  // namespace
}  // namespace millrace::test
