#include "millrace/distributed/rendezvous.h"

#include <unistd.h>

#include <charconv>
#include <cstring>

#include "millrace/base/error.h"
#include "millrace/base/hash.h"

namespace millrace::distributed {
namespace {

constexpr int kFirstPort = 20000, kPorts = 20000;

class Variables {
 public:
  Variables(const Environment& environment, std::string launcher) : environment_(environment), launcher_(std::move(launcher)) {}

  [[nodiscard]] bool has(const char* name) const {
    const char* value = environment_(name);
    return value != nullptr && *value != '\0';
  }
  [[nodiscard]] std::string text(const char* name) const { return has(name) ? environment_(name) : ""; }
  [[nodiscard]] int number(const char* name) const {
    if (!has(name)) {
      throw DistributedError({"the environment of a process that " + launcher_ + " started has no " + name, name,
                              "start the ranks with millrace launch, torchrun, srun or mpirun, which set this variable; to train "
                              "in one process, unset WORLD_SIZE and the other variables of these launchers"});
    }
    const std::string value = text(name);
    int number = 0;
    const auto [end, code] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (code != std::errc() || end != value.data() + value.size() || number < 0)
      throw DistributedError({std::string(name) + " is \"" + value + "\", not a whole number of at least 0", name,
                              "correct the program that sets it"});
    return number;
  }
  [[nodiscard]] int number_or(const char* name, int otherwise) const { return has(name) ? number(name) : otherwise; }

  // Returns `other` if only that variable is set, else `name`, so that an error message can name a variable in any case.
  [[nodiscard]] const char* first_of(const char* name, const char* other) const {
    return has(name) || !has(other) ? name : other;
  }

