#include "millrace/data/loader/detail/data_identity.h"

#include <algorithm>
#include <map>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/hash.h"

namespace millrace::data::detail {
namespace {

[[noreturn]] void damaged(const std::string& what) {
  throw SnapshotError({.what = what, .where = "data of the snapshot", .next = "resume from another snapshot"});
}

std::string count_text(std::uint64_t count) { return with_commas(static_cast<std::int64_t>(count)); }

// Files of a large data set that are neighbours and share one digest.
struct FileGroup {
  std::string first;
  std::string last;
  std::uint64_t files = 0;
  std::string digest;
};

std::vector<FileGroup> groups_of(const std::vector<FileStamp>& files) {
  const std::size_t each = (files.size() + kFileGroups - 1) / kFileGroups;
  std::vector<FileGroup> groups;
  for (std::size_t begin = 0; begin < files.size(); begin += each) {
    const std::size_t end = std::min(begin + each, files.size());
    Sha256 hash;
    for (std::size_t i = begin; i < end; ++i) hash.update(std::to_string(files[i].size) + ' ' + files[i].digest + '\n');
    groups.push_back({files[begin].name, files[end - 1].name, end - begin, hash.hex().substr(0, 16)});
  }
  return groups;
}

// Reads the JSON that to_json() wrote, and checks every value.
class Saved {
 public:
  explicit Saved(const Json& json) : json_(json) {
    if (!json.is_object()) damaged("a data set of the snapshot is not an object");
  }
  [[nodiscard]] std::string text(const char* key) const {
    const auto it = json_.find(key);
    if (it == json_.end() || !it->is_string()) damaged("a data set of the snapshot has no valid \"" + std::string(key) + "\"");
    return it->get<std::string>();
  }
  [[nodiscard]] bool is_grouped() const { return json_.contains("groups"); }
  [[nodiscard]] std::vector<FileStamp> files() const {
    std::vector<FileStamp> files;
    for (const Json& row : rows("files", 3)) {
      if (!row[0].is_string() || !row[1].is_number_unsigned() || !row[2].is_string())
        damaged("an entry for a file in the snapshot is not valid");
      files.push_back({row[0].get<std::string>(), row[1].get<std::uint64_t>(), row[2].get<std::string>()});
    }
    return files;
  }
  [[nodiscard]] std::vector<FileGroup> groups() const {
    std::vector<FileGroup> groups;
    for (const Json& row : rows("groups", 4)) {
      if (!row[0].is_string() || !row[1].is_string() || !row[2].is_number_unsigned() || !row[3].is_string())
        damaged("a group of files in the snapshot is not valid");
      groups.push_back(
          {row[0].get<std::string>(), row[1].get<std::string>(), row[2].get<std::uint64_t>(), row[3].get<std::string>()});
    }
    return groups;
  }

