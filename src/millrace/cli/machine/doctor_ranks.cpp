#include "millrace/cli/machine/doctor_ranks.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "millrace/base/clock.h"
#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/median.h"
#include "millrace/cli/bench/bench_runs.h"
#include "millrace/cli/bench/child_run.h"
#include "millrace/cli/launch/join_ranks.h"
#include "millrace/cli/shared/text.h"
#include "millrace/distributed/rendezvous.h"
#include "millrace/system/signals.h"

namespace millrace::cli {
namespace {

// fp32 numbers that an all-reduce adds up: as many as a model with 8 million parameters has
constexpr std::int64_t kNumbers = std::int64_t{8} << 20U;
constexpr int kRounds = 7;

// The median time of an all-reduce. One all-reduce before, which is not measured, warms up.
double seconds_of(Agreement& agreement, std::int64_t numbers) {
  std::vector<double> seconds;
  for (int i = 0; i <= kRounds; ++i) {
    std::vector<at::Tensor> values = {at::ones({numbers}, at::kFloat)};
    (void)agreement.sum(std::int64_t{0});  // makes all ranks begin at the same time
    const double began = steady_seconds();
    agreement.sum(values);
    if (i > 0) seconds.push_back(steady_seconds() - began);
  }
  return median(seconds);
}

Json to_json(const RankRates& rates) {
  return {{"ranks", rates.ranks},
          {"latency_s", rates.latency},
          {"bytes", rates.bytes},
          {"seconds", rates.seconds},
          {"bytes_per_s", rates.rate()}};
}

}  // namespace

bool is_rank() {
  return distributed::rendezvous_of([](const char* name) { return std::getenv(name); }).has_value();
}

int doctor_ranks(bool json) {
  install_signal_handlers();
  const Joined joined = join_ranks({});
  Agreement& agreement = *joined.processes;
  RankRates rates{.ranks = agreement.ranks().world_size, .bytes = kNumbers * sizeof(float)};
  rates.latency = seconds_of(agreement, 1);
  rates.seconds = seconds_of(agreement, kNumbers);
  if (agreement.ranks().rank == 0) {
    if (json)
      print_json(to_json(rates));
    else
      print(to_text(rates) + "\n");
  }
  agreement.leave();
  joined.status->done();
  return 0;
}

std::optional<RankRates> measure_ranks(std::string& failure) {
  try {
    const ScratchFolder logs;
    const Json said =
        child_json({"launch", "--nproc", "2", "--bind", "none", "--logs", logs.path().string(), "doctor", "--json"});
    return RankRates{
        .ranks = said.at("ranks"), .latency = said.at("latency_s"), .seconds = said.at("seconds"), .bytes = said.at("bytes")};
  } catch (const Error& error) {
    failure = error.message().next.empty() ? error.message().what : error.message().next;
    return std::nullopt;
  }
}

std::string to_text(const RankRates& rates) {
  return std::to_string(rates.ranks) + " processes add up " + human_bytes(static_cast<double>(rates.bytes)) + " in " +
         significant(rates.seconds * 1e3, 3) + " ms, " + human_bytes(rates.rate()) + "/s; one number in " +
         significant(rates.latency * 1e6, 3) + " us";
}

bool port_is_free(int port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return false;
  const int yes = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);  // set because the ranks' own sockets set this option too
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  const bool is_free =
      ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 && ::listen(socket, 1) == 0;
  ::close(socket);
  return is_free;
}

}  // namespace millrace::cli
