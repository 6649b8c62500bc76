// The names of the files in a run's folder.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace millrace::run_files {

inline constexpr const char* kLock = "lock";  // held by a process while it trains; lists the processes that held it
// Marks the folder as a run; names the recipe and the files that belong to the run.
inline constexpr const char* kRun = "run.json";
inline constexpr const char* kConfig = "config.json";             // the resolved config
inline constexpr const char* kPlan = "plan.json";                 // all choices with their reasons
inline constexpr const char* kLog = "log.jsonl";                  // everything that happened
inline constexpr const char* kSummary = "summary.json";           // how the run ended
inline constexpr const char* kReport = "report.html";             // the whole run on one page
inline constexpr const char* kHistory = "history.csv";            // a row per epoch
inline constexpr const char* kHistoryBefore = "history.csv.old";  // the earlier history.csv, if its columns differ from the
                                                                  // present ones
inline constexpr const char* kSnapshots = "snapshots";
inline constexpr const char* kPictures = "pictures";
inline constexpr const char* kProfile = "profile";    // traces
inline constexpr const char* kBranches = "branches";  // snapshots that a run left behind when it was resumed from an older
                                                      // snapshot
inline constexpr const char* kOldRun = ".old-run";  // the old run that --fresh replaces, until the new run has saved a snapshot;
                                                    // if the name is taken, ".old-run-2" …

// picture_of_step() turns NAME of a validation's picture into NAME.step-00001200.png. step_of_picture() returns the step in such
// a file name, and -1 for other names.
[[nodiscard]] std::string picture_of_step(const std::string& name, std::int64_t step);
[[nodiscard]] std::int64_t step_of_picture(const std::string& file);

// The file of the trace that ends with `step`: profile/step-00001200.pt.trace.json. TensorBoard's profiler needs this suffix.
[[nodiscard]] std::string trace_of_step(std::int64_t step);

// Folders whose files a run's record lists one by one.
inline constexpr std::array<const char*, 2> kFileFolders = {kPictures, kProfile};

// All files and folders that a run may have at the top of its folder.
inline constexpr std::array<const char*, 13> kAll = {kLock,    kRun,           kConfig,    kPlan,     kLog,     kSummary, kReport,
                                                     kHistory, kHistoryBefore, kSnapshots, kPictures, kProfile, kBranches};

}  // namespace millrace::run_files
