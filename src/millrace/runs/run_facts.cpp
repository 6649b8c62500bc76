#include "millrace/runs/run_facts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>

#include "millrace/base/foreign_json.h"

namespace millrace::runs {
namespace {

// the largest step or time that is accepted, because another program's file may hold any number
constexpr double kMostNumber = 1e15;

std::string words_of(const Json& json) { return json.is_string() ? json.get<std::string>() : ""; }

std::string value_text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<double> number_of(const Json& json) {
  if (!json.is_number()) return std::nullopt;
  const double value = json.get<double>();
  return std::isfinite(value) && std::abs(value) <= kMostNumber ? std::optional(value) : std::nullopt;
}

constexpr std::string_view kFolder = "run.dir";  // left out, because it differs between any two runs

// A logged value: a number, or the text with which the log stores a value that is not finite.
std::optional<double> logged(const Json& json) {
  if (json.is_number()) return json.get<double>();
  const std::string text = words_of(json);
  if (text == "nan" || text == "inf" || text == "-inf") return std::numeric_limits<double>::quiet_NaN();
  return std::nullopt;
}

void add_config(const Json& values, const Json& origins, const std::string& before,
                std::map<std::string, RunFacts::Setting>& config) {
  if (!values.is_object()) return;
  for (const auto& [name, value] : values.items()) {
    std::string key = before;
    if (!key.empty()) key += '.';
    key += name;
    if (value.is_object() && !value.empty())
      add_config(value, origins, key, config);
    else if (key != kFolder)
      config[key] = {value_text(value), text_at(origins, {key.c_str()})};
  }
}

// Adds the choices that the plan had at the start of the last process, and their later changes.
void add_plan(const RunStory& story, RunFacts& facts) {
  const auto add = [&](const Json& plan) {
    if (!plan.is_array()) return;
    for (const Json& row : plan) {
      const std::string option = text_at(row, {"option"});
      if (option.empty()) continue;
      const RunFacts::Setting setting{value_text(json_at(row, {"value"})), text_at(row, {"reason"})};
      (option.starts_with("device.") ? facts.machine : facts.plan)[option] = setting;
    }
  };
  const auto add_versions = [&](const Json& versions) {
    if (!versions.is_object()) return;
    for (const auto& [name, version] : versions.items()) facts.machine["version of " + name] = {value_text(version), ""};
  };
  if (!story.processes.empty() && !story.processes.back().empty()) {
    add(json_at(story.processes.back().front(), {"plan"}));
    add_versions(json_at(story.processes.back().front(), {"versions"}));
  }
  add(json_at(story.summary, {"choices"}));
  add_versions(json_at(story.summary, {"versions"}));
}

constexpr std::array<std::string_view, 5> kNoMetric = {"step", "time", "seconds", "it_per_s", "epoch"};

// The names of the losses in step lines: "loss", and the name of each objective that has its own learning rate.
std::set<std::string> losses_in(const RunStory& story) {
  constexpr std::string_view kRate = ".lr";
  std::set<std::string> losses = {"loss"};
  for (const auto& process : story.processes) {
    for (const Json& line : process) {
      if (text_at(line, {"kind"}) != "step") continue;
      for (const auto& [key, value] : line.items()) {
        if (key.size() > kRate.size() && key.ends_with(kRate)) losses.insert(key.substr(0, key.size() - kRate.size()));
      }
    }
  }
  return losses;
}

class Story {
 public:
  Story(const RunStory& story, RunFacts& to) : to_(to), losses_(losses_in(story)) {
    for (const auto& process : story.processes) add(process);
  }

 private:
  void add(const std::vector<Json>& lines) {
    to_.line_ms.clear();  // drops earlier processes' times, because the accounts too describe only the last process
    warm_ = false;
    double latest = 0;
    double first_step = 0;
    double last_step = 0;
    for (const Json& line : lines) {
      const std::string kind = text_at(line, {"kind"});
      const double step = number_of(json_at(line, {"step"})).value_or(last_step);
      latest = std::max(latest, number_of(json_at(line, {"time"})).value_or(0));
      if (kind == "start") {
        first_step = last_step = step;
        forget_after(step);
      }
      if (kind == "step" || kind == "end") last_step = std::max(last_step, step);
      if (kind == "step") add_step(line, {.step = step, .seconds = before_ + latest});
      if (kind == "validation") add_validation(line, {.step = step, .seconds = before_ + latest});
    }
    before_ += latest;
    to_.steps = last_step - first_step;
  }

  // Removes the values after `step`, because a process that resumes from that step repeats the steps after it.
  void forget_after(double step) {
    for (auto& [name, moments] : to_.quality)
      std::erase_if(moments, [&](const RunFacts::Moment& moment) { return moment.step > step; });
  }

  void add_step(const Json& line, const RunFacts::Moment& at) {
    for (const std::string& name : losses_) put(name, line, at);
    if (const auto samples = number_of(json_at(line, {"samples"})); samples && at.step > 0)
      to_.samples_per_step = *samples / at.step;
    if (const auto ms = number_of(json_at(line, {"step_ms_p50"}))) {
      to_.step_ms = ms;
      if (warm_) to_.line_ms.push_back(*ms);
      warm_ = true;
    }
    if (const auto others = number_of(json_at(line, {"others"}))) to_.others = others;
  }

  void add_validation(const Json& line, const RunFacts::Moment& at) {
    for (const auto& [name, value] : line.items()) {
      if (std::ranges::find(kNoMetric, name) == kNoMetric.end()) put(name, line, at);
    }
  }

  void put(const std::string& name, const Json& line, RunFacts::Moment at) {
    const auto value = logged(json_at(line, {name}));
    if (!value) return;
    at.value = *value;
    const Json& version = json_at(line, {"metric_versions", name});
    if (version.is_number_integer()) at.version = version.get<std::int64_t>();
    auto& moments = to_.quality[name];
    if (moments.empty() || moments.back().step <= at.step) moments.push_back(at);
  }

  RunFacts& to_;
  std::set<std::string> losses_;
  double before_ = 0;  // seconds that earlier processes ran
  bool warm_ = false;  // true: the process whose lines are being read has logged a step
};

}  // namespace

RunFacts facts_of(const RunStory& story, const Json& config, const std::string& data) {
  RunFacts facts;
  facts.folder = story.folder.string();
  facts.recipe = story.recipe;
  facts.preset = story.preset;
  facts.is_script = story.is_script;
  facts.state = story.state.text;
  add_config(json_at(config, {"values"}), json_at(config, {"origins"}), "", facts.config);
  add_plan(story, facts);
  facts.data = data;
  facts.accounts.insert(story.accounts.begin(), story.accounts.end());
  const Story text(story, facts);
  if (const auto ms = number_of(json_at(story.summary, {"step_ms", "p50"}))) facts.step_ms = ms;
  if (const auto others = number_of(json_at(story.summary, {"others"}))) facts.others = others;
  if (const Json& memory = json_at(story.summary, {"memory", "account"}); memory.is_object()) {
    for (const auto& [name, bytes] : memory.items()) {
      if (const auto value = number_of(bytes)) facts.memory[name] = *value;
    }
  }
  facts.findings = story.findings;
  return facts;
}

RunFacts read_facts(const std::filesystem::path& folder) {
  const RunStory story = read_story(folder);
  const Run run(folder);
  return facts_of(story, run.config(), run.data());
}

}  // namespace millrace::runs
