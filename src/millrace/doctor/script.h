// Measurements of a training script that is not Millrace's, made by the package headrace: see Evidence::script.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace millrace::doctor {

// The library whose terms a remedy uses: a plain loop with DataLoader, Lightning, the Trainer of transformers, or accelerate.
enum class Dialect : std::uint8_t { loop, lightning, trainer, accelerate };
inline constexpr std::array<std::string_view, 4> kDialects = {"loop", "lightning", "trainer", "accelerate"};

// A place in a script is a text such as "train.py:31"; "" = unknown. `line` is the source text there; "" = unknown.
struct Script {
  // The DataLoader that the loop reads from.
  struct Loader {
    int workers = 0, prefetch = 0;  // prefetch: batches for each worker
    bool persistent = false, pinned = false;
    std::int64_t batch_size = 0;
    std::string where, dataset;  // dataset: the class of the data set
    double epochs = 0;           // passes that the script began
    // Time from the end of a pass to the first batch of the next pass, summed over all passes except the first.
    double first_batch_seconds = 0;
    double usual_batch_seconds = 0;   // the median wait for a batch
    double slow_start_seconds = 0;    // time by which the work on the first batch of a pass exceeds the median of the other
                                      // batches, summed over all passes except the first
    int worker_threads = 0;           // torch's threads in a worker; 0 = unknown
    int worker_tasks = 0;             // all threads of a worker, as the system counts them; 0 = unknown
    std::string multiprocessing;      // "fork", "spawn", "forkserver"
    double sample_seconds = 0;        // mean time to read a sample, in the process that reads it
    double sample_cpu_seconds = 0;    // the part of sample_seconds in which a core was used
    std::int64_t slowest_index = -1;  // index of the sample that took longest; -1 = unknown
    double slowest_seconds = 0;
  };

  // The DataLoader for whose batches validations waited longest.
  struct ValidationInput {
    int workers = 0;
    double wait_seconds = 0;                        // time that the loop waited for batches of this DataLoader
    double read_seconds = 0, read_cpu_seconds = 0;  // see the members of Evidence::Input with the same names
    std::string where;
  };

  struct Faults {
    double minor_per_step = 0;        // page faults of the loop's process that needed no disk
    double system_cpu_share = 0;      // share of its CPU time that the loop's process spent in the kernel
    bool below_headrace_run = false;  // true: malloc keeps freed memory already, as `headrace run` makes it do
  };

  // Reads of single values by the loop's thread: item(), cpu(), float() of a tensor.
  struct ItemCalls {
    std::int64_t count = 0;
    double seconds = 0;
    std::string where, line;
  };

  // Samples of the loop's thread at random moments.
  struct PythonLooks {
    double gil_share = 0;  // share of the samples that found the thread in Python's own code
    std::int64_t samples = 0;
    std::string where;       // the line that most of these samples found
    double where_share = 0;  // share of all samples that found this line
  };

  // Tensors that a script keeps from step to step, together with the autograd graph that made them.
  struct KeptGraphs {
    double growth_bytes_per_step = 0;
    std::string list, where, line;  // list: the name of the object that keeps the tensors
  };

  // Something that the loop does besides steps.
  struct Deed {
    std::int64_t count = 0;
    double seconds = 0;
    std::string where;
    std::int64_t every_steps = 0;  // interval in steps; 0 = unknown
  };

  std::string path, command;  // the script, and the command that starts it
  Dialect dialect = Dialect::loop;
  int threads = 0;  // torch's threads in the loop; 0 = unknown
  std::optional<Loader> loader;
  std::optional<ValidationInput> validation_input;
  std::optional<Faults> faults;
  std::optional<ItemCalls> item_calls;
  std::optional<PythonLooks> python;
  std::optional<KeptGraphs> kept_graphs;
  std::optional<Deed> saves, logs, validations;
};

}  // namespace millrace::doctor
