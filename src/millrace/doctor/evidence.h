// The input of all rules: measurements of a stretch of a run, that is, of some consecutive steps of its loop. It contains only
// plain values, so that a rule can be tested with numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "millrace/doctor/script.h"
#include "millrace/telemetry/spans.h"

namespace millrace::doctor {

struct Evidence {
  // How batches were read during the stretch.
  struct Input {
    int readers = 0;
    bool readers_by_user = false;       // true: data.workers is a number
    double read_seconds = 0;            // time spent reading, summed over readers
    double read_cpu_seconds = 0;        // the part of read_seconds in which a core was used
    bool cache_by_user = false;         // true: data.cache is set to another value than auto
    bool cached = false;                // true: a cache in memory or on disk is in use
    std::uint64_t cacheable_bytes = 0;  // bytes that a cache of all samples would take; 0 = the source allows no cache
    std::uint64_t free_bytes = 0;       // memory that the process may still take
    double epochs = 0;                  // length of the run; 0 = no limit
    // Numbers of samples that could not be read, and that could be read, since the process began. A sample counts again in each
    // epoch.
    std::int64_t bad_samples = 0, good_samples = 0;
    struct Slow {
      std::string file;
      double excess_seconds = 0;  // how much longer the file's slow reads took, in total, than the usual time
      double times = 0;           // the time of a sample of this file, as a multiple of the usual time
      double quick = 0;           // share of the file's reads that took the usual time
      std::string sample;         // the file's sample that took longest
      double sample_times = 0;    // the time of that sample, as a multiple of the usual time
    };
    std::vector<Slow> slow;  // the slowest file first
  };

  // How often the loop does something besides steps (such as saving), and the interval for it in the config.
  struct Often {
    std::int64_t count = 0;        // number of times during the stretch
    std::int64_t every_steps = 0;  // 0 = the interval is not in steps
    std::int64_t every_epochs = 0;
  };

  // Results of the doctor's trials during the run. Each trial is made at most once and runs steps that do not update the
  // weights.
  struct Experiments {
    struct Format {
      std::string from, to;  // "fp32", "bf16"
      double ratio = 0;      // time in `from` / time in `to`
    };
    std::optional<Format> format;  // tried only if the config demands fp32
    struct Threads {
      int asked = 0, cores = 0;
      double ratio = 0;  // time with `asked` threads / time with `cores` threads
    };
    std::optional<Threads> threads;  // tried only if the config demands more threads than there are cores
    struct Batch {
      std::int64_t rows = 0;           // number of rows in the micro-batch of the trial
      double fixed_share = 0;          // share of the step's time that does not depend on the number of rows
      std::int64_t batch_size = 0;     // data.batch_size; 0 = the recipe sets the size itself
      std::int64_t micro_batches = 1;  // value of memory.micro_batches
      std::int64_t accumulate = 1;     // value of optim.accumulate
    };
    std::optional<Batch> batch;
    struct Layouts {
      std::string from, to;  // "contiguous", "channels_last"
      double ratio = 0;      // time in `from` / time in `to`
    };
    std::optional<Layouts> layout;  // tried only if the config demands one of the two layouts
    struct Recompute {
      std::uint64_t saved_bytes = 0;  // bytes by which recompute lowers the peak of a step
      double seconds = 0;             // seconds that recompute adds to a step
    };
    std::optional<Recompute> recompute;  // recompute of every block; tried only if the config recomputes no block
  };

  // A count of the operations in a step.
  struct Census {
    std::int64_t operations = 0;
    std::int64_t host_reads = 0;  // how often the step copied a value from the device to the host
    double seconds = 0;           // time of all operations
    double rebuilt_seconds = 0;   // time of operations that make the same tensors in each step, because they use neither
                                  // parameters nor the batch
    std::string rebuilt_by;       // of the operations in rebuilt_seconds, the one that takes longest: "aten::tril [256, 256]"
    std::int64_t copies = 0;      // copies of tensors between devices, except copies of the batch
    double copied_seconds = 0;
    std::string copied_by;  // the largest copy: "aten::to [256, 256] from cpu to cuda:0"
  };

  // The shapes of batches as the model gets them, without the number of rows.
  struct Shapes {
    std::int64_t batches = 0;  // number of micro-batches in the stretch
    std::int64_t fresh = 0;    // number of micro-batches with a shape that had not occurred before
    std::int64_t all = 0;      // number of different shapes in the run so far
    std::string latest;        // the latest new shape: "x [*, 37, 64]"
  };

  // How a rank spent the stretch, in seconds.
  struct RankTimes {
    double reduction = 0;  // time for waiting for other ranks and for sending
    double data_wait = 0;
  };

  struct Memory {
    std::uint64_t used = 0, room = 0;  // bytes in use, and bytes that may be used; 0 = unknown
    std::string rising;                // a text which shows that memory keeps growing; "" = it does not
    double recompute_seconds = 0;      // time of recomputing blocks during the stretch
    bool recompute_by_user = false;    // true: memory.recompute names blocks
    std::uint64_t step_peak = 0;       // the most bytes that tensors take during a step
    std::uint64_t most_held = 0;       // the most bytes that tensors took at any time
  };

