#include "millrace/cli/inspect_report.h"

#include <algorithm>
#include <fstream>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/cli/run_table.h"
#include "millrace/cli/text.h"
#include "millrace/data/hdf5.h"
#include "millrace/data/token_array.h"
#include "millrace/format/safetensors.h"
#include "millrace/snapshot/snapshot.h"

namespace millrace::cli {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kTensorHeadings = {"tensor", "dtype", "shape", "bytes"};

std::uint64_t bytes_below(const fs::path& folder) {
  std::uint64_t bytes = 0;
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(folder, error)) {
    bytes += entry.is_regular_file() ? entry.file_size() : 0;
  }
  return bytes;
}

std::string one_line(const Error& error) {
  std::string text = error.message().what;
  return error.message().where.empty() ? text : text + " (" + error.message().where + ")";
}

// Names, shapes and sizes of a safetensors file; adds them to what is there.
void add_tensors(Report& report, const fs::path& path, const std::string& prefix) {
  const format::SafetensorsFile file(path);
  Json& all = report.details["tensors"];
  for (const format::StoredTensor& tensor : file.tensors()) {
    report.table.push_back({prefix + tensor.name, std::string(name_of(tensor.dtype)), to_text(tensor.shape),
                            with_commas(static_cast<std::int64_t>(tensor.bytes))});
    all.push_back({{"file", path.filename().string()},
                   {"name", tensor.name},
                   {"dtype", name_of(tensor.dtype)},
                   {"shape", tensor.shape},
                   {"bytes", tensor.bytes}});
  }
}

std::int64_t elements_in(const fs::path& path) {
  std::int64_t count = 0;
  const format::SafetensorsFile file(path);
  for (const auto& tensor : file.tensors()) {
    count += element_count(tensor.shape).value_or(0);
  }
  return count;
}

Report inspect_safetensors(const fs::path& path) {
  Report report;
  report.kind = "safetensors file";
  report.table.push_back(kTensorHeadings);
  try {
    add_tensors(report, path, "");
    const format::SafetensorsFile file(path);
    report.facts = {{"tensors", std::to_string(file.tensors().size())},
                    {"elements", with_commas(elements_in(path))},
                    {"size", human_bytes(static_cast<double>(file.bytes()))}};
    for (const auto& [key, value] : file.metadata()) {
      report.facts.emplace_back("metadata " + key, value);
      report.details["metadata"][key] = value;
    }
    report.facts.emplace_back("check", "header, offsets and sizes agree; the file itself holds no checksum");
  } catch (const Error& error) {
    report.table.clear();
    report.problems.push_back(one_line(error));
  }
  return report;
}

bool is_token_file(const fs::path& path) {
  char magic[8] = {};
  std::ifstream stream(path, std::ios::binary);
  return stream.read(magic, sizeof magic) && std::string_view(magic, sizeof magic) == "MRTOKENS";
}

Report inspect_tokens(const fs::path& path) {
  Report report;
  report.kind = "token file";
  report.facts.emplace_back("size", human_bytes(static_cast<double>(fs::file_size(path))));
  try {
    const auto tokens = data::TokenArray::open(path);
    const auto documents = static_cast<std::int64_t>(tokens->documents().size());
    report.facts.insert(report.facts.end(),
                        {{"tokens", with_commas(tokens->size())},
                         {"bytes per token", std::to_string(tokens->token_bytes())},
                         {"vocabulary", with_commas(static_cast<std::int64_t>(tokens->vocab_size()))},
                         {"documents", with_commas(documents)},
                         {"fingerprint", tokens->fingerprint()},
                         {"check", "CRC32C of every part agrees, every token is below the vocabulary's size"}});
    report.details = {{"tokens", tokens->size()}, {"token_bytes", tokens->token_bytes()}, {"vocab_size", tokens->vocab_size()},
                      {"documents", documents},   {"fingerprint", tokens->fingerprint()}, {"notes", tokens->notes()}};
  } catch (const Error& error) {
    report.problems.push_back(one_line(error));
  }
  return report;
}

bool is_hdf5(const fs::path& path) {
  char magic[8] = {};
  std::ifstream stream(path, std::ios::binary);
  const bool has_magic = stream.read(magic, sizeof magic) && std::string_view(magic, sizeof magic) == "\x89HDF\r\n\x1a\n";
  return has_magic || path.extension() == ".h5" || path.extension() == ".hdf5" || path.extension() == ".uvh5";
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text.empty() ? "-" : text;
}

