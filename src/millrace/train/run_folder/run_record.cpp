#include "millrace/train/run_folder/run_record.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>

#include "millrace/base/error.h"
#include "millrace/base/foreign_json.h"
#include "millrace/base/utf8.h"
#include "millrace/base/version.h"
#include "millrace/train/run_folder/run_files.h"

namespace millrace {
namespace {

constexpr int kFormat = 1;
constexpr std::array<const char*, 3> kReplacements = {"none", "under way", "complete"};

Json read_json(Fs& fs, const std::filesystem::path& file) {
  std::error_code code;  // a folder that can't be read counts as a folder without a run
  if (!std::filesystem::is_regular_file(file, code)) return nullptr;
  return Json::parse(fs.read_file(file), nullptr, /*allow_exceptions=*/false);
}

// True if the path `name` stays below the run folder.
bool is_below(const std::string& name) {
  const std::filesystem::path path = name;
  if (name.empty() || path.is_absolute()) return false;
  return std::none_of(path.begin(), path.end(), [](const auto& part) { return part.empty() || part == "." || part == ".."; });
}

bool is_old_run(const std::string& name) {
  return name.empty() || (name.starts_with(run_files::kOldRun) && name.find('/') == std::string::npos);
}

// A record for a run that has no run.json. Such a run is recognised by its config.json, the first file that it wrote.
std::optional<RunRecord> read_unrecorded(Fs& fs, const std::filesystem::path& run_folder) {
  const Json config = read_json(fs, run_folder / run_files::kConfig);
  const bool is_ours = config.is_object() && config.size() == 2 && config.value("values", Json()).is_object() &&
                       config.value("origins", Json()).is_object();
  if (!is_ours) return std::nullopt;
  RunRecord record;
  for (const char* name : run_files::kAll) {
    if (fs.exists(run_folder / name)) record.files.insert(name);
  }
  for (const std::string& name : fs.list(run_folder)) {
    if (name.starts_with("events.out.tfevents.")) record.files.insert(name);
  }
  return record;
}

}  // namespace

FirstStart read_first_start(const std::filesystem::path& run_folder) {
  const std::filesystem::path file = run_folder / run_files::kLog;
  std::error_code code;
  if (!std::filesystem::is_regular_file(file, code)) return {};
  constexpr std::streamsize kEnough = 4 << 20;  // bytes to read: a log may be long, and its first line may name all data files
  std::string head(kEnough, '\0');
  std::ifstream stream(file, std::ios::binary);
  stream.read(head.data(), kEnough);
  head.resize(static_cast<std::size_t>(stream.gcount()));
  std::istringstream lines(std::move(head));
  for (std::string text; std::getline(lines, text);) {
    const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!line.is_object() || text_at(line, {"kind"}) != "start" || text_at(line, {"recipe"}).empty()) continue;
    FirstStart start{.recipe = text_at(line, {"recipe"}), .preset = text_at(line, {"preset"}), .command = {}};
    for (const Json& word : line.value("command", Json::array())) {
      if (word.is_string()) start.command.push_back(word.get<std::string>());
    }
    return start;
  }
  return {};
}

std::optional<RunRecord> read_record(Fs& fs, const std::filesystem::path& run_folder) {
  const std::filesystem::path file = run_folder / run_files::kRun;
  std::error_code code;
  if (!std::filesystem::exists(std::filesystem::symlink_status(file, code))) return read_unrecorded(fs, run_folder);
  const Json json = read_json(fs, file);
  try {
    if (!json.is_object() || json.at("format") != kFormat) return std::nullopt;
    RunRecord record;
    record.recipe = json.at("recipe").get<std::string>();
    record.files = json.at("files").get<std::set<std::string>>();
    record.old_run = json.at("old_run").get<std::string>();
    if (json.contains("started_in")) record.started_in = json["started_in"].get<std::string>();
    const auto word = json.at("replacement").get<std::string>();
    // The record may have been written by another program, so it must name only files below the run folder.
    const bool is_ours = std::all_of(record.files.begin(), record.files.end(), is_below) && is_old_run(record.old_run) &&
                         (word == kReplacements[0]) == record.old_run.empty();
    if (!is_ours) return std::nullopt;
    for (std::size_t i = 0; i < kReplacements.size(); ++i) {
      if (word == kReplacements[i]) record.replacement = static_cast<RunRecord::Replacement>(i);
    }
    return record;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

void write_record(Fs& fs, const std::filesystem::path& run_folder, const RunRecord& record) {
  Json json = {{"format", kFormat},         {"recipe", record.recipe},
               {"millrace", kVersion},      {"files", record.files},
               {"old_run", record.old_run}, {"replacement", kReplacements[static_cast<std::size_t>(record.replacement)]}};
  // JSON can't hold a path that is not UTF-8. Without started_in, relative paths of the config are looked up in the current
  // folder only.
  if (!record.started_in.empty() && !first_invalid_utf8(record.started_in)) json["started_in"] = record.started_in;
  write_atomically(fs, run_folder / run_files::kRun, json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::string recipe_of_run(Fs& fs, const std::filesystem::path& run) {
  for (const char* file : {run_files::kRun, run_files::kSummary}) {
    try {
      if (std::string recipe = text_at(read_json(fs, run / file), {"recipe"}); !recipe.empty()) return recipe;
    } catch (const FsError&) {  // continues, because the next file may have the recipe's name
    }
  }
  return read_first_start(run).recipe;
}

}  // namespace millrace
