#include "millrace/cli/ledger.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "millrace/base/clock.h"
#include "millrace/base/format.h"
#include "millrace/base/fs.h"
#include "millrace/base/median.h"
#include "millrace/base/shallow_json.h"
#include "millrace/cli/comparison.h"
#include "millrace/cli/run_facts.h"
#include "millrace/cli/steady_accounts.h"
#include "millrace/cli/text.h"
#include "millrace/train/assembly/assembly.h"

namespace millrace::cli {
namespace {

constexpr double kGoal = 0.25;             // of the measured gain, that a prediction may be off
constexpr std::size_t kMostSiblings = 64;  // runs of a folder that are looked at, the newest
constexpr std::size_t kMostLines = 10'000;

Json to_json(const LedgerLine& line) {
  return {{"finding", line.finding}, {"setting", line.setting}, {"expected", line.expected}, {"measured", line.measured},
          {"recipe", line.recipe},   {"cpu", line.cpu},         {"source", line.source},     {"unix_time", line.unix_time}};
}

std::optional<LedgerLine> line_of(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  const auto text = [&](const char* key) {
    return json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : std::string();
  };
  const auto number = [&](const char* key) {
    return json.contains(key) && json[key].is_number() ? json[key].get<double>() : std::nan("");
  };
  LedgerLine line{.finding = text("finding"),
                  .setting = text("setting"),
                  .expected = number("expected"),
                  .measured = number("measured"),
                  .recipe = text("recipe"),
                  .cpu = text("cpu"),
                  .source = text("source"),
                  .unix_time = number("unix_time")};
  if (line.setting.empty() || !std::isfinite(line.expected) || !std::isfinite(line.measured)) return std::nullopt;
  return line;
}

// Seconds of the loop for a sample; nullopt when the run does not say.
std::optional<double> seconds_a_sample(const RunFacts& facts) {
  double sum = 0;
  for (const auto& [account, seconds] : facts.accounts) {
    if (is_steady(account)) sum += seconds;
  }
  const double samples = facts.steps * facts.samples_per_step;
  return sum > 0 && samples > 0 ? std::optional(sum / samples) : std::nullopt;
}

// Keys in which two runs may differ without being another run.
bool means_nothing(const std::string& key) {
  return key.starts_with("run.") || key.starts_with("profile.") || key.starts_with("log.doctor") || key.starts_with("targets.") ||
         key == "train.resume" || key == "train.max_steps" || key == "train.epochs" || key == "train.seed";
}

std::optional<LedgerLine> remedy_between(const RunFacts& before, const RunFacts& after) {
  if (before.recipe != after.recipe || !before.findings.is_array()) return std::nullopt;
  const Comparison comparison = compare(before, after);
  const Difference* changed = nullptr;
  for (const Difference& each : comparison.config) {
    if (means_nothing(each.key)) continue;
    if (changed != nullptr) return std::nullopt;
    changed = &each;
  }
  const auto slow = seconds_a_sample(before), fast = seconds_a_sample(after);
  constexpr double kBusy = 0.1;
  const bool busy = before.others.value_or(0) > kBusy || after.others.value_or(0) > kBusy;
  if (changed == nullptr || !changed->b || !slow || !fast || busy) return std::nullopt;
  for (const Json& finding : before.findings) {
    if (!finding.is_object() || !finding.contains("gain") || !finding["gain"].is_number()) continue;
    const Json value = finding.value("value", Json());
    if (finding.value("key", Json()) != changed->key || !value.is_string()) continue;
    if (!is_same_value(value.get<std::string>(), changed->b->value)) continue;
    return LedgerLine{.finding = finding.value("id", ""),
                      .setting = changed->key + "=" + changed->b->value,
                      .expected = finding["gain"].get<double>(),
                      .measured = 1 - *fast / *slow,
                      .recipe = after.recipe,
                      .cpu = "",
                      .source = before.folder + " -> " + after.folder,
                      .unix_time = unix_seconds()};
  }
  return std::nullopt;
}

struct Row {
  std::vector<double> expected, measured, errors;
  int near = 0;
};

// A flag's words are a config file's values: none is ["none"], and 1 is 1.0.
Json canonical(const std::string& text) {
  Json value = parse_shallow(text);
  if (value.is_discarded()) value = text;
  if (value.is_array() && value.size() == 1) value = Json(value.front());
  return value;
}

// Off by so much of what was measured; of a gain near nothing, of a twentieth of the time.
double error_of(const LedgerLine& line) {
  constexpr double kLeast = 0.05;
  return (line.expected - line.measured) / std::max(std::abs(line.measured), kLeast);
}

}  // namespace

bool is_same_value(const std::string& a, const std::string& b) { return canonical(a) == canonical(b); }

std::filesystem::path ledger_file() { return cache_folder() / "doctor" / "ledger.jsonl"; }

void write_down(const LedgerLine& line) noexcept {
  try {
    const std::filesystem::path file = ledger_file();
    std::filesystem::create_directories(file.parent_path());
    const std::string text = to_json(line).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (descriptor < 0) return;
    [[maybe_unused]] const ssize_t written = ::write(descriptor, text.data(), text.size());
    ::close(descriptor);
  } catch (const std::exception&) {  // see the header
  }
}

std::vector<LedgerLine> read_ledger(const std::filesystem::path& file) {
  std::vector<LedgerLine> lines;
  if (!Fs::real().exists(file)) return lines;
  const std::string text = Fs::real().read_file(file);
  std::map<std::string, std::size_t> known;
  for (std::size_t at = 0; at < text.size() && lines.size() < kMostLines;) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    if (const auto line = line_of(parse_shallow(std::string_view(text).substr(at, end - at)))) {
      const auto [place, is_new] = known.try_emplace(
          line->finding + '\n' + line->setting + '\n' + line->source + (line->source == "tune" ? std::to_string(at) : ""),
          lines.size());
      if (is_new) {
        lines.push_back(*line);
      } else {
        lines[place->second] = *line;
      }
    }
    at = end + 1;
  }
  return lines;
}