Report inspect_hdf5(const fs::path& path) {
  Report report;
  report.kind = "HDF5 file";
  report.facts.emplace_back("size", human_bytes(static_cast<double>(fs::file_size(path))));
  try {
    const auto file = data::Hdf5File::open(path);
    report.facts.emplace_back("datasets", std::to_string(file->datasets().size()));
    report.table.push_back({"dataset", "dtype", "shape", "chunks", "filters", "read by"});
    for (const data::Hdf5Dataset& dataset : file->datasets()) {
      const std::string chunk = dataset.chunk.empty() ? "-" : to_text(dataset.chunk);
      const std::vector<std::string> filters = file->filters(dataset.name);
      report.table.push_back({dataset.name, std::string(name_of(dataset.dtype)), to_text(dataset.shape), chunk, joined(filters),
                              dataset.through_child ? "the HDF5 library: " + dataset.reason : "millrace"});
      report.details["datasets"].push_back({{"name", dataset.name},
                                            {"dtype", name_of(dataset.dtype)},
                                            {"shape", dataset.shape},
                                            {"chunk", dataset.chunk},
                                            {"filters", filters},
                                            {"library_only", dataset.reason}});
    }
    for (const data::Hdf5Unreadable& dataset : file->unreadable()) {
      report.table.push_back({dataset.name, "-", "-", "-", "-", "nobody: " + dataset.reason});
      report.details["unreadable"].push_back({{"name", dataset.name}, {"reason", dataset.reason}});
    }
    report.facts.emplace_back("check", "structure and the first blocks of each dataset agree with the HDF5 library");
  } catch (const Error& error) {
    report.table.clear();
    report.problems.push_back(one_line(error));
  }
  return report;
}

Report inspect_snapshot(const fs::path& path) {
  Report report;
  report.kind = "snapshot";
  report.facts.emplace_back("size", human_bytes(static_cast<double>(bytes_below(path))));
  report.table.push_back(kTensorHeadings);
  try {
    const snapshot::Content content = snapshot::load(Fs::real(), path);
    report.facts.emplace_back("step", with_commas(content.step));
    report.details["step"] = content.step;
    for (const auto& [name, state] : content.parts) {
      report.details["parts"].push_back(name);
    }
    report.facts.emplace_back("check", "size and CRC32C of every file and tensor agree with manifest.json");
  } catch (const Error& error) {
    report.problems.push_back(one_line(error));
  }
  for (const auto& entry : fs::directory_iterator(path)) {
    if (entry.path().extension() != ".safetensors") {
      continue;
    }
    try {
      add_tensors(report, entry.path(), entry.path().stem().string() + "/");
    } catch (const Error&) {
      continue;  // named by the check above
    }
  }
  std::sort(report.table.begin() + 1, report.table.end());
  return report;
}

Report inspect_run(const fs::path& path) {
  Report report;
  report.kind = "run";
  const RunRow row = read_run(path);
  report.facts = {{"recipe", row.recipe},          {"state", row.state},
                  {"step", with_commas(row.step)}, {"loss", row.loss ? fixed(*row.loss, 4) : "-"},
                  {"last written", row.when},      {"size", human_bytes(static_cast<double>(bytes_below(path)))}};
  report.details = row.to_json();
  report.table.push_back({"snapshot", "step", "size", "check"});
  for (const snapshot::Found& found : snapshot::list(Fs::real(), path)) {
    std::string state = "whole";
    try {
      static_cast<void>(snapshot::load(Fs::real(), found.path));
    } catch (const Error& error) {
      state = "damaged";
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
  std::string text = kind + " " + path.string() + "\n";
  std::vector<std::vector<std::string>> rows;
  for (const auto& [label, value] : facts) {
    rows.push_back({"  " + label, " " + value});
  }
  text += cli::table(rows);
  if (table.size() > 1) {
    text += "\n" + cli::table(table);
  }
  for (const auto& problem : problems) {
    text += "\ndamaged: " + problem + "\n";
  }
  return text;
}

Json Report::to_json(const fs::path& path) const {
  Json json = details;
  json["path"] = path.string();
  json["kind"] = kind;
  json["whole"] = problems.empty();
  json["problems"] = problems;
  return json;
}

Report inspect_path(const fs::path& path) {
  if (!fs::exists(path)) {
    throw UsageError(
        {"there is no file or folder " + path.string(), "millrace inspect", "millrace runs lists the runs below ./runs"});
  }
  if (fs::is_directory(path)) {
    if (fs::exists(path / "manifest.json") || path.filename().string().starts_with("step-")) {
      return inspect_snapshot(path);
    }
    if (is_run_folder(path)) {
      return inspect_run(path);
    }
  } else if (path.extension() == ".safetensors") {
    return inspect_safetensors(path);
  } else if (is_token_file(path)) {
    return inspect_tokens(path);
  } else if (is_hdf5(path)) {
    return inspect_hdf5(path);
  }
  throw UsageError({"can't tell what " + path.string() + " is", "millrace inspect",
                    "give a run folder, a snapshot folder (step-...), a .safetensors file, an HDF5 file or a token file"});
}

}  // namespace millrace::cli
