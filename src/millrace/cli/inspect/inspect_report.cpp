#include "millrace/cli/inspect/inspect_report.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "millrace/base/error.h"
#include "millrace/base/foreign_json.h"
#include "millrace/base/format.h"
#include "millrace/base/fs.h"
#include "millrace/base/input_file.h"
#include "millrace/cli/inspect/detail/inspect_files.h"
#include "millrace/cli/inspect/value_table.h"
#include "millrace/cli/shared/text.h"
#include "millrace/metrics/figure.h"
#include "millrace/runs/run_row.h"
#include "millrace/snapshot/snapshot.h"
#include "millrace/train/run_folder/run_files.h"

namespace millrace::cli {
namespace {

namespace fs = std::filesystem;

// The bytes of all files below a folder. Files that can't be read count as 0, because the checks report them.
std::uint64_t bytes_below(const fs::path& folder) {
  std::uint64_t bytes = 0;
  std::error_code error;
  constexpr auto kOptions = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator entry(folder, kOptions, error); !error && entry != fs::recursive_directory_iterator();
       entry.increment(error)) {
    std::error_code ignored;
    const std::uintmax_t size = entry->is_regular_file(ignored) ? entry->file_size(ignored) : 0;
    bytes += ignored ? 0 : size;
  }
  return bytes;
}

std::string one_line(const Error& error) {
  std::string text = error.message().what;
  return error.message().where.empty() ? text : text + " (" + error.message().where + ")";
}

// Adds a table of values, which replaces the report's table. `prefix` is put before each name.
void add_values(Report& report, const std::vector<LyingArray>& arrays, const std::string& prefix) {
  Json& all = report.details["values"];
  for (const LyingArray& array : arrays) {
    ValueStats stats(array.dtype);
    array.pieces([&](std::span<const std::byte> elements) { stats.add(elements); });
    all.push_back(value_json(prefix + array.name, array.shape, stats.summary()));
  }
  if (!all.is_array()) all = Json::array();
  report.table = value_rows("array", all.get<std::vector<Json>>());
}

Report inspect_snapshot(const fs::path& path, bool values) {
  Report report;
  report.kind = "snapshot";
  report.facts.emplace_back("size", human_bytes(static_cast<double>(bytes_below(path))));
  report.table.push_back({"tensor", "dtype", "shape", "bytes"});
  try {
    const snapshot::Content content = snapshot::load(Fs::real(), path);
    report.facts.emplace_back("step", with_commas(content.step));
    report.details["step"] = content.step;
    for (const auto& [name, state] : content.parts) report.details["parts"].push_back(name);
    report.facts.emplace_back("check", "size and CRC32C of every file and tensor agree with manifest.json");
  } catch (const Error& error) {
    report.problems.push_back(one_line(error));
  }
  for (const std::string& name : Fs::real().list(path)) {
    const fs::path file = path / name;
    if (file.extension() != ".safetensors") continue;
    try {
      const std::string prefix = file.stem().string() + "/";
      values ? add_values(report, safetensors_arrays(file), prefix) : add_tensors(report, file, prefix);
    } catch (const Error&) {
      continue;  // left out, because the check above has reported this file
    }
  }
  std::sort(report.table.begin() + 1, report.table.end());
  return report;
}

Report inspect_file(const fs::path& path, const FileFormat& format, bool values, std::span<const Entry> recipes) {
  const InputFile readable(path);  // throws if the file can't be read, because the report must not call such a file damaged
  Report report;
  report.kind = format.kind;
  try {
    format.describe(path, report);
    add_recipes(report, path, recipes);
    if (values && format.arrays != nullptr) add_values(report, format.arrays(path), "");
  } catch (const UnreadKind& unread) {
    report.table.clear();
    report.unread.push_back(one_line(unread));
    if (format.check != nullptr) format.check(path, report);
  } catch (const Error& error) {
    report.table.clear();
    report.problems.push_back(one_line(error));
  }
  return report;
}

std::vector<snapshot::Found> snapshots_of(const fs::path& run, Report& report) {
  try {
    return snapshot::list(Fs::real(), run);
  } catch (const SnapshotError& error) {
    report.problems.push_back(one_line(error));
    return {};
  }
}

// Adds to the report the files of a run that are damaged. The commands that read a run treat such a file as missing.
void check_records(const fs::path& run, Report& report) {
  for (const char* name : {run_files::kRun, run_files::kConfig, run_files::kPlan, run_files::kSummary}) {
    const fs::path file = run / name;
    if (!Fs::real().exists(file)) continue;
    try {
      if (parse_shallow(Fs::real().read_file(file)).is_discarded())
        report.problems.push_back("the file holds no JSON, so it counts as missing (" + file.string() + ")");
    } catch (const FsError& error) {
      report.problems.emplace_back(error.what());
    }
  }
}

// Adds to the report the number of log lines that can't be read. The last line may be incomplete, because a process may be
// writing it.
void check_log(const fs::path& run, Report& report) {
  std::error_code ignored;
  if (!fs::is_regular_file(run / run_files::kLog, ignored)) return;
  std::ifstream log(run / run_files::kLog, std::ios::binary);
  if (!log) report.problems.push_back("the log can't be opened (" + (run / run_files::kLog).string() + ")");
  std::int64_t lines = 0, bad = 0;
  for (std::string line; std::getline(log, line) && !log.eof(); ++lines) bad += parse_shallow(line).is_discarded() ? 1 : 0;
  if (bad > 0) report.facts.emplace_back("log", with_commas(bad) + " of " + with_commas(lines) + " lines can't be read");
}

Report inspect_run(const fs::path& path) {
  Report report;
  report.kind = "run";
  const runs::RunRow row = row_of(runs::Run(path));
  report.details = row.to_json();
  report.facts = {{"recipe", row.recipe},          {"state", row.state},
                  {"step", with_commas(row.step)}, {"loss", row.loss ? fixed(*row.loss, 4) : "-"},
                  {"last written", row.when},      {"size", human_bytes(static_cast<double>(bytes_below(path)))}};
  for (const runs::RunRow::Metric& metric : row.metrics) {
    std::string text = metric.last ? metrics::figure_of(metric.name, *metric.last) : "is not a number";
    const auto figure = [&](double value) { return metrics::figure_of(metric.name, value); };
    if (metric.at_best) text += "  (" + figure(*metric.at_best) + " at the best step " + with_commas(row.best_step) + ")";
    if (metric.best && metric.best_step != row.best_step)
      text += "  (best " + figure(*metric.best) + " at step " + with_commas(metric.best_step) + ")";
    report.facts.emplace_back(metric.name, std::move(text));
    const auto number = [](const std::optional<double>& value) { return value ? Json(*value) : Json(); };
    report.details["metrics"].push_back({{"name", metric.name},
                                         {"last", number(metric.last)},
                                         {"best", number(metric.best)},
                                         {"at_best", number(metric.at_best)},
                                         {"best_step", metric.best ? Json(metric.best_step) : Json()}});
  }
  for (const fs::path& branch : runs::Run(path).branches()) {
    report.facts.emplace_back("branch", branch.string() + ", step " + with_commas(row_of(runs::Run(branch)).step));
    report.details["branches"].push_back(branch.string());
  }
  check_records(path, report);
  check_log(path, report);
  report.table.push_back({"snapshot", "step", "size", "check"});
  for (const snapshot::Found& found : snapshots_of(path, report)) {
    std::string state = "whole";
    try {
      static_cast<void>(snapshot::load(Fs::real(), found.path));
    } catch (const Error& error) {
      state = ::access((found.path / "manifest.json").c_str(), R_OK) != 0 && errno == EACCES ? "unreadable" : "damaged";
      report.problems.push_back(one_line(error));
    }
    const std::string name = found.path.filename().string();
    report.table.push_back({name, with_commas(found.step), human_bytes(static_cast<double>(bytes_below(found.path))), state});
    report.details["snapshots"].push_back({{"name", name}, {"step", found.step}, {"check", state}});
  }
  return report;
}

}  // namespace

