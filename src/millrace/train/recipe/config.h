// The config sections that every run has. Each recipe adds its own sections (recipe.* and others); see train/recipe/entry.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "millrace/config/schema_of.h"
#include "millrace/data/loader/source.h"
#include "millrace/kernels/implementation.h"
#include "millrace/optim/config.h"

namespace millrace {

enum class Precision : std::uint8_t { fp32, bf16, fp16 };
enum class Layout : std::uint8_t { contiguous, channels_last };
enum class FrozenWeights : std::uint8_t { keep, leave_out };
struct DataConfig {
  enum class CacheMode : std::uint8_t { off, ram, device, disk };

  static constexpr std::int64_t kBatchSize = 4;

  std::filesystem::path dir;
  config::Auto<std::int64_t> batch_size = kBatchSize;
  config::Auto<std::int64_t> workers;
  std::int64_t prefetch = 2;
  config::Auto<bool> pin_memory;
  bool shuffle = true;
  bool drop_last = false;
  data::BadSamples bad_samples = data::BadSamples::fail;
  double max_bad_fraction = 0.001;
  std::int64_t max_buffer_bytes = 0;
  config::Auto<CacheMode> cache;
  config::Auto<std::int64_t> cache_bytes;
  bool accept_changed = false;

  // The batch size. If data.batch_size is "auto", a command that trains replaces it by a number before this call; other commands
  // get the default, kBatchSize.
  [[nodiscard]] std::int64_t samples_per_batch() const { return batch_size.value_or(kBatchSize); }

  static consteval auto fields() {
    using C = DataConfig;
    using config::field;
    return std::tuple{
        field<&C::dir>("Folder of the input data (--data). Empty: the preset makes its own.").free_on_resume(),
        field<&C::batch_size>(
            "Samples of each data set in a batch, on each rank. auto = the largest that runs whole steps here, so that "
            "an epoch has sixteen batches at least.")
            .min(1),
        field<&C::workers>("Reader threads; 0 = read in the calling thread.").min(0).max(256).free_on_resume(),
        field<&C::prefetch>("Batches ready ahead of the step, at first.").min(1).max(1024).free_on_resume(),
        field<&C::pin_memory>(
            "Batches wait for a GPU in page-locked memory, at most a quarter of what is free; auto = yes. On a CPU "
            "there is nothing to lock.")
            .free_on_resume(),
        field<&C::shuffle>("New random order each epoch (training only)."),
        field<&C::drop_last>("Drop an epoch's last smaller batch (training only)."),
        field<&C::bad_samples>("What to do with a sample that can't be read."),
        field<&C::max_bad_fraction>("Largest share of unreadable samples in an epoch; above it, if there is more than one, the "
                                    "run fails. 0: the first one fails it.")
            .min(0)
            .max(1),
        field<&C::max_buffer_bytes>(
            "Memory limit for batches in preparation and use; 0 = 1 GiB, or three batches if they need more.")
            .min(0)
            .unit("bytes")
            .free_on_resume(),
        field<&C::cache>("Keeps samples in memory once read. auto = where all fit into half of the free memory; device = in host "
                         "memory, as ram; disk = decoded, in the cache folder, for later runs too.")
            .free_on_resume(),
        field<&C::cache_bytes>("Limit of memory or disk for that cache; auto = half of the free space.")
            .min(1)
            .unit("bytes")
            .free_on_resume(),
        field<&C::accept_changed>("Resume even if the data has changed since the run began; the differences are reported.")
            .free_on_resume()};
  }
};

struct PrecisionConfig {
  config::Auto<Precision> dtype;
  static consteval auto fields() {
    using C = PrecisionConfig;
    return std::tuple{config::field<&C::dtype>("Arithmetic of the forward and backward pass; weights stay fp32.")};
  }
};

struct MemoryConfig {
  std::vector<std::string> recompute = {"auto"};
  std::string budget;
  std::string limit = "auto";
  std::int64_t micro_batches = 1;
  std::string offload;
  std::int64_t cleanup_every = 0;

