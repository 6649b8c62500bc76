#include "millrace/base/error.h"

#include <algorithm>

namespace millrace {
namespace {

// Returns `text` without its trailing line breaks, and with its second and later lines moved right by `columns`.
std::string indented(std::string_view text, std::size_t columns) {
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  std::string result;
  for (const char c : text) {
    result += c;
    if (c == '\n') result.append(columns, ' ');
  }
  return result;
}

void append_parts(std::string& text, const Message& message, std::size_t margin) {
  const auto part = [&](std::string_view label, const std::string& value) {
    if (value.empty()) return;
    text += '\n';
    text.append(margin, ' ');
    text += label;
    text += indented(value, margin + label.size());
  };
  part("where    ", message.where);
  part("next     ", message.next);
}

std::string problems_text(const std::vector<Problem>& problems) {
  if (problems.size() == 1) return to_text("ConfigError", problems.front());
  const std::size_t digits = std::max<std::size_t>(2, std::to_string(problems.size()).size());
  std::string text = "ConfigError  " + std::to_string(problems.size()) + " problems in the config";
  for (std::size_t i = 0; i < problems.size(); ++i) {
    const std::string number = std::to_string(i + 1);
    const std::size_t margin = 2 + digits + 2;
    text += '\n' + std::string(2 + digits - number.size(), ' ') + number + "  " + indented(problems[i].what, margin);
    append_parts(text, problems[i], margin + 2);
  }
  return text;
}

Message summary_of(const std::vector<Problem>& problems) {
  MR_CHECK(!problems.empty(), "a ConfigError needs a problem");
  if (problems.size() == 1) return problems.front();
  return {.what = std::to_string(problems.size()) + " problems in the config", .where = "", .next = ""};
}

}  // namespace

std::string to_text(std::string_view kind, const Message& message) {
  std::string text(kind);
  text += "  ";
  text += indented(message.what, kind.size() + 2);
  append_parts(text, message, 2);
  return text;
}

Error::Error(std::string_view kind, Message message, int exit_code)
    : kind_(kind), message_(std::move(message)), exit_code_(exit_code), text_(to_text(kind_, message_)) {}

Error::Error(std::string_view kind, Message message, int exit_code, std::string text)
    : kind_(kind), message_(std::move(message)), exit_code_(exit_code), text_(std::move(text)) {}

ConfigError::ConfigError(Message message) : ConfigError(std::vector<Problem>{std::move(message)}) {}
ConfigError::ConfigError(std::vector<Problem> problems)
    : Error("ConfigError", summary_of(problems), 2, problems_text(problems)), problems_(std::move(problems)) {}
UsageError::UsageError(Message message) : Error("UsageError", std::move(message), 2) {}
DataError::DataError(Message message) : Error("DataError", std::move(message), 1) {}
RowError::RowError(Message message, std::int64_t row, std::string group)
    : DataError(std::move(message)), row_(row), group_(std::move(group)) {}
RecipeError::RecipeError(Message message) : Error("RecipeError", std::move(message), 1) {}
DeviceError::DeviceError(Message message) : Error("DeviceError", std::move(message), 1) {}
DistributedError::DistributedError(Message message) : Error("DistributedError", std::move(message), 1) {}
SnapshotError::SnapshotError(Message message) : Error("SnapshotError", std::move(message), 1) {}
TrainingDiverged::TrainingDiverged(Message message) : Error("TrainingDiverged", std::move(message), 1) {}
InternalError::InternalError(Message message) : Error("InternalError", std::move(message), 1) {}

void detail::check_failed(const char* condition, const char* file, int line, const std::string& text) {
  const std::string_view path(file);
  std::size_t start = path.rfind("src/millrace/");
  if (start == std::string_view::npos) start = path.rfind("recipes/");
  const std::string_view shown = start == std::string_view::npos ? path : path.substr(start);
  throw InternalError({.what = text + " (" + condition + ")",
                       .where = std::string(shown) + ":" + std::to_string(line),
                       .next = "this is a mistake in Millrace: please report it with the command and this text"});
}

}  // namespace millrace
