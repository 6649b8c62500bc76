// All that the rules look at: what a run saw of itself over a stretch of its loop. Plain values, so that a rule is tested with
// numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "millrace/telemetry/spans.h"

namespace millrace::doctor {

// Reading batches, over the stretch.
struct Input {
  int readers = 0;
  bool readers_by_user = false;       // data.workers is a number
  double read_seconds = 0;            // summed over readers
  double read_cpu_seconds = 0;        // of them on a core
  bool cache_by_user = false;         // data.cache is a word
  bool cached = false;                // there is a cache, of either kind
  std::uint64_t cacheable_bytes = 0;  // that a cache of all samples would hold; 0 = the source keeps nothing
  std::uint64_t free_bytes = 0;       // memory the process may still take
  double epochs = 0;                  // that the run is long; 0 = without end
  // Of the process so far: samples that could not be read, of each epoch anew, and those that could.
  std::int64_t bad_samples = 0, good_samples = 0;
  struct Slow {
    std::string file;
    double excess_seconds = 0;  // beyond what its reads usually take
    double times = 0;           // the usual time of a sample
    double quick = 0;           // part of its reads that were as quick as usual
    std::string sample;         // the place of the slowest
    double sample_times = 0;    // the usual time, that it takes
  };
  std::vector<Slow> slow;  // the slowest first
};

// How often the loop does something beside steps, and what the config says of it.
struct Often {
  std::int64_t count = 0;        // over the stretch
  std::int64_t every_steps = 0;  // 0 = not by steps
  std::int64_t every_epochs = 0;
};

// What trials beside the run measured, at most once a run; each is a step without its update.
struct Experiments {
  struct Format {
    std::string from, to;  // "fp32", "bf16"
    double ratio = 0;      // time in `from` to time in `to`
  };
  std::optional<Format> format;  // where the config fixed fp32
  struct Threads {
    int asked = 0, cores = 0;
    double ratio = 0;  // time with `asked` to time with `cores`
  };
  std::optional<Threads> threads;  // where the config asked for more than there are cores
  struct Batch {
    std::int64_t rows = 0;           // of the micro-batch that was tried
    double fixed_share = 0;          // of its time: what half the rows would cost as well
    std::int64_t batch_size = 0;     // data.batch_size; 0 = the recipe sets its own
    std::int64_t micro_batches = 1;  // memory.micro_batches
    std::int64_t accumulate = 1;     // optim.accumulate
  };
  std::optional<Batch> batch;
  struct Layouts {
    std::string from, to;  // "contiguous", "channels_last"
    double ratio = 0;      // time in `from` to time in `to`
  };
  std::optional<Layouts> layout;  // where the config fixed one of two
  struct Recompute {
    std::uint64_t saved_bytes = 0;  // of a step's peak
    double seconds = 0;             // that it costs a step
  };
  std::optional<Recompute> recompute;  // of all blocks, where the config fixed none
};

// Of one step, by its operations.
struct Census {
  std::int64_t operations = 0;
  std::int64_t host_reads = 0;  // values that the step asked of the device
  double seconds = 0;           // of all operations
  double rebuilt_seconds = 0;   // of those that made the same tensors as in every step: of no parameter and no batch
  std::string rebuilt_by;       // the longest of them: "aten::tril [256, 256]"
  std::int64_t copies = 0;      // of tensors between devices, beside the batch's own
  double copied_seconds = 0;
  std::string copied_by;  // the largest: "aten::to [256, 256] from cpu to cuda:0"
};

// Of batches as the model sees them, without the number of their rows.
struct Shapes {
  std::int64_t batches = 0;  // over the stretch, micro-batches each for itself
  std::int64_t fresh = 0;    // of them, those of a shape that none before had
  std::int64_t all = 0;      // shapes of the run so far
  std::string latest;        // "x [*, 37, 64]"
};

// Seconds of one rank over the stretch.
struct RankTimes {
  double reduction = 0;  // in which it waited for the others, and sent
  double data_wait = 0;
};

struct Memory {
  std::uint64_t used = 0, room = 0;  // bytes; 0 = not known
  std::string rising;                // what says so; "" = it does not
  double recompute_seconds = 0;      // of blocks that ran again, over the stretch
  bool recompute_by_user = false;    // memory.recompute names blocks
  std::uint64_t step_peak = 0;       // of tensors in a step
  std::uint64_t most_held = 0;       // of tensors, at any time
};

// Of the latest validation.
struct Judged {
  std::string unit = "samples";   // that a metric is a mean of
  double by = 0;                  // of these
  double there_are = 0;           // in the whole split
  std::int64_t batches = 0;       // it took
  std::int64_t most_batches = 0;  // train.validate_batches; 0 = all
};

// What an answer that does not look at the input gets.
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
  std::vector<LossLine> lines;  // of the latest log lines in which it had a loss, oldest first
  bool clips = false;           // its optim.clip_norm or optim.clip_value
};

