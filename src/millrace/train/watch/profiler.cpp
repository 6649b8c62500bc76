#include "millrace/train/watch/profiler.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <filesystem>
#include <set>

#include "millrace/base/doing.h"
#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/fs.h"
#include "millrace/device/device.h"
#include "millrace/train/run_folder/run_files.h"
#include "millrace/train/watch/detail/profile_table.h"
#include "millrace/train/watch/trace.h"

namespace millrace {
namespace {

namespace kineto = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;

std::string steps_text(std::int64_t first, std::int64_t last) {
  return first == last ? "step " + with_commas(first) : "steps " + with_commas(first) + " to " + with_commas(last);
}

}  // namespace

StepProfiler::StepProfiler(const ProfileConfig& config, c10::Device device, const SaveDestination& place, Reporter& reporter)
    : config_(config), device_(device), place_(place), reporter_(reporter) {}

StepProfiler::~StepProfiler() {
  if (state_ != State::recording) return;
  try {
    static_cast<void>(stop());
  } catch (const std::exception&) {  // ignored, because the recording is discarded anyway
  }
}

void StepProfiler::begin_step(std::int64_t step) {
  step_ = step;
  try {
    if (state_ == State::waiting && seen_ >= config_.skip) start();
    if (state_ == State::recording) open("ProfilerStep#" + std::to_string(step));
  } catch (const std::exception& error) {
    state_ = State::done;
    reporter_.warning(std::string("the profile could not begin: ") + error.what());
  }
}

void StepProfiler::end_step(bool counts) {
  if (counts) ++seen_;
  if (state_ != State::recording) return;
  close(0);
  if (!counts) return;
  if (recorded_++ == 0) first_ = step_;
  last_ = step_;
  if (recorded_ >= config_.steps) finish();
}

void StepProfiler::end() noexcept {
  if (state_ == State::done) return;
  try {
    const std::string wish = with_commas(config_.steps) + (config_.steps == 1 ? " step" : " steps");
    if (state_ == State::waiting) {
      state_ = State::done;
      reporter_.warning("no step was recorded: the run ended after " + with_commas(seen_) + " of the " +
                        with_commas(config_.skip) +
                        " steps that profile.skip leaves out; --profile.skip=0 records from the first step on");
      return;
    }
    reporter_.warning("the profile covers " + with_commas(recorded_) + " instead of " + wish + ", because the run ended");
    finish();
  } catch (const std::exception& error) {
    state_ = State::done;
    reporter_.warning(std::string("the profile could not be finished: ") + error.what());
  }
}

// Waits until the GPU has done its launched work, because Kineto knows a kernel only when it has ended.
void StepProfiler::wait_for_device() const {
  if (!device_.is_cpu()) device::backend_of(device_).synchronize(device_.has_index() ? device_.index() : 0);
}

void StepProfiler::start() {
  wait_for_device();  // waits, so that work of earlier steps is not counted for the recorded steps
  std::set<ActivityType> activities = {ActivityType::CPU};
  if (!device_.is_cpu()) activities.insert(ActivityType::CUDA);
  const ProfilerConfig config(ProfilerState::KINETO, /*report_input_shapes=*/true);
  kineto::prepareProfiler(config, activities);
  kineto::enableProfiler(config, activities);
  state_ = State::recording;
  telemetry::watch_spans(this);
}

std::string StepProfiler::stop() {
  state_ = State::done;
  telemetry::watch_spans(nullptr);
  close(0);
  wait_for_device();
  const std::unique_ptr<kineto::ProfilerResult> result = kineto::disableProfiler();
  return text_of(*result);
}

void StepProfiler::finish() {
  const Doing task(Doing::Level::task, "writing the profile");
  try {
    const std::string trace = stop();
    const ProfileTable table = table_of_trace(trace);
    Json values = to_json(table);
    values["first"] = first_;
    values["last"] = last_;
    std::string text = "profile of " + (recorded_ == 0 ? "a part of step " + with_commas(step_) : steps_text(first_, last_)) +
                       ": " + to_text(table);
    if (const std::string file = write(trace); !file.empty()) {
      values["trace"] = file;
      const std::string path = (place_.folder->path() / file).string();
      text += "\ntrace  " + path + " (" + human_bytes(static_cast<double>(trace.size())) +
              "): open it at ui.perfetto.dev, or with tensorboard --logdir " + place_.folder->path().string() +
              " and its package torch-tb-profiler";
    }
    reporter_.text(text);
    reporter_.record("profile", std::move(values));
  } catch (const std::exception& error) {
    reporter_.warning(std::string("the profile could not be written: ") + error.what());
  }
}

// Writes the trace and returns its name in the run folder; "" without a folder.
std::string StepProfiler::write(const std::string& trace) {
  if (place_.folder == nullptr) return "";
  std::string name = run_files::trace_of_step(recorded_ == 0 ? step_ : last_);
  const std::filesystem::path file = place_.folder->own(name);
  place_.fs->create_directories(file.parent_path());
  write_atomically(*place_.fs, file, trace);
  return name;
}

void StepProfiler::open(const std::string& name) {
  auto span = std::make_unique<at::RecordFunction>(at::RecordScope::USER_SCOPE);
  if (span->isActive()) span->before(name);
  open_.push_back({.span = std::move(span), .silence = nullptr});
}

void StepProfiler::close(std::size_t depth) {
  while (open_.size() > depth) {
    open_.back().silence.reset();
    open_.pop_back();
  }
}

void StepProfiler::begins(telemetry::Phase phase) noexcept {
  open(std::string(telemetry::name_of(phase)));
  // The operations of a validation are not recorded, because there may be a thousand times as many of them as in the steps.
  if (phase == telemetry::Phase::validate) open_.back().silence = std::make_unique<at::DisableRecordFunctionGuard>();
}

void StepProfiler::ends() noexcept {
  if (!open_.empty()) close(open_.size() - 1);
}

}  // namespace millrace