  // How much data the latest validation's metrics are based on.
  struct Judged {
    std::string unit = "samples";   // the unit over which a metric is averaged
    double by = 0;                  // number of units over which the metric was averaged
    double there_are = 0;           // number of units in the whole split
    std::int64_t batches = 0;       // number of batches over which the metric was averaged
    std::int64_t most_batches = 0;  // value of train.validate_batches; 0 = all batches
  };

  // The result of reading the input of skipped steps a second time, since the process began.
  struct SkippedInput {
    bool all = false;          // true: all batches that may belong to skipped steps were read again
    std::int64_t samples = 0;  // number of samples with values that are not finite
    std::string first;         // the first sample with such values: its name, the field, the number of values, the position of
                               // the first one; "" = all values that were read again are finite
    bool prepared = false;     // true: the values read are finite, but prepare() made values that are not finite
  };

  // The loss of the best answer that ignores the input.
  struct Blind {
    double loss = 0;
    std::string what;
  };

  // How often a clamp in the model or its loss changed values during the stretch: see nn/clamp.h.
  struct Clamp {
    std::string name;
    double low = 0, high = 0;
    double values = 0, at_border = 0;
  };

  struct LossLine {
    std::int64_t step = 0;
    double loss = 0, gradient_norm = 0;
  };

  struct ObjectiveLines {
    std::string name;
    std::vector<LossLine> lines;  // the latest log lines with a loss of this objective, the oldest first
    bool clips = false;           // true: optim.clip_norm or optim.clip_value is set for the objective
  };

  struct Numbers {
    std::vector<ObjectiveLines> objectives;  // in the recipe's order
    std::int64_t skipped = 0;                // number of steps in the stretch that were skipped because gradients were not finite
    SkippedInput input;                      // result of reading the input of skipped steps again
    std::int64_t spikes = 0;     // number of steps in the stretch that were left out because the loss or the gradient jumped
    bool scaled = false;         // true: half precision with a loss scale, which skips steps while it adapts
    bool has_bf16 = false;       // true: the device computes in bf16 at full speed
    std::optional<Blind> blind;  // the best answer for the first objective that ignores the input; nullopt: the recipe names none
    std::vector<double> validation;  // validation losses of the first objective, the oldest first
    std::optional<Judged> judged;
    std::vector<Clamp> clamps;
    bool stops_early = false;  // true: train.early_stop_patience is set
  };

  // A speed that the config demands, and the speed that was reached. Targets that could not be measured are left out.
  struct Target {
    std::string key;   // "targets.train_it_per_s"
    std::string what;  // "training"
    std::string unit;  // "it/s"; "" = the speed is a share, without a unit
    double asked = 0, measured = 0;
    bool at_most = false;
    [[nodiscard]] bool met() const noexcept { return at_most ? measured <= asked : measured >= asked; }
  };

  // The run's GPU, according to its driver.
  struct Gpu {
    double utilisation = 0;              // share of the time in which a kernel was running
    double mhz = 0, most_mhz = 0;        // clock and its maximum; 0 = unknown
    std::vector<std::string> held_back;  // reasons why the clock is below its maximum
  };

  // Times of a step on a GPU, which the host launches and does not wait for.
  struct Launches {
    double host_ms = 0;    // time that the host takes to launch the step
    double device_ms = 0;  // time from the step's beginning to its end on the GPU, with gaps
    double behind_ms = 0;  // time that the GPU still needs when the host reaches a log line
  };

  // The clock of the core on which the run's busiest thread runs, in MHz: the median of the run's first minute, and of the latest
  // minute at the same load.
  struct CpuClock {
    double before_mhz = 0, now_mhz = 0;
    double lost = 0;  // share of cycles that were lost in the stretch because the clock was lower
  };

  // Finished runs in the parent of this run's folder that did the same work on the same machine.
  struct Earlier {
    std::vector<double> step_ms;  // median time of a step in each run, the newest run first
    std::string newest;           // folder of the newest run
  };

  std::int64_t step = 0;               // the current step
  telemetry::Timeline::Summary times;  // times of the stretch
  double run_seconds = 0;              // time of the loop since the process began
  // CPU seconds of the loop's own work in the stretch, on all its threads. Waiting for data and reading do not count.
  std::optional<double> work_cpu_seconds;
  std::optional<double> core_wait_seconds;  // seconds in which the loop's thread was ready to run but had no core
  std::optional<double> others;             // share of the stretch in which other programs used the cores
  int cores = 1;
  bool on_gpu = false;
  std::optional<Gpu> gpu;
  std::optional<Launches> launches;
  std::optional<CpuClock> clock;  // nullopt if the system reports no clock, or if there are no two minutes to compare yet
  Input input;
  // Of the bytes of a batch that are copied to the device, the share that belongs to floats of 4 or 8 bytes.
  std::optional<double> copied_floats;
  Often log, snapshot, validation;
  Memory memory;
  Numbers numbers;
  Experiments experiments;
  std::optional<Census> census;
  std::vector<Target> targets;
  Shapes shapes;
  std::vector<RankTimes> ranks;  // for each rank; empty if there is only one rank
  // For each interval between two log lines since the run began, the oldest first: the median time of a step, minus the share of
  // it in which other programs used the cores.
  std::vector<double> step_ms;
  Earlier earlier;
  std::string run;               // the run's folder; "" = the run has no folder
  std::optional<Script> script;  // nullopt: a run of Millrace's own loop
  [[nodiscard]] double share(telemetry::Phase phase) const noexcept { return times.share(phase); }
};

}  // namespace millrace::doctor
