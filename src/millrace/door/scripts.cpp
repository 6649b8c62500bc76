// The doctor for training scripts: findings from evidence, and a sampler of the machine.
#include <unistd.h>

#include <memory>
#include <string>

#include "millrace/base/foreign_json.h"
#include "millrace/doctor/evidence_json.h"
#include "millrace/doctor/script_sampler.h"
#include "millrace/doctor/verdict.h"
#include "millrace/door/detail/answers.h"
#include "millrace/door/headrace.h"

using namespace millrace;
using door::detail::guarded;
using door::detail::say;
using door::detail::text_of;

struct headrace_sampler {
  headrace_sampler(std::unique_ptr<doctor::Nvml> nvml, int gpu) : sampler(std::move(nvml), gpu) {}

  const pid_t process = ::getpid();
  doctor::ScriptSampler sampler;
};

namespace {

headrace_sampler& sampler_of(headrace_sampler* started) {
  if (started == nullptr) {
    throw UsageError(
        {.what = "there is no sampler", .where = "a function of libheadrace.so", .next = "call headrace_sampler_start() first"});
  }
  if (started->process != ::getpid()) {
    throw UsageError({.what = "this sampler was started by process " + std::to_string(started->process) +
                              ", but this process is a fork of that one: a fork does not copy the sampler's thread",
                      .where = "process " + std::to_string(::getpid()),
                      .next = "start a sampler in each process"});
  }
  return *started;
}

}  // namespace

const char* headrace_diagnose(const char* evidence) {
  return guarded<>(static_cast<const char*>(nullptr), [&] {
    const Json json = parse_shallow(evidence == nullptr ? "" : evidence);
    if (json.is_discarded()) {
      throw ConfigError(
          Message{.what = "this is not JSON, or it is nested more than " + std::to_string(kDeepestJson) + " levels deep",
                  .where = "evidence",
                  .next = R"(write numbers that are not finite as texts: "nan", "inf", "-inf")"});
    }
    return say(text_of(doctor::verdict_on(doctor::evidence_from(json))));
  });
}

const char* headrace_machine() {
  return guarded<>(static_cast<const char*>(nullptr), [&] { return say(text_of(doctor::machine_of_script())); });
}

headrace_sampler* headrace_sampler_start(int gpu) {
  return guarded<>(static_cast<headrace_sampler*>(nullptr), [&] {
    std::string why;
    return std::make_unique<headrace_sampler>(gpu < 0 ? nullptr : doctor::Nvml::open(why), gpu).release();
  });
}

const char* headrace_sampler_read(headrace_sampler* sampler) {
  return guarded<>(static_cast<const char*>(nullptr), [&] { return say(text_of(sampler_of(sampler).sampler.read())); });
}

const char* headrace_sampler_stop(headrace_sampler* sampler) {
  return guarded<>(static_cast<const char*>(nullptr), [&] {
    (void)sampler_of(sampler);
    const std::unique_ptr<headrace_sampler> owner(sampler);
    return say(text_of(owner->sampler.read()));
  });
}
