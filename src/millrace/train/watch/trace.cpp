#include "millrace/train/watch/trace.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <unistd.h>

#include <filesystem>
#include <set>

#include "millrace/base/fs.h"
#include "millrace/device/device.h"

namespace millrace {
namespace {

namespace kineto = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;

void wait_for(c10::Device device) {
  if (!device.is_cpu()) device::backend_of(device).synchronize(device.has_index() ? device.index() : 0);
}

}  // namespace

// The trace as text. Kineto can write its text only to a file. The file is temporary, because a run's own files must go through
// the run's file system object.
std::string text_of(kineto::ProfilerResult& result) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("millrace-trace-" + std::to_string(::getpid()) + ".json");
  struct Gone {
    const std::filesystem::path& file;
    ~Gone() {
      std::error_code ignored;
      std::filesystem::remove(file, ignored);
    }
  } const gone{file};
  result.save(file.string());
  return Fs::real().read_file(file);
}

std::string trace_of(c10::Device device, const std::function<void()>& work) {
  wait_for(device);
  std::set<ActivityType> activities = {ActivityType::CPU};
  if (!device.is_cpu()) activities.insert(ActivityType::CUDA);
  const ProfilerConfig config(ProfilerState::KINETO, /*report_input_shapes=*/true);
  kineto::prepareProfiler(config, activities);
  kineto::enableProfiler(config, activities);
  struct Recording {
    bool ended = false;
    ~Recording() {
      if (!ended) static_cast<void>(kineto::disableProfiler());
    }
  } recording;
  work();
  wait_for(device);  // waits, because Kineto knows a kernel only when the kernel has ended
  recording.ended = true;
  return text_of(*kineto::disableProfiler());
}

}  // namespace millrace
