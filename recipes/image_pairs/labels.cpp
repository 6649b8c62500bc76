#include "recipes/image_pairs/labels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/fs.h"
#include "millrace/base/philox.h"
#include "millrace/base/text_encoding.h"
#include "millrace/base/utf8.h"
#include "millrace/format/csv.h"
#include "recipes/image_pairs/loss.h"

namespace millrace::recipes::image_pairs {
namespace {

constexpr std::uint64_t kInterval = 71;  // makes this draw's random numbers differ from those of other uses of the seed
constexpr std::size_t kListed = 5;

std::string_view trimmed(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

template <typename Use>
void for_lines(std::string_view text, const Use& use) {
  text = format::without_mark(text);
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = trimmed(text.substr(begin, end - begin));
    begin = end + 1;
    ++number;
    if (!line.empty() && line.front() != '#') use(number, line);
  }
}

// True if the line ends with a blank and a number. `point` is the decimal sign.
bool ends_in_number(std::string_view line, char point) {
  const std::size_t blank = line.find_last_of(" \t");
  if (blank == std::string_view::npos || blank == 0 || line[blank - 1] == ',' || line[blank - 1] == ';') return false;
  std::string number(line.substr(blank + 1));
  if (point != '.') std::replace(number.begin(), number.end(), point, '.');
  return format::csv_value(number).has_value();
}

// Returns the separator between name and score: a blank, as in Millrace's format, or the separator that all lines of another
// program's table have.
char separator_of(std::string_view text) {
  std::size_t lines = 0, by_blanks = 0, with_commas = 0;
  std::array<std::size_t, 3> separated{};
  constexpr std::array kSeparators = {'\t', ';', ','};
  for_lines(text, [&](std::size_t, std::string_view line) {
    ++lines;
    by_blanks += ends_in_number(line, '.') ? 1 : 0;
    with_commas += ends_in_number(line, ',') ? 1 : 0;
    for (std::size_t i = 0; i < kSeparators.size(); ++i)
      separated[i] += line.find(kSeparators[i]) != std::string_view::npos ? 1 : 0;
  });
  for (std::size_t i = 0; i < kSeparators.size() && by_blanks < lines; ++i) {
    // A line "a 1,5" may mean "a" with the score 1.5, or "a 1" with the score 5. So a comma is the separator only if no comma
    // can be a decimal sign.
    if (separated[i] == lines && (kSeparators[i] != ',' || with_commas == 0)) return kSeparators[i];
  }
  return ' ';
}

std::string unquoted(std::string_view name) {
  if (name.size() < 2 || name.front() != '"' || name.back() != '"') return std::string(name);
  std::string plain;
  for (std::size_t i = 1; i + 1 < name.size(); ++i) {
    plain += name[i];
    if (name[i] == '"' && name[i + 1] == '"') ++i;
  }
  return plain;
}

// True if the line is a heading, as in tables of other programs.
bool is_heading(std::string_view line, char separator) {
  constexpr std::array<std::string_view, 6> kNames = {"score", "scores", "value", "label", "quality", "mos"};
  const std::string last = to_lower(unquoted(trimmed(line.substr(line.rfind(separator) + 1))));
  return std::ranges::find(kNames, last) != kNames.end();
}

// Reads a line into `label`. Returns what is wrong with the line, or "".
std::string parse_line(std::string_view line, char separator, Labelled& label) {
  const std::size_t blank = separator == ' ' ? line.find_last_of(" \t") : line.find(separator);
  if (blank == std::string_view::npos) return "has no score: " + quoted(line);
  const std::string_view name = trimmed(line.substr(0, blank));
  const std::string text = unquoted(trimmed(line.substr(blank + 1)));
  const std::optional<double> score = format::csv_value(text, separator == ';' || separator == '\t');
  if (!score)
    return "has " + quoted(text) + " where a score is expected" +
           (ends_in_number("x " + text, ',') ? ", which may mean two numbers: write it with a point" : "");
  label.score = *score;
  if (!std::isfinite(label.score)) return "has a score that is not finite";
  label.name = unquoted(name);
  return "";
}

void read_groups(const std::filesystem::path& file, std::vector<Labelled>& labels) {
  std::error_code none;
  if (!std::filesystem::exists(file, none)) return;
  const std::string text = Fs::real().read_file(file);
  if (const std::optional<NoText> other = problem_of_text(text, file))
    throw DataError({"the file of groups " + other->is, file.string(), other->next});
  std::map<std::string_view, std::string_view> groups;
  for_lines(text, [&](std::size_t number, std::string_view line) {
    const std::size_t tab = line.find('\t');
    if (tab == std::string_view::npos) {
      throw DataError({"line " + std::to_string(number) + " has no tab between name and group", file.string(),
                       "write a line \"name<tab>group\" for each image, or remove the file"});
    }
    groups[trimmed(line.substr(0, tab))] = trimmed(line.substr(tab + 1));
  });
  for (Labelled& label : labels) {
    if (const auto found = groups.find(label.name); found != groups.end()) label.group = found->second;
  }
}

}  // namespace

const std::string& name_of(Answer answer) { return answer_names().at(static_cast<std::size_t>(answer)); }

std::optional<Answer> answer_named(std::string_view name) {
  const auto& names = answer_names();
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Answer>(found - names.begin());
}

Answer answer_of(double first, double second, double theta) {
  constexpr double kMillion = 1e6;
  const double apart = std::round(first * kMillion) - std::round(second * kMillion);
  if (std::abs(apart) <= std::round(theta * kMillion)) return Answer::similar;
  return apart > 0 ? Answer::first : Answer::second;
}

std::vector<Labelled> read_labels(const std::filesystem::path& file) {
  const std::string text = Fs::real().read_file(file);
  if (const std::optional<NoText> other = problem_of_text(text, file))
    throw DataError({"the file of labels " + other->is, file.string(), other->next});
  const char separator = separator_of(text);
  std::vector<Labelled> labels;
  std::vector<std::string> wrong;
  std::map<std::string, std::size_t, std::less<>> lines;
  bool with_comma = false, with_point = false;
  for_lines(text, [&](std::size_t number, std::string_view line) {
    if (number == 1 && separator != ' ' && is_heading(line, separator)) return;
    Labelled label;
    std::string what = parse_line(line, separator, label);
    if (what.empty()) {
      const auto [before, is_new] = lines.emplace(label.name, number);
      if (!is_new) what = "names " + quoted(label.name) + " again, after line " + std::to_string(before->second);
    }
    if (!what.empty()) {
      wrong.push_back("line " + std::to_string(number) + " " + what);
    } else {
      labels.push_back(std::move(label));
      if (separator != ';' && separator != '\t') return;  // with other separators a comma is never a decimal sign
      const std::string_view score = line.substr(line.find(separator) + 1);
      with_comma = with_comma || score.find(',') != std::string_view::npos;
      with_point = with_point || score.find('.') != std::string_view::npos;
    }
  });
  if (with_comma && with_point)
    throw DataError({"some scores have a decimal comma and some a point, and either may mark decimals or thousands",
                     file.string(), "write all scores with a decimal point, and without marks between thousands"});
  if (!wrong.empty()) {
    const std::size_t count = wrong.size();
    wrong.resize(std::min(count, kListed));
    throw DataError({joined(wrong, "; ") + (count > kListed ? "; and " + std::to_string(count - kListed) + " more lines" : ""),
                     file.string(), "write a line \"name score\" for each image"});
  }
  if (labels.empty()) throw DataError({"there are no labels", file.string(), "write a line \"name score\" for each image"});
  std::ranges::sort(labels, {}, &Labelled::name);
  read_groups(file.parent_path() / "groups.txt", labels);
  return labels;
}

std::vector<Labelled> even_in_score(std::vector<Labelled> labels, std::int64_t most, double width, std::uint64_t seed) {
  Philox random(make_key(seed, kInterval));
  for (std::size_t i = labels.size(); i > 1; --i) std::swap(labels[i - 1], labels[random.below(i)]);
  std::map<std::int64_t, std::int64_t> taken;
  std::erase_if(
      labels, [&](const Labelled& label) { return ++taken[static_cast<std::int64_t>(std::floor(label.score / width))] > most; });
  std::ranges::sort(labels, {}, &Labelled::name);
  return labels;
}

}  // namespace millrace::recipes::image_pairs
