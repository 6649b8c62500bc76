#include <sstream>

#include "millrace/cli/detail/docs_pages.h"
#include "millrace/cli/shared/version.h"

namespace millrace::cli {
namespace {

// Escapes text for roff: doubles backslashes, makes hyphens copyable, and protects lines that look like roff requests.
std::string as_roff(std::string_view text) {
  std::string roff;
  for (const char c : text) {
    if ((c == '.' || c == '\'') && (roff.empty() || roff.back() == '\n')) roff += "\\&";
    if (c == '\\')
      roff += "\\e";
    else if (c == '-')
      roff += "\\-";
    else
      roff += c;
  }
  return roff;
}

// Makes roff keep the lines as they are, because help texts are laid out in columns.
std::string verbatim(std::string_view text) { return ".nf\n" + as_roff(text) + (text.ends_with('\n') ? "" : "\n") + ".fi\n"; }

}  // namespace

std::string man_page(const Invocation& call) {
  std::string page = ".TH MILLRACE 1 \"\" \"Millrace " + version_number() + "\" \"User Commands\"\n";
  page += ".SH NAME\nmillrace \\- trains deep\\-learning models on LibTorch and explains its choices\n";
  page += ".SH SYNOPSIS\n.B millrace\n.I COMMAND\n[\\fIargument\\fR ...]\n";
  page += ".SH DESCRIPTION\n" + verbatim(top_help(call));
  page += ".SH COMMANDS\n";
  for (const Command* command : commands()) {
    if (command->group.empty()) continue;
    page += ".SS " + as_roff(command->name) + "\n";
    page += verbatim("usage: millrace " + std::string(command->name) + " " + std::string(command->arguments) + "\n\n" +
                     std::string(command->help));
  }
  page += ".SH RECIPES\n";
  for (const Entry& entry : call.recipes) page += ".TP\n.B " + as_roff(entry.name) + "\n" + as_roff(entry.summary) + "\n";
  return page;
}

}  // namespace millrace::cli