 private:
  [[nodiscard]] const Json& rows(const char* key, std::size_t width) const {
    const auto it = json_.find(key);
    const auto fits = [&](const Json& row) { return row.is_array() && row.size() == width; };
    if (it == json_.end() || !it->is_array() || !std::all_of(it->begin(), it->end(), fits))
      damaged("a data set of the snapshot has no valid list \"" + std::string(key) + "\"");
    return *it;
  }
  const Json& json_;
};

// Returns true if the files may have the same content. Also returns true if that is unknown, because a file could not be read or
// the digests are of different kinds.
bool may_be_same(const FileStamp& was, const FileStamp& is) {
  if (was.digest.empty() || is.digest.empty()) return true;
  if (was.size != is.size) return false;
  const auto kind = [](const FileStamp& stamp) { return stamp.digest.substr(0, stamp.digest.find(':')); };
  return kind(was) != kind(is) || was.digest == is.digest;
}

void compare_files(const std::vector<FileStamp>& was, const std::vector<FileStamp>& is, const std::string& prefix,
                   DataChanges& changes) {
  if (std::equal(was.begin(), was.end(), is.begin(), is.end(), may_be_same)) {
    for (std::size_t i = 0; i < was.size(); ++i) {
      if (was[i].name != is[i].name) changes.renamed.push_back(prefix + "file " + was[i].name + " is now called " + is[i].name);
    }
    return;
  }
  const std::size_t before = changes.differ.size();
  std::map<std::string, const FileStamp*> left;
  for (const FileStamp& file : is) left[file.name] = &file;
  for (const FileStamp& file : was) {
    const auto it = left.find(file.name);
    if (it == left.end()) {
      changes.differ.push_back(prefix + "file " + file.name + " is missing");
      continue;
    }
    if (!may_be_same(file, *it->second)) {
      changes.differ.push_back(prefix + "file " + file.name +
                               (file.size == it->second->size
                                    ? ": its content differs though its size is the same"
                                    : ": " + count_text(it->second->size) + " bytes, was " + count_text(file.size)));
    }
    left.erase(it);
  }
  for (const FileStamp& file : is) {
    if (left.contains(file.name)) changes.differ.push_back(prefix + "file " + file.name + " is new");
  }
  if (changes.differ.size() == before) changes.differ.push_back(prefix + "its files are in another order");
}

void compare_groups(const std::vector<FileGroup>& was, const std::vector<FileStamp>& files, const std::string& prefix,
                    DataChanges& changes) {
  std::uint64_t count = 0;
  for (const FileGroup& group : was) count += group.files;
  if (count != files.size()) {
    changes.differ.push_back(prefix + count_text(files.size()) + " files, were " + count_text(count));
    return;
  }
  const std::vector<FileGroup> is = groups_of(files);
  for (std::size_t i = 0; i < std::min(was.size(), is.size()); ++i) {
    if (was[i].digest == is[i].digest) continue;
    changes.differ.push_back(prefix + "one or more of the " + count_text(is[i].files) + " files from " + is[i].first + " to " +
                             is[i].last + ": size or content differs");
  }
}

}  // namespace

std::vector<DatasetIdentity> identify(const std::vector<Dataset>& datasets) {
  std::vector<DatasetIdentity> all;
  all.reserve(datasets.size());
  for (const Dataset& dataset : datasets) all.push_back({dataset.name, dataset.source->fingerprint(), dataset.source->stamps()});
  return all;
}

Json to_json(const std::vector<DatasetIdentity>& datasets) {
  Json all = Json::array();
  for (const DatasetIdentity& dataset : datasets) {
    Json one = {{"name", dataset.name}, {"fingerprint", dataset.fingerprint}};
    if (dataset.files.size() <= kFilesNamed) {
      one["files"] = Json::array();
      for (const FileStamp& file : dataset.files) one["files"].push_back(Json::array({file.name, file.size, file.digest}));
    } else {
      one["groups"] = Json::array();
      for (const FileGroup& group : groups_of(dataset.files))
        one["groups"].push_back(Json::array({group.first, group.last, group.files, group.digest}));
    }
    all.push_back(std::move(one));
  }
  return all;
}

DataChanges changes_since(const Json& saved, const std::vector<DatasetIdentity>& now) {
  if (!saved.is_array()) damaged("the data of the snapshot is not a list of data sets");
  DataChanges changes;
  if (saved.size() != now.size()) {
    changes.differ.push_back(std::to_string(now.size()) + " data sets, were " + std::to_string(saved.size()));
    return changes;
  }
  for (std::size_t i = 0; i < now.size(); ++i) {
    const Saved was(saved[i]);
    const DatasetIdentity& is = now[i];
    const std::string prefix = is.name.empty() ? "" : "data set " + quoted(is.name) + ": ";
    if (was.text("name") != is.name) {
      changes.differ.push_back("data set " + quoted(is.name) + " takes the place of " + quoted(was.text("name")));
      continue;
    }
    const std::size_t before = changes.differ.size();
    if (!was.is_grouped()) {
      compare_files(was.files(), is.files, prefix, changes);
    } else if (is.files.size() > kFilesNamed) {
      compare_groups(was.groups(), is.files, prefix, changes);
    } else {
      changes.differ.push_back(prefix + count_text(is.files.size()) + " files, were more than " + count_text(kFilesNamed));
    }
    // The fingerprint is compared only if no file differs, because it may depend on the files.
    if (changes.differ.size() == before && was.text("fingerprint") != is.fingerprint)
      changes.differ.push_back(prefix + "its fingerprint is " + quoted(is.fingerprint) + ", was " +
                               quoted(was.text("fingerprint")));
  }
  return changes;
}

std::string joined(const std::vector<std::string>& lines) {
  constexpr std::size_t kNamed = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(kNamed, lines.size()); ++i) text += (i == 0 ? "" : "; ") + lines[i];
  if (lines.size() > kNamed) text += "; and " + count_text(lines.size() - kNamed) + " more";
  return text;
}

}  // namespace millrace::data::detail