  static consteval auto fields() {
    using C = MemoryConfig;
    using config::field;
    return std::tuple{
        field<&C::recompute>("Blocks to recompute in the backward pass: names, patterns (layer*), all or none. auto = as many as "
                             "memory.budget needs, all if memory runs out."),
        field<&C::budget>("Memory limit for tensors in a step: bytes (800 MB) or a share of a step's memory without recompute "
                          "(60%). Empty: no budget."),
        field<&C::limit>("Memory limit for tensors on a CPU, in bytes (2 GB); a step beyond it is retried with less. auto = the "
                         "whole process within nine tenths of what is free at the start."),
        field<&C::micro_batches>(
            "Micro-batches that each batch is cut into, one after the other in memory; the global batch stays. A "
            "run doubles it when memory runs out.")
            .min(1),
        field<&C::offload>("On a GPU, activations of at least this size (1 MB) are kept in host memory. Empty: off."),
        field<&C::cleanup_every>(
            "Steps after which memory that the allocator keeps free goes back to the system or the device; 0 = only "
            "when memory runs out: giving it back and asking for it again takes time.")
            .min(0)
            .free_on_resume()};
  }
};

struct TrainConfig {
  std::int64_t epochs = 10;
  std::int64_t max_steps = 0;
  std::int64_t seed = 0;
  std::string resume = "auto";
  std::string weights;
  std::int64_t validate_every = 0;
  std::int64_t validate_epochs = 1;
  bool validate_at_start = false;
  std::int64_t validate_batches = 0;
  std::int64_t early_stop_patience = 0;
  double early_stop_delta = 0.0;
  bool deterministic = false;
  std::int64_t hang_limit = 60;
  std::vector<std::string> off;

  static consteval auto fields() {
    using C = TrainConfig;
    using config::field;
    return std::tuple{
        field<&C::epochs>("Passes over the training data; 0 = until max_steps.").min(0).free_on_resume(),
        field<&C::max_steps>("Stop after this many steps; 0 = by epochs alone.").min(0).free_on_resume(),
        field<&C::seed>("Seed of everything random."),
        field<&C::resume>("auto = resume from the run folder's newest snapshot; never; or the path of a run or snapshot to "
                          "start from: later snapshots in the run folder become a branch.")
            .path("auto|never")
            .free_on_resume(),
        field<&C::weights>(
            "Start with the weights of this run, snapshot or file, with a fresh optimiser and schedule. A run that has "
            "saved resumes from its own.")
            .path(),
        field<&C::validate_every>("Steps between validations; 0 = at the end of epochs.").min(0).free_on_resume(),
        field<&C::validate_epochs>("Epochs between those, counted from the end of the first.").min(1).free_on_resume(),
        field<&C::validate_at_start>("Also validate before the first step: the loss to compare with.").free_on_resume(),
        field<&C::validate_batches>("Batches of a validation; 0 = the whole validation split.").min(0).free_on_resume(),
        field<&C::early_stop_patience>("Stop after this many validations without improvement; 0 = off.").min(0).free_on_resume(),
        field<&C::early_stop_delta>("Smallest improvement that counts for early_stop_patience.").min(0).free_on_resume(),
        field<&C::deterministic>(
            "Makes runs with the same seed equal to the bit also on a GPU, including resumed runs: slower, and an "
            "operation without a deterministic form on a GPU is refused. A CPU is always deterministic."),
        field<&C::hang_limit>(
            "Seconds without progress (and at least 50 times the usual time) after which a run reports where it hangs, and "
            "ends when it is asked to stop; 0 = never.")
            .min(0)
            .unit("s")
            .free_on_resume(),
        field<&C::off>("Optimisations to turn off, by name (--off=a,b). millrace list --switches names them.")};
  }
};

struct SnapshotConfig {
  enum class OnSaveError : std::uint8_t { continue_, stop };

  enum class BestIs : std::uint8_t { lowest, highest };

  std::int64_t every_steps = 0;
  std::int64_t every_epochs = 1;
  std::int64_t keep_last = 3;
  bool keep_best = true;
  std::int64_t best_count = 1;
  std::string best_metric;
  BestIs best_is = BestIs::lowest;
  std::int64_t keep_every = 0;
  std::int64_t max_lag = 1;
  OnSaveError on_error = OnSaveError::continue_;
  FrozenWeights frozen = FrozenWeights::keep;
  static consteval auto fields() {
    using C = SnapshotConfig;
    using config::field;
    return std::tuple{
        field<&C::every_steps>("Steps between snapshots; 0 = by epochs alone.").min(0),
        field<&C::every_epochs>("Epochs between snapshots; 0 = by steps alone.").min(0),
        field<&C::keep_last>("How many of the newest to keep.").min(1),
        field<&C::keep_best>("Also keep the best by snapshot.best_metric."),
        field<&C::best_count>("How many of the best keep_best keeps.").min(1).max(1000),
        field<&C::best_metric>("Validation metric that decides what is best, also for early stopping. Empty: the loss."),
        field<&C::best_is>("Which value of that metric is best."),
        field<&C::keep_every>("Also keep every snapshot whose step is a multiple of this; 0 = off.").min(0),
        field<&C::max_lag>(
            "Steps that training may continue while a snapshot is being written; then it waits. A crash loses at most the "
            "steps between two snapshots plus these.")
            .min(0),
        field<&C::on_error>("If a snapshot can't be written: warn and continue, or stop. The final one must be written."),
        field<&C::frozen>(
            "Weights that are not trained: keep them in each snapshot, or leave_out: their names and hashes alone are "
            "kept, and the recipe brings the weights.")};
  }
};

struct LogConfig {
  enum class Line : std::uint8_t { millrace, original };

