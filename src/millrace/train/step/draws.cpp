#include "millrace/train/step/draws.h"

#include <string>
#include <utility>

#include "millrace/base/philox.h"
#include "millrace/kernels/attention_draws.h"
#include "millrace/kernels/default_generator.h"
#include "millrace/kernels/device_table.h"

namespace millrace {
namespace {

// This number makes the keys here differ from the keys of layers, of the loader's order and of sources.
constexpr std::uint64_t kDraws = 0x64726177;

void seed_with(at::Device device, std::uint64_t key) {
  kernels::seed_default_generator(at::kCPU, key);
  if (!device.is_cpu()) kernels::seed_default_generator(device, key);
}

}  // namespace

void seed_draws(at::Device device, std::uint64_t seed, Draws by, std::uint64_t number) {
  seed_with(device, make_key(seed, kDraws, by, number));
}

void seed_draws(at::Device device, std::uint64_t seed, Draws by, const Batch& batch, std::uint64_t number) {
  std::uint64_t first = 0;
  for (const Group& group : batch.groups())
    first += group.positions.empty() ? 0 : static_cast<std::uint64_t>(group.positions.front());
  seed_with(device, make_key(seed, kDraws, by, number, batch.split(), batch.epoch(), first));
}

Choice dropout_choice(at::Device device) {
  const bool own = kernels::device_table(device.type()) != nullptr;
  std::string reason =
      own ? "one kernel drops the same elements as the CPU"
          : "LibTorch's operations, used because this build has no kernels for the device, drop the same elements as the CPU";
  reason += kernels::counts_attention() ? "; attention, which is computed from all its scores, drops the same elements too"
                                        : "; LibTorch's fused attention draws other numbers, seeded by epoch and position";
  return {"device.dropout", own ? "kernel" : "operations", "auto", std::move(reason)};
}

}  // namespace millrace
