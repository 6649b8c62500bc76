// The names of what a run writes into its folder.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace millrace::run_files {

inline constexpr const char* kLock = "lock";             // held while a process trains; the processes that did
inline constexpr const char* kRun = "run.json";          // that this is a run, of which recipe, and which files are its own
inline constexpr const char* kConfig = "config.json";    // the resolved config
inline constexpr const char* kPlan = "plan.json";        // what was chosen, and why
inline constexpr const char* kLog = "log.jsonl";         // all that happened
inline constexpr const char* kSummary = "summary.json";  // how it ended
inline constexpr const char* kReport = "report.html";    // all of it on one page
inline constexpr const char* kHistory = "history.csv";   // a row per epoch
inline constexpr const char* kHistoryBefore = "history.csv.old";  // of other columns
inline constexpr const char* kSnapshots = "snapshots";
inline constexpr const char* kPictures = "pictures";
inline constexpr const char* kProfile = "profile";    // traces
inline constexpr const char* kBranches = "branches";  // snapshots that a run left behind when it went on from an older one
inline constexpr const char* kOldRun =
    ".old-run";  // what --fresh replaces, until the new run has saved; where that is taken, ".old-run-2" …

// The pictures of the validation after a step: pictures/NAME.step-00001200.png. -1 for other names.
[[nodiscard]] std::string picture_of_step(const std::string& name, std::int64_t step);
[[nodiscard]] std::int64_t step_of_picture(const std::string& file);

// The trace of the steps up to this one: profile/step-00001200.pt.trace.json, as TensorBoard's profiler wants names to end.
[[nodiscard]] std::string trace_of_step(std::int64_t step);

// Folders of files that a run's record names one by one.
inline constexpr std::array<const char*, 2> kFileFolders = {kPictures, kProfile};

// Every run has or may have these.
inline constexpr std::array<const char*, 13> kAll = {kLock,    kRun,           kConfig,    kPlan,     kLog,     kSummary, kReport,
                                                     kHistory, kHistoryBefore, kSnapshots, kPictures, kProfile, kBranches};

}  // namespace millrace::run_files