  std::int64_t every = 50;
  Line line = Line::millrace;
  bool tensorboard = true;
  bool images = true;
  std::int64_t pictures_kept = 8;
  bool train_metrics = false;
  bool gpu_memory = false;
  std::int64_t gpu_every = 0;
  bool doctor = true;
  double doctor_trials = 0.005;
  static consteval auto fields() {
    using C = LogConfig;
    using config::field;
    return std::tuple{
        field<&C::every>("Steps between log lines. The only reads of the loss on the host besides validation.").min(1),
        field<&C::line>("Format of a log line on the screen: ours, or that of the recipe's original program, if there is one."),
        field<&C::tensorboard>("Write TensorBoard event files into the run folder."),
        field<&C::images>("Keep the recipe's pictures of a validation in the run folder."),
        field<&C::pictures_kept>(
            "Number of validations whose pictures are kept: the first, the newest and an even spread of those between.")
            .min(0),
        field<&C::train_metrics>("Measure the training batches too: the log line has the recipe's metrics as train/NAME."),
        field<&C::gpu_memory>(
            "Add memory to the log line, log.jsonl and the event files: of a GPU's allocator, or of the process."),
        field<&C::gpu_every>("Steps between extra lines with that memory and the GPU's utilisation; 0 = off.").min(0),
        field<&C::doctor>("Look for causes that slow the run, at log lines and once a second in the background, and report the "
                          "gain from fixing "
                          "them: see millrace doctor."),
        field<&C::doctor_trials>(
            "Share of the elapsed time that the doctor may spend on its own test steps, such as in another number format or with "
            "half the rows: each once, as soon as there is time for it; 0 = none. They change no bit of the run.")
            .min(0)
            .max(1)};
  }
};

struct ProfileConfig {
  std::int64_t steps = 0;
  std::int64_t skip = 3;
  static consteval auto fields() {
    using C = ProfileConfig;
    using config::field;
    return std::tuple{
        field<&C::steps>("Steps to record (--profile: 10): a table of the ten longest operations and a trace for Perfetto and "
                         "TensorBoard; 0 = off. A resumed run records only if this is set again.")
            .min(0),
        field<&C::skip>("Steps before recording begins.").min(0)};
  }
};

struct DeviceConfig {
  enum class CudnnAlgorithms : std::uint8_t { timed, rules };

  std::string name = "auto";
  config::Auto<std::int64_t> threads;
  config::Auto<Layout> layout;
  config::Auto<kernels::Implementation> kernels;
  config::Auto<bool> tf32;
  config::Auto<CudnnAlgorithms> cudnn;

  [[nodiscard]] std::optional<bool> tf32_wish() const { return tf32.is_auto() ? std::nullopt : std::optional(tf32.value()); }
  [[nodiscard]] std::optional<bool> timed_convolutions() const {
    return cudnn.is_auto() ? std::nullopt : std::optional(cudnn.value() == CudnnAlgorithms::timed);
  }
  static consteval auto fields() {
    using C = DeviceConfig;
    using config::field;
    return std::tuple{
        field<&C::name>("auto, cpu, cuda or cuda:<index>.").free_on_resume(),
        field<&C::threads>("Intra-op threads of the CPU; auto = the physical cores this process may use.")
            .min(1)
            .free_on_resume(),
        field<&C::layout>("Memory layout of images and volumes, where a recipe has a choice; auto = by a trial."),
        field<&C::kernels>(
            "Matrix products, attention, norms and convolutions on a CPU by our kernels or by LibTorch's; auto = by a "
            "trial of the run's own step, each operation alone."),
        field<&C::tf32>(
            "Matrix products and convolutions in fp32 on a GPU round their factors to 10 bits and take a fraction of the "
            "time: on, off; auto = on if the run computes in bf16 or fp16, off in fp32, which is then exact."),
        field<&C::cudnn>(
            "How cuDNN chooses an algorithm for a convolution on a GPU: timed = all are timed once per shape (cudnn_benchmark), "
            "rules = by its own rules; auto = timed, but by rules with train.deterministic.")};
  }
};

struct DistributedConfig {
  enum class Carrier : std::uint8_t { gloo, nccl };

