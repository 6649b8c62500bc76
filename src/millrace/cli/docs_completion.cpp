#include <algorithm>
#include <set>

#include "millrace/base/shell_word.h"
#include "millrace/cli/detail/docs_pages.h"
#include "millrace/train/run/run.h"

namespace millrace::cli {
namespace {

bool is_of_a_flag(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_'; }

// Adds the flags in a text, such as "--max-restarts". Skips "--section.key=VALUE", which stands for any key.
void add_flags(std::string_view text, std::vector<std::string>& flags) {
  for (std::size_t at = text.find("--"); at != std::string_view::npos; at = text.find("--", at)) {
    const bool begins = at == 0 || !is_of_a_flag(text[at - 1]);
    std::size_t end = at + 2;
    while (end < text.size() && is_of_a_flag(text[end])) ++end;
    const std::string flag(text.substr(at, end - at));
    const bool is_key = end < text.size() && text[end] == '.' && end + 1 < text.size() && is_of_a_flag(text[end + 1]);
    if (begins && flag.size() > 2 && !is_key && std::ranges::find(flags, flag) == flags.end()) flags.push_back(flag);
    at = end;
  }
}

bool takes_recipe(std::string_view arguments) { return arguments.find("RECIPE") != std::string_view::npos; }

// A flag for each key of a run and of each recipe.
std::vector<std::string> key_flags(const Invocation& call) {
  std::set<std::string> flags;
  for (const Entry& entry : call.recipes) {
    for (const config::Leaf& leaf : schema_of(entry).leaves) flags.insert("--" + leaf.path + "=");
  }
  return {flags.begin(), flags.end()};
}

bool takes_keys(const CompletedCommand& command) { return std::ranges::find(command.words, "RECIPE") != command.words.end(); }

std::string joined_by_space(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::vector<std::string> recipe_names(const Invocation& call) {
  std::vector<std::string> names;
  for (const Entry& entry : call.recipes) names.push_back(entry.name);
  return names;
}

std::vector<std::string> words_of(const CompletedCommand& command, const Invocation& call) {
  return takes_keys(command) ? recipe_names(call) : command.words;
}

}  // namespace

std::vector<CompletedCommand> completed_commands(const Invocation& call) {
  std::vector<CompletedCommand> all;
  for (const Command* command : commands()) {
    if (command->group.empty()) continue;
    CompletedCommand& completed = all.emplace_back();
    completed.name = command->name;
    completed.summary = command->summary;
    add_flags(command->arguments, completed.flags);
    add_flags(command->help, completed.flags);
    if (takes_recipe(command->arguments)) completed.words.emplace_back("RECIPE");
    completed.flags.emplace_back("--help");
  }
  for (const Entry& entry : call.recipes) {
    for (const RecipeCommand& command : entry.commands) {
      CompletedCommand& completed = all.emplace_back();
      completed.name = command.name;
      completed.summary = command.help;
      completed.flags = {"--help"};
    }
  }
  return all;
}

std::string bash_completion(const Invocation& call) {
  const std::vector<CompletedCommand> all = completed_commands(call);
  std::vector<std::string> names;
  std::string cases;
  for (const CompletedCommand& command : all) {
    names.push_back(command.name);
    cases += "    " + command.name + ")\n      flags=\"" + joined_by_space(command.flags) + "\"\n      words=\"" +
             joined_by_space(words_of(command, call)) + "\"\n" + (takes_keys(command) ? "      flags+=\" $keys\"\n" : "") +
             "      ;;\n";
  }
  return "# Completion of millrace for bash. Made by `millrace docs bash`.\n"
         "_millrace() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} flags='' words='' keys\n"
         "  local line=${COMP_LINE:0:COMP_POINT}\n"
         "  word=${line##*[[:space:]]}\n"
         "  if ((COMP_CWORD == 1)); then\n"
         "    COMPREPLY=($(compgen -W \"" +
         joined_by_space(names) +
         " --help --version\" -- \"$word\"))\n"
         "    return\n"
         "  fi\n"
         "  keys=\"" +
         joined_by_space(key_flags(call)) +
         "\"\n"
         "  case ${COMP_WORDS[1]} in\n" +
         cases +
         "  esac\n"
         "  if [[ $word == -* ]]; then\n"
         "    compopt -o nospace\n"
         "    COMPREPLY=($(compgen -W \"$flags\" -- \"$word\"))\n"
         "  else\n"
         "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\") $(compgen -f -- \"$word\"))\n"
         "  fi\n"
         "}\n"
         "complete -o filenames -F _millrace millrace\n";
}

std::string zsh_completion(const Invocation& call) {
  const std::vector<CompletedCommand> all = completed_commands(call);
  std::string described, cases;
  for (const CompletedCommand& command : all) {
    described += "    " + shell_word(command.name + ":" + command.summary) + "\n";
    cases += "    " + command.name + ")\n      flags=(" + joined_by_space(command.flags) + ")\n      words_of=(" +
             joined_by_space(words_of(command, call)) + ")\n" + (takes_keys(command) ? "      flags+=($keys)\n" : "") +
             "      ;;\n";
  }
  return "#compdef millrace\n"
         "# Completion of millrace for zsh. Made by `millrace docs zsh`.\n"
         "_millrace() {\n"
         "  local -a commands flags words_of keys\n"
         "  commands=(\n" +
         described +
         "  )\n"
         "  if ((CURRENT == 2)); then\n"
         "    _describe command commands\n"
         "    return\n"
         "  fi\n"
         "  keys=(" +
         joined_by_space(key_flags(call)) +
         ")\n"
         "  case $words[2] in\n" +
         cases +
         "  esac\n"
         "  if [[ $words[CURRENT] == -* ]]; then\n"
         "    compadd -S '' -- $flags\n"
         "  else\n"
         "    compadd -- $words_of\n"
         "    _files\n"
         "  fi\n"
         "}\n"
         "_millrace \"$@\"\n";
}

std::string fish_completion(const Invocation& call) {
  std::string text = "# Completion of millrace for fish. Made by `millrace docs fish`.\n";
  std::string with_keys;
  for (const CompletedCommand& command : completed_commands(call)) {
    text += "complete -c millrace -n __fish_use_subcommand -f -a " + command.name + " -d " + shell_word(command.summary) + "\n";
    const std::string condition = " -n " + shell_word("__fish_seen_subcommand_from " + command.name);
    for (const std::string& flag : command.flags)
      text.append("complete -c millrace").append(condition).append(" -l ").append(flag.substr(2)).append("\n");
    const std::vector<std::string> words = words_of(command, call);
    if (!words.empty())
      text.append("complete -c millrace")
          .append(condition)
          .append(" -a ")
          .append(shell_word(joined_by_space(words)))
          .append("\n");
    if (takes_keys(command)) with_keys += (with_keys.empty() ? "" : " ") + command.name;
  }
  for (const std::string& key : key_flags(call)) {
    text.append("complete -c millrace -n ").append(shell_word("__fish_seen_subcommand_from " + with_keys));
    text.append(" -l ").append(key, 2, key.size() - 3).append(" -r\n");
  }
  return text;
}

}  // namespace millrace::cli
