#include "millrace/runs/ledger.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "millrace/base/clock.h"
#include "millrace/base/foreign_json.h"
#include "millrace/base/format.h"
#include "millrace/base/fs.h"
#include "millrace/runs/comparison.h"
#include "millrace/runs/run_facts.h"
#include "millrace/runs/steady_accounts.h"
#include "millrace/system/process.h"

namespace millrace::runs {
namespace {

constexpr std::size_t kMostLines = 10'000;

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

// The seconds of the loop per sample; nullopt if unknown.
std::optional<double> seconds_a_sample(const RunFacts& facts) {
  double sum = 0;
  for (const auto& [account, seconds] : facts.accounts) {
    if (is_steady(account)) sum += seconds;
  }
  const double samples = facts.steps * facts.samples_per_step;
  return sum > 0 && samples > 0 ? std::optional(sum / samples) : std::nullopt;
}

// True for keys that are ignored in a comparison of two configs.
bool means_nothing(const std::string& key) {
  return key.starts_with("run.") || key.starts_with("profile.") || key.starts_with("log.doctor") || key.starts_with("targets.") ||
         key == "train.resume" || key == "train.max_steps" || key == "train.epochs" || key == "train.seed";
}

std::optional<LedgerLine> remedy_between(const RunFacts& before, const RunFacts& after) {
  if (before.recipe != after.recipe || !before.findings.is_array()) return std::nullopt;
  const Comparison comparison = compare(before, after);
  const Comparison::Difference* changed = nullptr;
  for (const Comparison::Difference& each : comparison.config) {
    if (means_nothing(each.key)) continue;
    if (changed != nullptr) return std::nullopt;
    changed = &each;
  }
  const auto slow = seconds_a_sample(before), fast = seconds_a_sample(after);
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

// Parses the text of a value and replaces a list of one element by this element, so that equal values have one form: ["none"]
// becomes "none", and 1 equals 1.0.
Json canonical(const std::string& text) {
  Json value = parse_shallow(text);
  if (value.is_discarded()) value = text;
  if (value.is_array() && value.size() == 1) value = Json(value.front());
  return value;
}

}  // namespace

Json to_json(const LedgerLine& line) {
  return {{"finding", line.finding}, {"setting", line.setting}, {"expected", line.expected}, {"measured", line.measured},
          {"recipe", line.recipe},   {"cpu", line.cpu},         {"source", line.source},     {"unix_time", line.unix_time}};
}

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
  } catch (const std::exception&) {  // errors are ignored: see write_down() in the header
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
    for (const std::filesystem::path& folder : runs_beside(run)) {
      if (const auto line = remedy_between(read_facts(folder), after)) return line;
    }
  } catch (const std::exception&) {  // the folder of another user can't be read
  }
  return std::nullopt;
}

}  // namespace millrace::runs