std::optional<LedgerLine> followed_remedy(const std::filesystem::path& run) noexcept {
  try {
    const RunFacts after = read_facts(run);
    std::vector<std::pair<std::filesystem::file_time_type, std::filesystem::path>> siblings;
    const std::filesystem::path parent = std::filesystem::absolute(run).lexically_normal().parent_path();
    for (const auto& entry : std::filesystem::directory_iterator(parent)) {
      const std::filesystem::path summary = entry.path() / "summary.json";
      std::error_code error;
      if (std::filesystem::equivalent(entry.path(), run, error) || !std::filesystem::is_regular_file(summary, error)) continue;
      siblings.emplace_back(std::filesystem::last_write_time(summary), entry.path());
    }
    std::ranges::sort(siblings, std::ranges::greater());
    siblings.resize(std::min(siblings.size(), kMostSiblings));
    for (const auto& [time, folder] : siblings) {
      if (const auto line = remedy_between(read_facts(folder), after)) return line;
    }
  } catch (const std::exception&) {  // folders of others that can't be read
  }
  return std::nullopt;
}

int doctor_self(bool json) {
  std::map<std::string, Row> rows;
  const std::vector<LedgerLine> lines = read_ledger();
  for (const LedgerLine& line : lines) {
    Row& row = rows[line.finding.empty() ? "(no finding)" : line.finding];
    row.expected.push_back(line.expected);
    row.measured.push_back(line.measured);
    row.errors.push_back(error_of(line));
    row.near += std::abs(row.errors.back()) <= kGoal ? 1 : 0;
  }
  if (json) {
    Json all = Json::array();
    for (const LedgerLine& line : lines) all.push_back(to_json(line));
    print_json({{"file", ledger_file().string()}, {"lines", std::move(all)}});
    return 0;
  }
  if (rows.empty()) {
    print(
        "no remedy of the doctor was tried here yet: millrace tune tries them, and so does a run with what the doctor said of "
        "an\n"
        "earlier run beside it\n");
    return 0;
  }
  std::vector<std::vector<std::string>> table_rows = {{"finding", "tried", "expected", "measured", "off by", "within 25 %"}};
  for (const auto& [name, row] : rows) {
    table_rows.push_back({name, std::to_string(row.errors.size()), percent(median(row.expected)), percent(median(row.measured)),
                          percent(median(row.errors)), std::to_string(row.near)});
  }
  print("what remedies gained here, in less time, beside what was expected (medians)\n" + table(table_rows));
  return 0;
}

}  // namespace millrace::cli
