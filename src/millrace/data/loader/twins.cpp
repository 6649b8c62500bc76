#include "millrace/data/loader/twins.h"

#include <algorithm>
#include <map>
#include <utility>

#include "millrace/base/format.h"

namespace millrace::data {
namespace {

constexpr double kChance = 0.01;           // the accepted probability that two files have equal digests by chance
constexpr double kDigests = 4294967296.0;  // number of different CRC32 digests

using Content = std::pair<std::uint64_t, std::string>;  // size and digest of a file

struct NamedFile {
  std::string name;
  FileStamp stamp;
};

// Returns the files that could be read and are not empty. Several data sets may share a file, which is listed once.
std::vector<NamedFile> files_of(const std::vector<Dataset>& datasets) {
  std::vector<NamedFile> files;
  std::map<std::pair<std::string, std::int64_t>, Content> known;
  for (const Dataset& dataset : datasets) {
    for (FileStamp& stamp : dataset.source->stamps()) {
      if (stamp.digest.empty() || stamp.size == 0) continue;
      Content content{stamp.size, stamp.digest};
      const auto [at, is_new] = known.try_emplace({stamp.name, stamp.modified_ns}, content);
      if (!is_new && at->second == content) continue;
      const bool prefixed = !dataset.name.empty() && !stamp.name.starts_with(dataset.name + "/");
      std::string name = (prefixed ? dataset.name + ": " : "") + stamp.name;
      files.push_back({std::move(name), std::move(stamp)});
    }
  }
  return files;
}

bool are_the_same(const std::vector<NamedFile>& a, const std::vector<NamedFile>& b) {
  const auto same = [](const NamedFile& x, const NamedFile& y) {
    return x.stamp == y.stamp && x.stamp.modified_ns == y.stamp.modified_ns;
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
}

bool may_be_chance(const std::vector<NamedFile>& training, const std::vector<NamedFile>& validation) {
  std::map<std::uint64_t, double> of_size;
  for (const auto* files : {&training, &validation}) {
    for (const NamedFile& file : *files) of_size[file.stamp.size] += 1;
  }
  double pairs = 0;
  for (const auto& [size, count] : of_size) pairs += count * (count - 1) / 2;
  return pairs / kDigests > kChance;
}

// Returns a notice such as "2 files hold the same content as another file: "b.txt" and "a.txt", …".
std::string notice_of(const std::vector<std::string>& pairs, const std::string& of, const std::string& what) {
  return with_commas(static_cast<std::int64_t>(pairs.size())) +
         (pairs.size() == 1 ? " file" + of + " holds " : " files" + of + " hold ") + what + ": " + pairs.front() +
         (pairs.size() > 1 ? ", …" : "");
}

// Returns a line for each data set without files that the training data and the validation data share. Data sets with files are
// compared file by file, below.
std::vector<std::string> same_sources(const std::vector<Dataset>& training, const std::vector<Dataset>& validation) {
  std::vector<std::string> lines;
  for (const Dataset& here : validation) {
    for (const Dataset& there : training) {
      const Source &a = *here.source, &b = *there.source;
      if (a.size() != b.size() || a.size() == 0 || !a.stamps().empty() || a.fingerprint() != b.fingerprint()) continue;
      lines.push_back("the validation" + (here.name.empty() ? "" : " \"" + here.name + "\"") + " has the " +
                      std::to_string(a.size()) + " samples of the training" +
                      (there.name.empty() ? "" : " \"" + there.name + "\"") +
                      " (their fingerprints are equal), so the model has seen all samples with which it is validated. Does "
                      "data() look at the split? If the samples differ, fingerprint() must differ too");
      break;
    }
  }
  return lines;
}

// Returns a line for each field whose numbers mean other things in the validation data than in the training data. This happens
// if both have folders of their own, and one of the folders lacks a class.
std::vector<std::string> other_meanings(const std::vector<Dataset>& training, const std::vector<Dataset>& validation) {
  std::vector<std::string> lines;
  for (const Dataset& here : validation) {
    for (const Dataset& there : training) {
      if (here.name != there.name && (training.size() > 1 || validation.size() > 1)) continue;
      for (const Field& field : here.source->fields()) {
        const std::vector<std::string> judged = here.source->value_names(field.name);
        const std::vector<std::string> learned = there.source->value_names(field.name);
        std::size_t same = 0;
        while (same < std::min(judged.size(), learned.size()) && judged[same] == learned[same]) ++same;
        if (same == std::min(judged.size(), learned.size())) continue;
        lines.push_back(
            "field " + quoted(field.name) + " has other classes in the validation: " + std::to_string(same) + " means " +
            quoted(judged[same]) + " there and " + quoted(learned[same]) +
            " in the training, so the validation's scores are wrong. Next: give both folders the same subfolders, or split one "
            "folder");
      }
    }
  }
  return lines;
}

}  // namespace

std::vector<std::string> notices_of_twins(const std::vector<Dataset>& training, const std::vector<Dataset>& validation) {
  const std::vector<NamedFile> learned = files_of(training), judged = files_of(validation);
  std::vector<std::string> notices = same_sources(training, validation);
  for (std::string& line : other_meanings(training, validation)) notices.push_back(std::move(line));
  if (may_be_chance(learned, judged)) return notices;
  std::map<Content, const std::string*> first;
  std::vector<std::string> twice, leaked;  // pairs such as "a.txt and b.txt"
  for (const NamedFile& file : learned) {
    const auto [at, is_new] = first.try_emplace({file.stamp.size, file.stamp.digest}, &file.name);
    if (!is_new) twice.push_back(quoted(file.name) + " and " + quoted(*at->second));
  }
  if (!are_the_same(learned, judged)) {
    for (const NamedFile& file : judged) {
      const auto at = first.find({file.stamp.size, file.stamp.digest});
      if (at != first.end()) leaked.push_back(quoted(file.name) + " and " + quoted(*at->second));
    }
  }
  if (!twice.empty())
    notices.push_back(notice_of(twice, "", "the same content as another file, by size and digest") +
                      ". Next: remove one of the two files, unless their content is meant to count twice");
  if (!leaked.empty())
    notices.push_back(notice_of(leaked, " of the validation", "the same content as a training file, by size and digest") +
                      ". Next: remove it from the training or from the validation, which needs data that was not trained on");
  return notices;
}

}  // namespace millrace::data
