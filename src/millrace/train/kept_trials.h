// What trials measured on this machine, kept in the cache folder for later runs: a shape is timed once.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "millrace/base/fs.h"
#include "millrace/base/json.h"

namespace millrace {

// Entries belong to one kind of machine: CPU, its code paths, threads, versions of Millrace and LibTorch. What can't be read or
// written is as if it were not there: a trial is made instead. Runs that end at the same time may lose each other's entries.
class KeptTrials {
 public:
  // Reads `folder`/trials.json; an empty path keeps nothing. `writes`: false for runs that only look.
  KeptTrials(Fs& fs, const std::filesystem::path& folder, bool writes);
  [[nodiscard]] std::optional<Json> find(const std::string& trial) const;
  [[nodiscard]] const Json& all() const noexcept { return mine_; }  // {trial: result}
  void keep(const std::string& trial, Json result);
  void save();  // if there is anything new

 private:
  [[nodiscard]] Json read() const;  // {machine: {trial: result}}
  Fs& fs_;
  std::filesystem::path file_;
  bool writes_;
  std::string machine_;
  Json mine_ = Json::object();
  bool is_new_ = false;
};

}  // namespace millrace