struct Numbers {
  std::vector<ObjectiveLines> objectives;  // in the recipe's order
  std::int64_t skipped = 0;                // steps over the stretch whose gradients were not finite
  std::int64_t spikes = 0;                 // steps over the stretch that were left out since the loss or the gradient jumped
  bool scaled = false;                     // half precision with a loss scale, which skips steps to find it
  bool has_bf16 = false;                   // the device computes in it at full speed
  std::optional<Blind> blind;              // of the first objective
  std::vector<double> validation;          // losses of the first objective, oldest first
  std::optional<Judged> judged;
  std::vector<Clamp> clamps;
  bool stops_early = false;  // train.early_stop_patience
};

// A figure that the config asks for, and what the stretch had. Only what could be measured is there.
struct Target {
  std::string key;   // "targets.train_it_per_s"
  std::string what;  // "training"
  std::string unit;  // "it/s"; "" = a share
  double asked = 0, measured = 0;
  bool at_most = false;
  [[nodiscard]] bool met() const noexcept { return at_most ? measured <= asked : measured >= asked; }
};

// Of the run's GPU, by its driver.
struct Gpu {
  double utilisation = 0;              // part of the time in which a kernel ran
  double mhz = 0, most_mhz = 0;        // 0 = not known
  std::vector<std::string> held_back;  // why the clock is lower
};

// Of a step on a GPU, which works behind the host.
struct Launches {
  double host_ms = 0;    // that the host takes to launch it
  double device_ms = 0;  // from its begin on the GPU to its end, with the gaps in it
  double behind_ms = 0;  // that the GPU still works when the host comes to a log line
};

// Of the core that the run's busiest thread is on, under like load: medians of the run's first minute and of the latest one.
struct CpuClock {
  double before_mhz = 0, now_mhz = 0;
  double lost = 0;  // part of its cycles that the stretch did not get
};

// Runs beside this one that did the same work on the same machine, and ended.
struct Earlier {
  std::vector<double> step_ms;  // the median of each, the newest first
  std::string newest;           // its folder
};

struct Evidence {
  std::int64_t step = 0;               // now
  telemetry::Timeline::Summary times;  // of the stretch
  std::optional<double> others;        // part of it in which other programs had the cores
  int cores = 1;
  bool on_gpu = false;
  std::optional<Gpu> gpu;
  std::optional<Launches> launches;
  std::optional<CpuClock> clock;  // where the system tells one, and there are two minutes to compare
  Input input;
  std::optional<double> copied_floats;  // part of the bytes of a batch on its way to the device that are floats of 4 or 8 bytes
  Often log, snapshot, validation;
  Memory memory;
  Numbers numbers;
  Experiments experiments;
  std::optional<Census> census;
  std::vector<Target> targets;
  Shapes shapes;
  std::vector<RankTimes> ranks;  // by rank; empty: there is one
  // Medians of the run's stretches between log lines, oldest first, without the part in which other programs had the cores.
  std::vector<double> step_ms;
  Earlier earlier;
  std::string run;  // its folder; "" = none
  [[nodiscard]] double share(telemetry::Phase phase) const noexcept { return times.share(phase); }
};

}  // namespace millrace::doctor