std::string Report::to_text(const fs::path& path) const {
  std::string text = kind + " " + printable(path.string()) + "\n";
  std::vector<std::vector<std::string>> rows;
  for (const auto& [label, value] : facts) rows.push_back({"  " + printable(label), " " + printable(value)});
  text += millrace::table(rows);
  if (table.size() > 1) {
    rows = table;
    for (std::vector<std::string>& row : rows) std::ranges::transform(row, row.begin(), printable);
    text += "\n" + millrace::table(rows);
  }
  for (const auto& kind_of : unread) text += "\nnot a kind that Millrace reads: " + printable(kind_of) + "\n";
  for (const auto& problem : problems) text += "\nproblem: " + printable(problem) + "\n";
  return text;
}

Json Report::to_json(const fs::path& path) const {
  Json json = details;
  json["path"] = path.string();
  json["kind"] = kind;
  json["whole"] = problems.empty();
  json["problems"] = problems;
  json["unread"] = unread;
  return json;
}

Report inspect_path(const fs::path& path, bool values, std::span<const Entry> recipes) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    throw UsageError({"there is no file or folder " + printable(path.string()), "millrace inspect",
                      "name a file or folder that is there; to list the runs below ./runs: millrace runs"});
  }
  if (error) throw FsError("look at", path, error.value());
  if (fs::is_directory(status)) {
    // true for the folder of a branch, which has the name of a snapshot but is a run
    const bool is_run = runs::Run(path).is_there();
    if (fs::exists(path / "manifest.json", error) || (path.filename().string().starts_with("step-") && !is_run))
      return inspect_snapshot(path, values);
    if (is_run && values) {
      throw UsageError({printable(path.string()) + " is the folder of a run, which holds no values itself", "flag --values",
                        "give a snapshot of it, " + (path / "snapshots").string() + "/step-..."});
    }
    if (is_run) return inspect_run(path);
    static_cast<void>(Fs::real().list(path));  // throws if the folder can't be read
  } else {
    if (const FileFormat* format = format_of(path)) return inspect_file(path, *format, values, recipes);
  }
  throw UsageError({"can't tell what " + printable(path.string()) + " is", "millrace inspect",
                    "give a run folder, a snapshot folder (step-...), or a file: .safetensors, .pt, .h5, .npy, .npz, .nii, "
                    ".nii.gz, .png, .jpg, .wav, .csv, tokens, UTF-8 text"});
}

}  // namespace millrace::cli
