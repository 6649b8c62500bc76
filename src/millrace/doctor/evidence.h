// The input of all rules: measurements of a run over a stretch of its loop, which is some consecutive steps. Plain values, so
// that a rule is tested with numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "millrace/telemetry/spans.h"

namespace millrace::doctor {

struct Evidence {
  // How batches were read over the stretch.
  struct Input {
    int readers = 0;
    bool readers_by_user = false;       // data.workers is a number
    double read_seconds = 0;            // summed over readers
    double read_cpu_seconds = 0;        // the part of read_seconds spent on a core
    bool cache_by_user = false;         // data.cache is set, not auto
    bool cached = false;                // a cache of either kind is in use
    std::uint64_t cacheable_bytes = 0;  // size of a cache of all samples; 0 = the source keeps nothing
    std::uint64_t free_bytes = 0;       // memory that the process may still take
    double epochs = 0;                  // length of the run; 0 = unlimited
    // Samples that could not be read, and samples that could, counted over the process so far and again in each epoch.
    std::int64_t bad_samples = 0, good_samples = 0;
    struct Slow {
      std::string file;
      double excess_seconds = 0;  // beyond the usual time of its reads
      double times = 0;           // multiple of the usual time of a sample
      double quick = 0;           // share of its reads that were as quick as usual
      std::string sample;         // the place of its slowest sample
      double sample_times = 0;    // multiple of the usual time that it takes
    };
    std::vector<Slow> slow;  // the slowest first
  };

  // How often the loop does something other than steps, and the config's interval for it.
  struct Often {
    std::int64_t count = 0;        // times in the stretch
    std::int64_t every_steps = 0;  // 0 = not by steps
    std::int64_t every_epochs = 0;
  };

  // Results of trials during the run, each made at most once; a trial is a step without its update.
  struct Experiments {
    struct Format {
      std::string from, to;  // "fp32", "bf16"
      double ratio = 0;      // time in `from` to time in `to`
    };
    std::optional<Format> format;  // set if the config fixed fp32
    struct Threads {
      int asked = 0, cores = 0;
      double ratio = 0;  // time with `asked` to time with `cores`
    };
    std::optional<Threads> threads;  // set if the config asked for more threads than there are cores
    struct Batch {
      std::int64_t rows = 0;           // rows of the micro-batch that was tried
      double fixed_share = 0;          // share of its time that does not depend on the number of rows
      std::int64_t batch_size = 0;     // data.batch_size; 0 = the recipe sets its own
      std::int64_t micro_batches = 1;  // memory.micro_batches
      std::int64_t accumulate = 1;     // optim.accumulate
    };
    std::optional<Batch> batch;
    struct Layouts {
      std::string from, to;  // "contiguous", "channels_last"
      double ratio = 0;      // time in `from` to time in `to`
    };
    std::optional<Layouts> layout;  // set if the config fixed one of the two
    struct Recompute {
      std::uint64_t saved_bytes = 0;  // reduction of a step's peak
      double seconds = 0;             // cost of the recompute per step
    };
    std::optional<Recompute> recompute;  // recompute of all blocks; set if the config recomputes no block
  };

  // The operations of one step.
  struct Census {
    std::int64_t operations = 0;
    std::int64_t host_reads = 0;  // values that the step read back from the device
    double seconds = 0;           // time of all operations
    double rebuilt_seconds = 0;   // time of operations that made equal tensors in each step, not from parameters or the batch
    std::string rebuilt_by;       // the slowest of these operations: "aten::tril [256, 256]"
    std::int64_t copies = 0;      // copies of tensors between devices, without the batch's own
    double copied_seconds = 0;
    std::string copied_by;  // the largest copy: "aten::to [256, 256] from cpu to cuda:0"
  };

  // Shapes of batches as the model sees them, without the number of rows.
  struct Shapes {
    std::int64_t batches = 0;  // micro-batches in the stretch
    std::int64_t fresh = 0;    // those of a new shape
    std::int64_t all = 0;      // number of shapes in the run so far
    std::string latest;        // "x [*, 37, 64]"
  };

  // Seconds of one rank over the stretch.
  struct RankTimes {
    double reduction = 0;  // waiting for the other ranks, and sending
    double data_wait = 0;
  };

  struct Memory {
    std::uint64_t used = 0, room = 0;  // bytes; 0 = unknown
    std::string rising;                // the evidence that memory grows; "" = it does not
    double recompute_seconds = 0;      // time of recomputed blocks, over the stretch
    bool recompute_by_user = false;    // memory.recompute names blocks
    std::uint64_t step_peak = 0;       // bytes of tensors in a step
    std::uint64_t most_held = 0;       // most bytes of tensors at any time
  };

