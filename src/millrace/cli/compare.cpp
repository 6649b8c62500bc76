#include <algorithm>
#include <cmath>

#include "millrace/base/format.h"
#include "millrace/cli/shared/arguments.h"
#include "millrace/cli/shared/command.h"
#include "millrace/cli/shared/text.h"
#include "millrace/metrics/figure.h"
#include "millrace/runs/comparison.h"

namespace millrace::cli {
namespace {

constexpr std::string_view kCompareHelp =
    R"(Compares two runs: which keys of the config differ, and where their values come from; whether machine, versions and
data are the same; the time of a step by account, and its ratio; memory by account; losses and metrics at an equal step and
after equal time; and which finding of the doctor explains why one is slower. If the recipes differ,
their steps can't be compared; it then compares the shares of the time.

  --json                as JSON, with all digits
)";

using Table = std::vector<std::vector<std::string>>;

constexpr std::size_t kWidest = 30;  // characters of a value; longer values are cut, so that five columns fit on a screen

std::string cut(const std::string& text) {
  std::string plain = text.empty() ? "\"\"" : printable(text);
  if (plain.size() <= kWidest) return plain;
  std::size_t end = kWidest - 1;
  while (end > 0 && (static_cast<unsigned char>(plain[end]) & 0xC0U) == 0x80U) --end;  // does not cut inside a UTF-8 character
  return plain.substr(0, end) + "…";
}

void print_part(const std::string& title, const Table& rows) { print("\n" + title + "\n" + table(rows)); }

std::string value_of(const std::optional<runs::RunFacts::Setting>& setting) { return setting ? cut(setting->value) : "-"; }
std::string origin_of(const std::optional<runs::RunFacts::Setting>& setting) {
  return setting && !setting->origin.empty() ? cut(setting->origin) : "";
}

void print_settings(const std::string& what, const std::vector<runs::Comparison::Difference>& all) {
  if (all.empty()) return print("\n" + what + ": the same\n");
  Table rows = {{"", "A", "", "B", ""}};
  for (const runs::Comparison::Difference& each : all)
    rows.push_back({printable(each.key), value_of(each.a), origin_of(each.a), value_of(each.b), origin_of(each.b)});
  print_part(what + " that differ", rows);
}

void print_chosen(const std::string& what, const std::vector<runs::Comparison::Difference>& all) {
  if (all.empty()) return print("\n" + what + ": the same\n");
  std::string text = "\n" + what + "\n";
  for (const runs::Comparison::Difference& each : all) {
    text += printable(each.key) + "\n";
    for (const auto& [name, setting] : {std::pair{"A", &each.a}, std::pair{"B", &each.b}}) {
      text += std::string("  ") + name + "  " + (*setting ? printable((*setting)->value) : std::string("-"));
      text += *setting && !(*setting)->origin.empty() ? "  " + printable((*setting)->origin) + "\n" : "\n";
    }
  }
  print(text);
}

void print_data(const runs::Comparison& comparison, const runs::RunFacts& a, const runs::RunFacts& b) {
  if (a.is_script && b.is_script) return;
  const auto of = [](const std::string& data) { return data.empty() ? "unknown: there is no snapshot" : printable(data); };
  if (!comparison.data) return print("\ndata: " + (a.data.empty() ? of("") : std::string("the same")) + "\n");
  print("\ndata\n  A  " + of(a.data) + "\n  B  " + of(b.data) + "\n");
}

template <class Format>
std::vector<std::string> cells(const runs::Pair& pair, const Format& format) {
  const auto cell = [&](const std::optional<double>& value) { return value ? format(*value) : std::string("-"); };
  const bool has_ratio = pair.a && pair.b && *pair.a > 0 && *pair.b >= 0;
  return {printable(pair.name), cell(pair.a), cell(pair.b), has_ratio ? significant(*pair.b / *pair.a, 3) : "-"};
}

void print_times(const runs::Comparison& comparison) {
  if (comparison.accounts.empty()) return;
  const bool shares = comparison.unit == runs::Unit::share;
  const auto format = [&](double value) { return shares ? percent(value, 1) : fixed(value * 1e3, 3); };
  Table rows = {{"", "A", "B", "B / A"}};
  for (const runs::Pair& pair : comparison.accounts) rows.push_back(cells(pair, format));
  rows.push_back(cells(comparison.loop, format));
  if (!shares) rows.push_back(cells(comparison.step_ms, [](double ms) { return fixed(ms, 3); }));
  const std::string unit = comparison.unit == runs::Unit::seconds_a_sample ? "ms a sample" : "ms a step";
  print_part(shares ? "shares of the time" : "time, " + unit, rows);
  if (comparison.once.empty()) return;
  Table once = {{"", "A", "B", "B / A"}};
  for (const runs::Pair& pair : comparison.once) once.push_back(cells(pair, [](double seconds) { return fixed(seconds, 3); }));
  print_part("before the first step, s", once);
}

void print_memory(const runs::Comparison& comparison) {
  if (comparison.memory.empty()) return;
  Table rows = {{"", "A", "B", "B / A"}};
  for (const runs::Pair& pair : comparison.memory) {
    constexpr double kWorthALine = 1e6;
    if (std::max(std::abs(pair.a.value_or(0)), std::abs(pair.b.value_or(0))) < kWorthALine) continue;
    rows.push_back(cells(pair, [](double bytes) { return (bytes < 0 ? "-" : "") + human_bytes(std::abs(bytes)); }));
  }
  if (rows.size() > 1) print_part("memory", rows);
}

void print_quality(const std::string& title, const std::vector<runs::Comparison::QualityPair>& all) {
  if (all.empty()) return;
  Table rows = {{"", "A", "at step", "after", "B", "at step", "after"}};
  for (const runs::Comparison::QualityPair& each : all) {
    std::vector<std::string> row = {printable(each.name)};
    for (const auto& at : {each.a, each.b}) {
      row.push_back(at ? metrics::figure_of(each.name, at->value) : "-");
      row.push_back(at ? with_commas(static_cast<std::int64_t>(at->step)) : "-");
      row.push_back(at ? human_duration(at->seconds) : "-");
    }
    rows.push_back(row);
  }
  print_part(title, rows);
}

void print_text(const runs::Comparison& comparison, const runs::RunFacts& a, const runs::RunFacts& b) {
  Table head;
  for (const auto& [name, run] : {std::pair{"A", &a}, std::pair{"B", &b}}) {
    head.push_back({name, printable(run->folder), run->recipe.empty() ? "-" : printable(run->recipe),
                    run->preset.empty() ? "-" : printable(run->preset), printable(run->state)});
  }
  print(table(head) + "\n" + comparison.explanation.text + "\n");
  for (const std::string& note : comparison.notes) print("note: " + note + "\n");
  print_settings("keys of the config", comparison.config);
  print_chosen("what Millrace chose", comparison.plan);
  print_chosen("machine and versions", comparison.machine);
  print_data(comparison, a, b);
  print_times(comparison);
  print_memory(comparison);
  print_quality("losses and metrics at an equal step", comparison.at_step);
  print_quality("losses and metrics after equal time, " + human_duration(comparison.seconds), comparison.at_time);
}

// True if the two programs are different builds, which the version alone does not show.
bool is_another_build(const runs::Comparison& comparison) {
  const auto build = std::ranges::find(comparison.machine, "version of build", &runs::Comparison::Difference::key);
  return build != comparison.machine.end() && build->a && build->b;
}

int run_compare(const Invocation& call) {
  Arguments arguments(call.words);
  const bool json = arguments.flag("json");
  std::vector<std::string> folders;
  while (auto folder = arguments.positional()) folders.push_back(std::move(*folder));
  arguments.finish("compare");
  if (folders.size() != 2)
    throw UsageError({"compare needs the folders of two runs, and got " + std::to_string(folders.size()), "millrace compare A B",
                      "name two runs; to list the runs below ./runs: millrace runs"});
  const runs::RunFacts a = runs::read_facts(folders[0]);
  const runs::RunFacts b = runs::read_facts(folders[1]);
  runs::Comparison comparison = runs::compare(a, b);
  if (is_another_build(comparison))
    comparison.notes.emplace_back("the program is another build; the files of a run do not record how its code differs");
  if (json)
    print_json(to_json(comparison, a, b));
  else
    print_text(comparison, a, b);
  return 0;
}

}  // namespace

constinit const Command kCompare = {.name = "compare",
                                    .arguments = "A B [--json]",
                                    .summary = "two runs: their differences, the effect on time, memory and quality, and why",
                                    .group = "Look at things",
                                    .help = kCompareHelp,
                                    .run = run_compare};

}  // namespace millrace::cli
