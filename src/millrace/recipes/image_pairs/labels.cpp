#include "millrace/recipes/image_pairs/labels.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/fs.h"
#include "millrace/base/philox.h"
#include "millrace/base/utf8.h"
#include "millrace/recipes/image_pairs/loss.h"

namespace millrace::recipes::image_pairs {
namespace {

constexpr std::uint64_t kInterval = 71;  // site of the draw
constexpr std::size_t kListed = 5;

std::string_view trimmed(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

// What is wrong with a line, or "".
std::string parse_line(std::string_view line, Labelled& label) {
  const std::size_t blank = line.find_last_of(" \t");
  if (blank == std::string_view::npos) return "has no score";
  const std::string_view number = line.substr(blank + 1);
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), label.score);
  if (error != std::errc() || end != number.data() + number.size()) return "has " + quoted(number) + " where the score is due";
  if (!std::isfinite(label.score)) return "has a score that is not finite";
  label.name = trimmed(line.substr(0, blank));
  return "";
}

template <typename Use>
void for_lines(std::string_view text, const Use& use) {
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = trimmed(text.substr(begin, end - begin));
    begin = end + 1;
    ++number;
    if (!line.empty() && line.front() != '#') use(number, line);
  }
}

void read_groups(const std::filesystem::path& file, std::vector<Labelled>& labels) {
  std::error_code none;
  if (!std::filesystem::exists(file, none)) return;
  const std::string text = Fs::real().read_file(file);
  std::map<std::string_view, std::string_view> groups;
  for_lines(text, [&](std::size_t number, std::string_view line) {
    const std::size_t tab = line.find('\t');
    if (tab == std::string_view::npos) {
      throw DataError({"line " + std::to_string(number) + " has no tab between name and group", file.string(),
                       "write a line \"name<tab>group\" for each image, or take the file away"});
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
  if (first_invalid_utf8(text)) throw DataError({"the labels are not UTF-8", file.string(), "save the file as UTF-8"});
  std::vector<Labelled> labels;
  std::vector<std::string> wrong;
  std::map<std::string, std::size_t, std::less<>> lines;
  for_lines(text, [&](std::size_t number, std::string_view line) {
    Labelled label;
    std::string what = parse_line(line, label);
    if (what.empty()) {
      const auto [before, is_new] = lines.emplace(label.name, number);
      if (!is_new) what = "names " + quoted(label.name) + " again, after line " + std::to_string(before->second);
    }
    if (!what.empty()) {
      wrong.push_back("line " + std::to_string(number) + " " + what);
    } else {
      labels.push_back(std::move(label));
    }
  });
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
