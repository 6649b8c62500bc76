#include <algorithm>

#include "millrace/base/error.h"
#include "millrace/snapshot/detail/folders.h"
#include "millrace/snapshot/snapshot.h"

namespace millrace::snapshot {
namespace {

// Runs one removal; a failure is told and the others go on.
template <class Work>
void warned(const std::function<void(const std::string&)>& warn, const Work& work) {
  try {
    work();
  } catch (const FsError& error) {
    if (warn) warn(std::string("can't remove an old snapshot: ") + error.what());
  }
}

// What killed saves left. A replaced snapshot whose successor never came goes back to its place.
void clear_leftovers(Fs& fs, const std::filesystem::path& snapshots, const std::function<void(const std::string&)>& warn) {
  for (const std::string& name : fs.list(snapshots)) {
    const std::filesystem::path path = snapshots / name;
    if (name.starts_with(detail::kTemporary) && !detail::WritingFolder::is_written(path)) {
      warned(warn, [&] { fs.remove_all(path); });
    }
    const auto step = detail::step_of_replaced(name);
    if (!step) continue;
    const std::filesystem::path successor = snapshots / detail::folder_name(*step);
    warned(warn, [&] { fs.exists(successor) ? fs.remove_all(path) : fs.rename(path, successor); });
  }
}

}  // namespace

std::vector<Found> list(Fs& fs, const std::filesystem::path& run) {
  const std::filesystem::path snapshots = detail::snapshots_of(run);
  std::vector<Found> found;
  try {
    // In order of step and the replaced one first: the last of a step is the one that counts.
    for (const detail::Candidate& candidate : detail::candidates(fs, snapshots)) {
      if (!found.empty() && found.back().step == candidate.step) found.pop_back();
      found.push_back({snapshots / candidate.name, candidate.step});
    }
  } catch (const FsError& error) {
    throw SnapshotError(
        {std::string("can't look for snapshots: ") + error.what(), snapshots.string(), "check the folder's permissions"});
  }
  return found;
}

void retain(Fs& fs, const std::filesystem::path& run, const Retention& retention,
            const std::function<void(const std::string&)>& warn) {
  const std::filesystem::path snapshots = detail::snapshots_of(run);
  if (!fs.exists(snapshots)) return;
  const std::lock_guard lock(detail::moves_mutex());
  warned(warn, [&] {
    clear_leftovers(fs, snapshots, warn);
    std::vector<detail::Candidate> found = detail::candidates(fs, snapshots);
    std::erase_if(found, [](const detail::Candidate& candidate) { return candidate.is_replaced; });
    const auto kept = static_cast<std::size_t>(std::max<std::int64_t>(retention.keep_last, 1));
    // Out of sight first, and that on disk: a removal that is cut short must not leave half a snapshot behind.
    std::vector<std::filesystem::path> doomed;
    for (std::size_t i = 0; i + kept < found.size(); ++i) {
      const std::int64_t step = found[i].step;
      if (retention.keep_every > 0 && step % retention.keep_every == 0) continue;
      if (std::find(retention.keep_steps.begin(), retention.keep_steps.end(), step) != retention.keep_steps.end()) continue;
      const std::filesystem::path hidden = snapshots / detail::beside_name(detail::kRemoved, step);
      warned(warn, [&] {
        fs.remove_all(hidden);
        fs.rename(snapshots / found[i].name, hidden);
        doomed.push_back(hidden);
      });
    }
    if (!doomed.empty()) fs.sync_directory(snapshots);
    for (const std::filesystem::path& path : doomed) {
      warned(warn, [&] { fs.remove_all(path); });
    }
  });
}

}  // namespace millrace::snapshot
