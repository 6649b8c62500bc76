#include "millrace/kernels/operation_trial.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>

#include "millrace/base/clock.h"
#include "millrace/system/work_clock.h"

namespace millrace::kernels {
namespace {

constexpr std::size_t kLeastRounds = 3;
constexpr std::size_t kMostRounds = 15;
constexpr double kEnoughMs = 40;  // time for all rounds of a call, with both implementations

enum class Choice : std::uint8_t { none, ours, library };
std::atomic<std::uint64_t> changes = 0;
using Choices = std::array<std::array<std::atomic<Choice>, 2>, kOperations>;

Choices& choices() noexcept {
  static Choices all{};
  return all;
}

std::atomic<Choice>& choice_of(Operation operation, c10::ScalarType type) noexcept {
  return choices()[static_cast<std::size_t>(operation)][type == c10::kBFloat16 ? 1 : 0];
}

struct Counted {
  Operation operation;
  c10::ScalarType type;
  double work = 0;
  std::int64_t calls = 0;
};

struct Running {
  bool only_counts = false;
  double ends_at = 0;  // after this time of steady_seconds() no call is timed
  KnownTimes known, measured;
  std::map<std::string, Counted> calls;
};

thread_local std::unique_ptr<Running> trial_of_thread;
thread_local bool is_timing = false;
struct NoTrial {
  NoTrial() noexcept { is_timing = true; }
  ~NoTrial() { is_timing = false; }
  NoTrial(const NoTrial&) = delete;
  NoTrial& operator=(const NoTrial&) = delete;
};

std::string key_of(const Call& call) {
  std::string key(name_of(call.operation));
  key += call.type == c10::kBFloat16 ? " bf16 " : " f32 ";
  for (std::size_t i = 0; i < call.shape.size(); ++i) key += (i == 0 ? "" : "x") + std::to_string(call.shape[i]);
  return key;
}

CallTime timed(const std::function<void()>& ours, const std::function<void()>& library) {
  ours();
  library();
  WorkClock clock;  // constructed after the first calls, because it covers only threads that exist by then
  std::vector<WorkClock::Time> of_ours, of_library;
  double spent = 0;
  const auto run = [&](const std::function<void()>& implementation, std::vector<WorkClock::Time>& times) {
    clock.start();
    implementation();
    times.push_back(clock.stop());
    spent += times.back().wall;
  };
  while (of_ours.size() < kLeastRounds || (of_ours.size() < kMostRounds && spent < kEnoughMs)) {
    run(ours, of_ours);
    run(library, of_library);
  }
  const Comparison found = compare(of_ours, of_library);
  return {found.first_ms, found.second_ms, found.disturbed};
}

}  // namespace

std::string_view name_of(Operation operation) noexcept { return kOperationNames[static_cast<std::size_t>(operation)]; }

Implementation implementation_of(Operation operation, c10::ScalarType type) noexcept {
  switch (choice_of(operation, type).load(std::memory_order_relaxed)) {
    case Choice::ours:
      return Implementation::ours;
    case Choice::library:
      return Implementation::library;
    case Choice::none:
      break;
  }
  return operation <= Operation::weight_gradient && type == c10::kFloat ? Implementation::library : Implementation::ours;
}

void choose_implementation(Operation operation, c10::ScalarType type, Implementation implementation) noexcept {
  const Choice choice = implementation == Implementation::ours ? Choice::ours : Choice::library;
  if (choice_of(operation, type).exchange(choice, std::memory_order_relaxed) != choice) ++changes;
}

void forget_implementations() noexcept {
  ++changes;
  for (auto& of_types : choices()) {
    for (auto& choice : of_types) choice.store(Choice::none, std::memory_order_relaxed);
  }
}

std::uint64_t implementation_changes() noexcept { return changes; }

OperationTrial::OperationTrial(KnownTimes known, double most_s) {
  trial_of_thread = std::make_unique<Running>();
  trial_of_thread->ends_at = steady_seconds() + most_s;
  trial_of_thread->known = std::move(known);
}

OperationTrial::OperationTrial(Counts) : OperationTrial() { trial_of_thread->only_counts = true; }

OperationTrial::~OperationTrial() { trial_of_thread.reset(); }

bool operation_trial_runs() noexcept { return trial_of_thread != nullptr && !is_timing; }

std::vector<OperationTrial::Times> OperationTrial::times() const {
  std::map<std::pair<Operation, c10::ScalarType>, OperationTrial::Times> sums;
  for (const auto& [key, call] : trial_of_thread->calls) {
    CallTime time;
    bool has_time = trial_of_thread->only_counts;
    for (const KnownTimes* from : {&trial_of_thread->known, &trial_of_thread->measured}) {
      const auto found = from->find(key);
      if (found == from->end()) continue;
      time = found->second;
      has_time = true;
    }
    OperationTrial::Times& sum =
        sums.try_emplace({call.operation, call.type}, OperationTrial::Times{call.operation, call.type}).first->second;
    const auto calls = static_cast<double>(call.calls);
    sum.ours_ms += calls * time.ours_ms;
    sum.library_ms += calls * time.library_ms;
    sum.calls += call.calls;
    sum.work += calls * call.work;
    sum.disturbed = sum.disturbed || time.disturbed;
    sum.given_up = sum.given_up || !has_time;
  }
  std::vector<OperationTrial::Times> times;
  for (const auto& [operation, sum] : sums) times.push_back(sum);
  return times;
}

KnownTimes OperationTrial::measured() const { return trial_of_thread->measured; }

bool takes_ours(const Call& call, const std::function<void()>& ours, const std::function<void()>& library) {
  if (operation_trial_runs()) {
    Running& trial = *trial_of_thread;
    const std::string key = key_of(call);
    const bool is_known = trial.known.contains(key) || trial.measured.contains(key);
    if (!trial.only_counts && !is_known && steady_seconds() < trial.ends_at) {
      const NoTrial inside;  // the timed functions may call other operations, which must not start trials
      trial.measured[key] = timed(ours, library);
    }
    Counted& counted = trial.calls.try_emplace(key, Counted{call.operation, call.type, call.work}).first->second;
    ++counted.calls;
  }
  return implementation_of(call.operation, call.type) == Implementation::ours;
}

}  // namespace millrace::kernels