  double join_timeout = 300;
  double timeout = 1800;
  std::int64_t check_every = 100;
  std::int64_t bucket_bytes = 25 << 20;
  bool compress = false;
  bool shard_optimizer = false;
  std::int64_t average_every = 1;
  config::Auto<Carrier> transport;
  static consteval auto fields() {
    using C = DistributedConfig;
    using config::field;
    return std::tuple{
        field<&C::join_timeout>("How long a rank waits for the others to come.").min(1).unit("seconds"),
        field<&C::timeout>("How long a rank waits for the others within the run: for a first rank that makes what all "
                           "need, a save, a cut link. A rank that ends is noticed at once.")
            .min(1)
            .unit("seconds"),
        field<&C::check_every>("Steps between two comparisons of the ranks' weights; 0 = never.").min(0).unit("steps"),
        field<&C::bucket_bytes>("Largest size of gradients sent together during the backward pass; 0 = all are sent after it.")
            .min(0)
            .unit("bytes")
            .free_on_resume(),
        field<&C::compress>("fp32 gradients travel as bf16 and are added up in it: half the bytes, for slow networks. Needs "
                            "buckets."),
        field<&C::shard_optimizer>("Each rank keeps the optimiser's state of its part of the parameters, updates these and sends "
                                   "them to the others (ZeRO stage 1): the same weights to the bit, less memory per rank."),
        field<&C::average_every>(
            "Each rank steps by its own gradients. After this many steps, and at the end of an epoch and of the "
            "run, all take the mean of their weights and optimiser state (local SGD): for slow networks. 1 = "
            "gradients are added up in each step.")
            .min(1)
            .unit("steps"),
        field<&C::transport>("What carries tensors between the ranks: auto = NCCL where each rank has a separate GPU and the "
                             "build has it, else Gloo, through host memory.")
            .free_on_resume()};
  }
};

struct TargetsConfig {
  double train_it_per_s = 0;
  double validation_it_per_s = 0;
  double samples_per_s = 0;
  double data_wait = 1;
  double gpu_busy = 0;
  static consteval auto fields() {
    using C = TargetsConfig;
    using config::field;
    return std::tuple{
        field<&C::train_it_per_s>("Steps a second between validations and snapshots, at least; 0 = not asked for.")
            .min(0)
            .unit("1/s"),
        field<&C::validation_it_per_s>("Batches of a validation a second, at least; 0 = not asked for.").min(0).unit("1/s"),
        field<&C::samples_per_s>("Training samples a second, of all ranks, at least; 0 = not asked for.").min(0).unit("1/s"),
        field<&C::data_wait>("Part of the time in which steps wait for data, at most; 1 = not asked for.").min(0).max(1),
        field<&C::gpu_busy>("Part of the time in which the GPU computes, at least; 0 = not asked for.").min(0).max(1)};
  }
};

struct RunNames {
  std::string dir;
  std::string parent;
  std::string name;
  static consteval auto fields() {
    using C = RunNames;
    using config::field;
    return std::tuple{
        field<&C::dir>("Run folder (--run); the same folder again resumes. Empty: runs/<recipe>/<name or date-time>."),
        field<&C::parent>("Folder of the run folders. Empty: runs/<recipe>."),
        field<&C::name>("Name of the run folder below run.parent.")};
  }
};

struct RunConfig {
  DataConfig data;
  PrecisionConfig precision;
  MemoryConfig memory;
  optim::OptimConfig optim;
  TrainConfig train;
  SnapshotConfig snapshot;
  LogConfig log;
  TargetsConfig targets;
  ProfileConfig profile;
  DeviceConfig device;
  DistributedConfig distributed;
  RunNames run;

  static consteval auto fields() {
    using C = RunConfig;
    using config::field;
    return std::tuple{
        field<&C::data>("Input."),
        field<&C::precision>("Number formats."),
        field<&C::memory>("Memory against time.").free_on_resume(),
        field<&C::optim>("Optimiser."),
        field<&C::train>("Length and order of the run."),
        field<&C::snapshot>("Saved state.").free_on_resume(),
        field<&C::log>("Log lines and event files.").free_on_resume(),
        field<&C::targets>("Targets of a run; a missed target is a finding of the doctor (log.doctor).").free_on_resume(),
        field<&C::profile>("What the steps' time goes into.").free_on_resume(),
        field<&C::device>("Where to run."),
        field<&C::distributed>("Several processes: millrace launch, torchrun, srun, mpirun.").free_on_resume(),
        field<&C::run>("Where the run's files go.").free_on_resume()};
  }
};

}  // namespace millrace

// config.cpp instantiates these templates once for all files, because an instantiation takes a compiler seconds.
namespace millrace::config {
extern template RunConfig read<RunConfig>(const Json&);
extern template DataConfig read<DataConfig>(const Json&);
extern template RunNames read<RunNames>(const Json&);
extern template optim::OptimConfig read<optim::OptimConfig>(const Json&);
extern template Schema schema_of<RunConfig>(std::string_view);
}  // namespace millrace::config