 private:
  const Environment& environment_;
  std::string launcher_;
};

void check(const Rendezvous& rendezvous) {
  const Ranks& ranks = rendezvous.ranks;
  const auto refuse = [&](const std::string& what) {
    throw DistributedError({what, "the environment that " + rendezvous.launcher + " set",
                            "give each process a different rank, from 0 to the number of processes - 1"});
  };
  if (ranks.rank >= ranks.world_size)
    refuse("this process has rank " + std::to_string(ranks.rank) + ", but the run has " + std::to_string(ranks.world_size) +
           " processes");
  if (ranks.local_world_size < 1 || ranks.local_world_size > ranks.world_size || ranks.local_rank >= ranks.local_world_size)
    refuse("this process has local rank " + std::to_string(ranks.local_rank) + " of " + std::to_string(ranks.local_world_size) +
           " processes on this machine, in a run of " + std::to_string(ranks.world_size) + " processes");
  constexpr int kLastPort = 65535;  // the system's functions would take a larger number modulo 65536
  if (rendezvous.port < 1 || rendezvous.port > kLastPort)
    throw DistributedError({"the port at which the ranks meet is " + std::to_string(rendezvous.port) +
                                ", but ports are numbers from 1 to " + std::to_string(kLastPort),
                            "MASTER_PORT", "set it to a port that is free on the machine of rank 0"});
}

Rendezvous of_torchrun(const Environment& environment) {
  const Variables variables(environment, "torchrun");
  Rendezvous result{.ranks = {}, .launcher = "torchrun", .host = {}};
  result.ranks.world_size = variables.number("WORLD_SIZE");
  if (result.ranks.world_size == 1) return result;
  result.ranks.rank = variables.number("RANK");
  result.ranks.local_rank = variables.number_or("LOCAL_RANK", result.ranks.rank);
  result.ranks.local_world_size = variables.number_or("LOCAL_WORLD_SIZE", result.ranks.world_size);
  result.host = variables.has("MASTER_ADDR") ? variables.text("MASTER_ADDR") : "127.0.0.1";
  result.port = variables.number("MASTER_PORT");
  result.is_served = variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  result.attempt = variables.number_or("TORCHELASTIC_RESTART_COUNT", 0);
  return result;
}

// Returns the store's port. All ranks of a job must compute the same port without communication, and two jobs on a machine
// should get different ports.
int port_of(const std::string& job) {
  return kFirstPort + static_cast<int>(crc32c(std::as_bytes(std::span(job.data(), job.size()))) % kPorts);
}

void find_store(const Variables& variables, const std::string& job, Rendezvous& result) {
  const bool is_one_machine = result.ranks.local_world_size == result.ranks.world_size;
  result.host = variables.text("MASTER_ADDR");
  if (result.host.empty() && is_one_machine) result.host = "127.0.0.1";
  if (result.host.empty()) {
    throw DistributedError({result.launcher + " started ranks on several machines and does not name the machine of rank 0",
                            "MASTER_ADDR",
                            "set MASTER_ADDR to the name of the first machine for all ranks, e.g. mpirun -x MASTER_ADDR=HOST"});
  }
  result.port = variables.has("MASTER_PORT") ? variables.number("MASTER_PORT") : port_of(job);
}

Rendezvous of_open_mpi(const Environment& environment) {
  const Variables variables(environment, "Open MPI");
  Rendezvous result{.ranks = {}, .launcher = "Open MPI", .host = {}};
  result.ranks.world_size = variables.number("OMPI_COMM_WORLD_SIZE");
  if (result.ranks.world_size == 1) return result;
  result.ranks.rank = variables.number("OMPI_COMM_WORLD_RANK");
  result.ranks.local_rank = variables.number("OMPI_COMM_WORLD_LOCAL_RANK");
  result.ranks.local_world_size = variables.number("OMPI_COMM_WORLD_LOCAL_SIZE");
  const char* job = variables.first_of("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid");
  find_store(variables, variables.has(job) ? variables.text(job) : std::to_string(::getppid()), result);
  return result;
}

Rendezvous of_pmi(const Environment& environment) {
  const Variables variables(environment, "mpirun");
  Rendezvous result{.ranks = {}, .launcher = "MPI (PMI)", .host = {}};
  result.ranks.world_size = variables.number("PMI_SIZE");
  if (result.ranks.world_size == 1) return result;
  result.ranks.rank = variables.number("PMI_RANK");
  result.ranks.local_rank = variables.number_or("MPI_LOCALRANKID", result.ranks.rank);
  result.ranks.local_world_size = variables.number_or("MPI_LOCALNRANKS", result.ranks.world_size);
  find_store(variables, std::to_string(::getppid()), result);
  return result;
}

// Returns the number of tasks on a node according to Slurm's list: "4(x2),3" is two nodes with 4 tasks and one node with 3.
// Returns 0 if the list does not contain the node.
int tasks_of_node(const std::string& counts, int node) {
  int first = 0;
  for (const char* at = counts.c_str(); *at != '\0';) {
    char* end = nullptr;
    const long tasks = std::strtol(at, &end, 10);
    if (end == at) return 0;
    long nodes = 1;
    if (std::strncmp(end, "(x", 2) == 0) nodes = std::strtol(end + 2, &end, 10);
    if (*end == ')') ++end;
    first += static_cast<int>(nodes);
    if (node < first) return static_cast<int>(tasks);
    if (*end != ',') return 0;
    at = end + 1;
  }
  return 0;
}

Rendezvous of_slurm(const Environment& environment) {
  const Variables variables(environment, "Slurm");
  Rendezvous result{.ranks = {}, .launcher = "Slurm", .host = {}};
  result.ranks.world_size = variables.number(variables.first_of("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"));
  if (result.ranks.world_size == 1) return result;
  result.ranks.rank = variables.number("SLURM_PROCID");
  result.ranks.local_rank = variables.number("SLURM_LOCALID");
  const char* counts = variables.first_of("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE");
  const int tasks = tasks_of_node(variables.text(counts), variables.number_or("SLURM_NODEID", 0));
  const int nodes = variables.number_or(variables.first_of("SLURM_STEP_NUM_NODES", "SLURM_NNODES"), 1);
  result.ranks.local_world_size = tasks > 0 ? tasks : nodes == 1 ? result.ranks.world_size : result.ranks.local_rank + 1;
  result.host = variables.text("MASTER_ADDR");
  const char* list = variables.first_of("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST");
  if (result.host.empty() && nodes == 1) result.host = "127.0.0.1";
  if (result.host.empty()) result.host = first_node(variables.text(list));
  if (result.host.empty())
    throw DistributedError({"Slurm's list of nodes is \"" + variables.text(list) + "\", which names no machine", list,
                            "set MASTER_ADDR to the name of the first machine"});
  result.port = variables.has("MASTER_PORT")
                    ? variables.number("MASTER_PORT")
                    : kFirstPort + variables.number(variables.first_of("SLURM_JOB_ID", "SLURM_JOBID")) % kPorts;
  result.attempt = variables.number_or("SLURM_RESTART_COUNT", 0);
  return result;
}

}  // namespace

std::optional<Rendezvous> rendezvous_of(const Environment& environment) {
  const Variables variables(environment, "");
  Rendezvous result;
  if (variables.has("WORLD_SIZE")) {
    result = of_torchrun(environment);
  } else if (variables.has("OMPI_COMM_WORLD_SIZE")) {
    result = of_open_mpi(environment);
  } else if (variables.has("PMI_SIZE")) {
    result = of_pmi(environment);
  } else if (variables.has("SLURM_STEP_ID") && variables.has("SLURM_PROCID")) {
    result = of_slurm(environment);
  }
  if (result.ranks.world_size <= 1) return std::nullopt;
  check(result);
  return result;
}

std::string first_node(const std::string& list) {
  const std::size_t bracket = list.find('[');
  const std::size_t comma = list.find(',');
  if (comma < bracket) return list.substr(0, comma);
  if (bracket == std::string::npos) return list;
  const std::size_t end = list.find_first_of(",-]", bracket);
  const std::size_t close = list.find(']', bracket);
  if (end == std::string::npos || close == std::string::npos || end == bracket + 1) return "";
  const std::size_t next = list.find(',', close);
  const std::string suffix = list.substr(close + 1, next == std::string::npos ? next : next - close - 1);
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1) +
         (suffix.find('[') == std::string::npos ? suffix : first_node(suffix));
}

}  // namespace millrace::distributed
