// The training of one run in this process: a run folder and a loop around an assembly. Both run_training() and train() use it.
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

// Sets up in order: folder and lock, snapshot to resume from, device and threads, recipe, loaders, precision; then the loop.
class Session {
 public:
  explicit Session(RunRequest request);               // uses the folder that the config names
  Session(RunRequest request, RunDestination place);  // place.folder empty: nothing is written
  ~Session();
  RunOutcome run();

 private:
  struct Resumed {
    snapshot::Content content;
    std::filesystem::path from;
  };
  void open_folder();  // session_folder.cpp
  void check_changes();
  void log_new_length();
  void find_snapshot();
  void share_snapshot();
  void begin_folder();
  void log_crashes();  // writes crashes to log.jsonl, from here on
  [[nodiscard]] RecipeFolders places() const;
  // `total_steps` of the run; 0 = not known yet.
  [[nodiscard]] bool already_complete(std::int64_t total_steps) const;
  [[nodiscard]] bool root_is_complete(std::int64_t total_steps) const;
  [[nodiscard]] std::optional<Weights> first_weights() const;
  [[nodiscard]] Json kept_choices() const;
  [[nodiscard]] std::pair<std::unique_ptr<Recipe>, Loaders> open_data();
  void try_out();
  void make_trainer();
  [[nodiscard]] std::string likeness() const;
  [[nodiscard]] Reporter::Sinks sinks() const;
  [[nodiscard]] std::unique_ptr<Watchdog> watch();
  void introduce();  // session_report.cpp; before any trial
  void show_notices();
  void log_choices();  // made by trials; and everything of the plan that the folder keeps
  [[nodiscard]] std::string plan_text();
  [[nodiscard]] std::vector<std::string> samples();
  void show_samples(const std::string& title, const std::vector<std::string>& texts);
  RunOutcome plan_only();
  RunOutcome rehearse_only();
  [[nodiscard]] RunOutcome nothing_left() const;  // returned by a run that was complete before
  RunOutcome finish(Ending ending);
  // fail() is called after an error that is on its way to the caller; a failure in fail() does not replace that error.
  enum class Device : std::uint8_t { answers, is_lost };
  void fail(const char* error, Device device) noexcept;
  [[noreturn]] void lose_device(const std::exception& error);
  void keep_failure(const std::string& error);
  void keep_summary(const Json& summary);
  void log_end(const std::string& reason, const std::string& error);
  [[nodiscard]] Json facts_of_end(const std::string& reason, const std::string& error);  // facts that need no call to the device
  [[nodiscard]] Json summary_of(const std::string& reason, const std::string& error);
  // How each rank spent its time, by rank. Collective: for the normal exit only. Null if the run has one rank, or has lost one.
  [[nodiscard]] Json times_of_ranks();
  [[nodiscard]] std::string closing_text(Ending ending, const Json& summary) const;
  [[nodiscard]] telemetry::Console& console() const { return setup_.console(); }

  RunSetup setup_;
  const RunRequest& request_;  // the setup's
  RunDestination place_;
  std::unique_ptr<Assembly> assembly_;  // null unless steps are left to do
  std::unique_ptr<RunFolder> folder_;   // null if nothing is written
  std::unique_ptr<telemetry::RunLog> log_;
  std::unique_ptr<telemetry::EventWriter> events_;
  std::optional<Resumed> resumed_;
  std::optional<std::int64_t> branches_after_;  // train.resume names an older snapshot: later snapshots are moved to a branch
  std::unique_ptr<doctor::Sampler> sampler_;    // null = off
  std::string likeness_;                        // see earlier_runs.h
  std::unique_ptr<Trainer> trainer_;
  double opening_seconds_ = 0;          // of the recipe and its data
  std::vector<Choice> logged_choices_;  // choices of the plan logged so far
  std::size_t notices_shown_ = 0;
  int crash_log_ = -1;  // descriptor of log.jsonl; -1 = not open
};

// Versions of Millrace, LibTorch, the compiler and the CPU capability; "build" identifies the program's build, if it is known.
[[nodiscard]] Json versions();

}  // namespace millrace
