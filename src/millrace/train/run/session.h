// The training of one run in this process: an assembly with a run folder and a loop around it. Both run_training() and train()
// use it.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "millrace/train/assembly/assembly.h"
#include "millrace/train/loop/trainer.h"
#include "millrace/train/run/run.h"
#include "millrace/train/run_folder/run_folder.h"
#include "millrace/train/watch/watchdog.h"

namespace millrace {

// Sets up, in this order: folder and lock, snapshot to resume from, device and threads, recipe, loaders, number format. Then runs
// the loop.
class Session {
 public:
  explicit Session(RunRequest request);               // uses the folder that the config names
  Session(RunRequest request, RunDestination place);  // if place.folder is empty, the run writes nothing
  ~Session();
  RunOutcome run();

 private:
  struct Resumed {
    snapshot::Content content;
    std::filesystem::path from;
  };
  void open_folder();  // defined in session_folder.cpp
  void check_changes();
  void log_new_length();
  void find_snapshot();
  void share_snapshot();
  void begin_folder();
  void log_crashes(const char* file);  // from here on, writes crashes to this file of the run folder
  [[nodiscard]] RecipeFolders places() const;
  // True if no step is left. `total_steps`: the length of the run; 0 = not known yet.
  [[nodiscard]] bool already_complete(std::int64_t total_steps) const;
  [[nodiscard]] bool root_is_complete(std::int64_t total_steps) const;
  [[nodiscard]] std::optional<Weights> first_weights() const;
  [[nodiscard]] Json kept_choices() const;
  [[nodiscard]] std::pair<std::unique_ptr<Recipe>, Loaders> open_data();
  void try_out();
  void make_trainer();
  std::string check_first(const snapshot::Content& content);  // returns a warning; "" = no fault was found
  [[nodiscard]] std::string likeness() const;
  [[nodiscard]] Reporter::Sinks sinks() const;
  [[nodiscard]] std::unique_ptr<Watchdog> watch();
  void introduce();  // defined in session_report.cpp; called before the first trial
  void show_notices();
  void log_choices();  // logs the choices of trials, and writes the plan into the run folder
  [[nodiscard]] std::string plan_text();
  [[nodiscard]] std::vector<std::string> samples();
  void show_samples(const std::string& title, const std::vector<std::string>& texts);
  RunOutcome plan_only();
  RunOutcome rehearse_only();
  [[nodiscard]] RunOutcome nothing_left() const;  // the outcome of a run that was already complete
  RunOutcome finish(Ending ending);
  // fail() is called when an error is about to be thrown to the caller. An error inside fail() does not replace that error.
  enum class Device : std::uint8_t { answers, is_lost };
  void fail(const char* error, Device device) noexcept;
  [[noreturn]] void lose_device(const std::exception& error);
  void keep_failure(const std::string& error);
  void keep_summary(const Json& summary);
  void log_end(const std::string& reason, const std::string& error);
  [[nodiscard]] Json facts_of_end(const std::string& reason, const std::string& error);  // facts that are known without a call to
                                                                                         // the device
  [[nodiscard]] Json summary_of(const std::string& reason, const std::string& error);
  // How each rank spent its time, by rank. Collective, so it is called only if the run ends normally. Null if the run has one
  // rank or has lost a rank. Also fills stopped_by_ and sender_.
  [[nodiscard]] Json times_of_ranks();
  [[nodiscard]] std::string closing_text(Ending ending, const Json& summary) const;
  [[nodiscard]] telemetry::Console& console() const { return setup_.console(); }

  RunSetup setup_;
  const RunRequest& request_;  // the request that setup_ holds
  RunDestination place_;
  std::unique_ptr<Assembly> assembly_;  // null if no steps are left to do
  std::unique_ptr<RunFolder> folder_;   // null if the run writes nothing
  std::unique_ptr<telemetry::RunLog> log_;
  std::unique_ptr<telemetry::EventWriter> events_;
  std::optional<Resumed> resumed_;
  std::optional<std::int64_t> branches_after_;  // set if train.resume names an older snapshot: snapshots of later steps are
                                                // moved to a branch
  std::unique_ptr<doctor::Sampler> sampler_;    // null = readings of the machine are off
  std::string likeness_;                        // a key that comparable runs have in common; see earlier_runs.h
  std::unique_ptr<Trainer> trainer_;
  double opening_seconds_ = 0;          // seconds for making the recipe and opening its data
  std::vector<Choice> logged_choices_;  // the plan's choices that are already in the log
  std::size_t notices_shown_ = 0;
  // The signal that stopped the run, and its sender. Another rank may have received the signal: then this process has no
  // pending signal.
  int stopped_by_ = 0;
  std::string sender_;
  int crash_log_ = -1;  // descriptor of log.jsonl, or of the file `lock` before the run begins; -1 = not open
};

// Versions of Millrace, LibTorch and the compiler, and the CPU's capability. "build" identifies the build of the program, if it
// is known.
[[nodiscard]] Json versions();

}  // namespace millrace
