#include "millrace/snapshot/keeper.h"

#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/snapshot/detail/folders.h"
#include "millrace/snapshot/detail/manifest.h"
#include "millrace/snapshot/snapshot.h"

namespace millrace::snapshot {
namespace {

// Runs one removal. A failure is reported, and the other removals still run.
template <class Work>
void warned(const Keeper::Tell& warn, const Work& work) {
  try {
    work();
  } catch (const FsError& error) {
    if (warn) warn(std::string("can't remove an old snapshot: ") + error.what());
  }
}

}  // namespace

Keeper::Keeper(Fs& fs, const std::filesystem::path& run, const std::filesystem::path& began_from)
    : fs_(fs), snapshots_(detail::snapshots_of(run)) {
  if (began_from.empty() || began_from.parent_path() != snapshots_) return;
  began_from_ = began_from.filename().string();
  whole_.insert(began_from_);
  // Finds the snapshots later than `began_from`. The search for `began_from` has already reported the damaged ones.
  warned(nullptr, [&] {
    const std::vector<detail::Candidate> all = detail::candidates(fs_, snapshots_);
    auto later = std::ranges::find(all, began_from_, &detail::Candidate::name);
    if (later != all.end()) ++later;
    for (; later != all.end(); ++later) reported_.insert(later->name);
  });
}

void Keeper::wrote(const std::filesystem::path& snapshot) {
  last_written_ = snapshot.filename().string();
  whole_.insert(last_written_);
  named_.erase(last_written_);
}

void Keeper::name_once(const std::string& name, const std::string& reason, const Tell& warn) {
  if (named_.insert(name).second && warn && !reported_.contains(name)) {
    warn((snapshots_ / name).string() + " " + reason + "; it does not count as a snapshot and stays where it is");
  }
}

bool Keeper::is_whole(const std::string& name, std::int64_t step, const Tell& warn) {
  if (!detail::is_our_snapshot(fs_, snapshots_ / name, step)) {
    whole_.erase(name);
    name_once(name, "is damaged, or holds files that Millrace did not write", warn);
    return false;
  }
  if (whole_.contains(name)) return true;
  if (named_.contains(name)) return false;
  try {
    check(fs_, snapshots_ / name);
  } catch (const std::exception&) {  // also if memory runs out, because a snapshot that can't be read can't be relied on
    name_once(name, "is damaged", warn);
    return false;
  }
  whole_.insert(name);
  return true;
}

std::vector<std::string> Keeper::not_kept(const Retention& retention, const Tell& warn) {
  const auto is_wanted = [&](const detail::Candidate& candidate) {
    return candidate.name == last_written_ || candidate.name == began_from_ ||
           (retention.keep_every > 0 && candidate.step % retention.keep_every == 0) ||
           std::find(retention.keep_steps.begin(), retention.keep_steps.end(), candidate.step) != retention.keep_steps.end();
  };
  std::vector<detail::Candidate> found = detail::candidates(fs_, snapshots_);
  std::erase_if(found, [](const detail::Candidate& candidate) { return candidate.is_replaced; });
  std::vector<std::string> doomed;
  std::int64_t newest = 0;
  for (auto candidate = found.rbegin(); candidate != found.rend(); ++candidate) {
    const bool is_among_newest = newest < std::max<std::int64_t>(retention.keep_last, 1);
    if (!is_among_newest && is_wanted(*candidate)) continue;
    if (!is_whole(candidate->name, candidate->step, warn)) continue;
    is_among_newest ? static_cast<void>(++newest) : doomed.push_back(candidate->name);
  }
  return doomed;
}

void Keeper::retain(const Retention& retention, const Tell& warn) {
  if (!fs_.exists(snapshots_)) return;
  const std::lock_guard lock(detail::moves_mutex());
  warned(warn, [&] {
    clear({::getpid()}, warn);  // removes the files that could not be removed last time
    // Snapshots are first renamed to hidden names, and the folder is synced. So an interrupted removal leaves no half snapshot
    // behind.
    std::vector<std::filesystem::path> hidden;
    for (const std::string& name : not_kept(retention, warn)) {
      const std::filesystem::path place = snapshots_ / detail::beside_name(detail::kRemoved, name);
      if (detail::is_taken(place) && !detail::is_our_leftover(fs_, place)) continue;  // a foreign folder stays
      warned(warn, [&] {
        fs_.remove_all(place);
        fs_.rename(snapshots_ / name, place);
        hidden.push_back(place);
        whole_.erase(name);
      });
    }
    if (!hidden.empty()) fs_.sync_directory(snapshots_);
    for (const std::filesystem::path& place : hidden) {
      warned(warn, [&] { fs_.remove_all(place); });
    }
  });
}

void Keeper::clear_leftovers(const std::set<long>& processes, const Tell& warn) {
  if (!fs_.exists(snapshots_)) return;
  const std::lock_guard lock(detail::moves_mutex());
  warned(warn, [&] { clear(processes, warn); });
}

void Keeper::clear(const std::set<long>& processes, const Tell& warn) {
  const auto is_theirs = [&](const std::optional<detail::FolderName>& name) {
    return name.has_value() && processes.contains(name->process);
  };
  for (const std::string& name : fs_.list(snapshots_)) {
    const std::filesystem::path path = snapshots_ / name;
    const bool is_temporary =
        is_theirs(detail::parse_beside(detail::kTemporary, name)) || is_theirs(detail::parse_beside(detail::kRemoved, name));
    if (is_temporary && !detail::WritingFolder::is_written(path) && detail::is_our_leftover(fs_, path)) {
      warned(warn, [&] { fs_.remove_all(path); });
    }
    const auto replaced = detail::parse_beside(detail::kReplaced, name);
    if (!is_theirs(replaced)) continue;
    const std::filesystem::path successor = snapshots_ / replaced->folder;
    warned(warn, [&] {
      if (!fs_.exists(successor) && detail::is_our_snapshot(fs_, path, replaced->step)) fs_.rename(path, successor);
      if (detail::is_our_snapshot(fs_, successor, replaced->step) && detail::is_our_leftover(fs_, path)) fs_.remove_all(path);
    });
  }
}

}  // namespace millrace::snapshot