  // The data behind the latest validation's metrics.
  struct Judged {
    std::string unit = "samples";   // unit that a metric averages over
    double by = 0;                  // number of units it averaged over
    double there_are = 0;           // units in the whole split
    std::int64_t batches = 0;       // batches that it used
    std::int64_t most_batches = 0;  // train.validate_batches; 0 = all
  };

  // The input of skipped steps, read again; over the process so far.
  struct SkippedInput {
    bool all = false;          // all batches that skipped steps may have had were read again
    std::int64_t samples = 0;  // samples with values that are not finite
    std::string first;         // the first of them: sample, field, how many values, where; "" = all that was read is finite
  };

  // The loss of a constant answer that ignores the input.
  struct Blind {
    double loss = 0;
    std::string what;
  };

  // A clamp in the model or its loss, over the stretch: see nn/clamp.h.
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
    std::vector<LossLine> lines;  // the latest log lines in which it had a loss, oldest first
    bool clips = false;           // optim.clip_norm or optim.clip_value is set for it
  };

  struct Numbers {
    std::vector<ObjectiveLines> objectives;  // in the recipe's order
    std::int64_t skipped = 0;                // steps over the stretch whose gradients were not finite
    SkippedInput input;                      // input of the skipped steps
    std::int64_t spikes = 0;                 // steps over the stretch that were left out because the loss or the gradient jumped
    bool scaled = false;                     // half precision with a loss scale, which skips steps while it adapts
    bool has_bf16 = false;                   // the device computes in bf16 at full speed
    std::optional<Blind> blind;              // for the first objective; nullopt: the recipe names no such answer
    std::vector<double> validation;          // losses of the first objective, oldest first
    std::optional<Judged> judged;
    std::vector<Clamp> clamps;
    bool stops_early = false;  // train.early_stop_patience
  };

  // A figure that the config demands, and its value in the stretch. Targets that could not be measured are left out.
  struct Target {
    std::string key;   // "targets.train_it_per_s"
    std::string what;  // "training"
    std::string unit;  // "it/s"; "" = a share
    double asked = 0, measured = 0;
    bool at_most = false;
    [[nodiscard]] bool met() const noexcept { return at_most ? measured <= asked : measured >= asked; }
  };

  // The run's GPU, as its driver reports it.
  struct Gpu {
    double utilisation = 0;              // share of the time in which a kernel ran
    double mhz = 0, most_mhz = 0;        // 0 = unknown
    std::vector<std::string> held_back;  // why the clock is below its maximum
  };

  // Times of a step on a GPU, which runs asynchronously to the host.
  struct Launches {
    double host_ms = 0;    // the host's time to launch the step
    double device_ms = 0;  // from the step's beginning to its end on the GPU, including gaps
    double behind_ms = 0;  // the GPU's remaining work when the host reaches a log line
  };

  // The clock of the core of the run's busiest thread, at equal load: medians of the run's first minute and of the latest.
  struct CpuClock {
    double before_mhz = 0, now_mhz = 0;
    double lost = 0;  // share of cycles that the lower clock cost, over the stretch
  };

  // Finished runs that did the same work on the same machine, from the parent of this run's folder.
  struct Earlier {
    std::vector<double> step_ms;  // the median step time of each run, newest first
    std::string newest;           // folder of the newest run
  };

  std::int64_t step = 0;               // the current step
  telemetry::Timeline::Summary times;  // of the stretch
  double run_seconds = 0;              // of the loop, from the beginning of the process to the end of the stretch
  std::optional<double> others;        // share of it in which other programs used the cores
  int cores = 1;
  bool on_gpu = false;
  std::optional<Gpu> gpu;
  std::optional<Launches> launches;
  std::optional<CpuClock> clock;  // set if the system reports a clock, and there are two minutes to compare
  Input input;
  std::optional<double> copied_floats;  // share of a batch's bytes copied to the device that are floats of 4 or 8 bytes
  Often log, snapshot, validation;
  Memory memory;
  Numbers numbers;
  Experiments experiments;
  std::optional<Census> census;
  std::vector<Target> targets;
  Shapes shapes;
  std::vector<RankTimes> ranks;  // one entry for each rank; empty for a single rank
  // Median step times of the run's stretches between log lines, oldest first, without the share of other programs.
  std::vector<double> step_ms;
  Earlier earlier;
  std::string run;  // the run's folder; "" = none
  [[nodiscard]] double share(telemetry::Phase phase) const noexcept { return times.share(phase); }
};

}  // namespace millrace::doctor
