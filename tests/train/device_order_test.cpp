// LibTorch asks once per process which library drives its GPUs, and keeps the answer "nothing" for good: a question before the
// plugin is open takes the GPU away. Each entry into the program must choose its device first. The tests choose a device that
// does not exist: the run ends at the choice, so everything before the choice has been done and nothing after it.
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "millrace/base/error.h"
#include "millrace/measure/memory_search.h"
#include "millrace/measure/step_bench.h"
#include "toys.h"

namespace millrace {
namespace {

bool asked = false;

// What LibTorch makes when it is asked, for want of the plugin's own, which takes this one's place.
struct Noticed final : at::CUDAHooksInterface {
  explicit Noticed(at::CUDAHooksArgs) { asked = true; }
};

const bool registered = [] {
  at::CUDAHooksRegistry()->Register(
      "CUDAHooks",
      [](at::CUDAHooksArgs args) -> std::unique_ptr<at::CUDAHooksInterface> { return std::make_unique<Noticed>(args); },
      "of a test", c10::REGISTRY_FALLBACK);
  return true;
}();

constexpr const char* kNoDevice = "cuda:120";

RunRequest request_of(const Entry& entry, telemetry::Console& console) {
  const config::Schema schema = schema_of(entry);
  const auto aliases = aliases_of(entry);
  config::Layers layers(schema, aliases);
  layers.add_values(entry.defaults, "recipe");
  layers.add_values({{"device.name", kNoDevice}}, "test");
  RunRequest request;
  request.entry = &entry;
  request.config = layers.resolve();
  request.console = &console;
  return request;
}

// In a process of its own: it asks for all that LibTorch has.
bool train_elsewhere(const std::filesystem::path& folder) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      (void)toys::run(toys::grouped_regression(), folder, {{"train.epochs", 0}, {"train.max_steps", 2}});
      ::_exit(0);
    } catch (const std::exception&) {
      ::_exit(1);
    }
  }
  int status = -1;
  return child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
}

TEST(DeviceOrder, ItIsChosenBeforeLibTorchAsksForGpus) {
  const toys::TemporaryFolder trained, folder;
  ASSERT_TRUE(train_elsewhere(trained.path()));
  telemetry::Console console(telemetry::Console::Mode::quiet);
  Entry entry = toys::grouped_regression();
  entry.bench_shapes = {{.name = "cpu-small", .help = "", .config = Json::object(), .batch = nullptr}};

  EXPECT_THROW((void)toys::run(entry, folder.path(), {{"device.name", kNoDevice}}), ConfigError);
  EXPECT_FALSE(asked) << "by train";
  EXPECT_THROW((void)toys::run(entry, trained.path(), {{"device.name", kNoDevice}}), ConfigError);
  EXPECT_FALSE(asked) << "by a run that goes on";
  EXPECT_THROW((void)load_for_inference(entry, trained.path(), nullptr, {{"device.name", kNoDevice}}, console), ConfigError);
  EXPECT_FALSE(asked) << "by predict, eval and generate";
  EXPECT_THROW((void)bench_step(entry, {.overrides = {{"device.name", kNoDevice}}}), ConfigError);
  EXPECT_FALSE(asked) << "by bench step";
  EXPECT_THROW((void)find_max_batch(request_of(entry, console), {}), ConfigError);
  EXPECT_FALSE(asked) << "by max-batch";
  EXPECT_THROW((void)estimate_memory(request_of(entry, console)), ConfigError);
  EXPECT_FALSE(asked) << "by memory";

  (void)at::globalContext().hasCUDA();
  EXPECT_TRUE(asked) << "the test must be able to fail";
}

}  // namespace
}  // namespace millrace
