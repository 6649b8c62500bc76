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
        field<&C::batch_size>("Number of samples of each data set in a batch, on each rank. auto = the largest at which a step "
                              "fits into memory and an epoch has at least 16 batches.")
            .min(1),
        field<&C::workers>("Reader threads; 0 = read in the calling thread.").min(0).max(256).free_on_resume(),
        field<&C::prefetch>("Number of batches that are kept ready ahead of the step; it may grow during the run.")
            .min(1)
            .max(1024)
            .free_on_resume(),
        field<&C::pin_memory>("Keep waiting batches in page-locked memory, from which copies to a GPU are faster: at most a "
                              "quarter of the free memory. auto = true on a GPU; without effect on a CPU.")
            .free_on_resume(),
        field<&C::shuffle>("Draw a new random order for each epoch (training only)."),
        field<&C::drop_last>("Leave out an epoch's last batch if it is smaller than the others (training only)."),
        field<&C::bad_samples>("What to do with a sample that can't be read."),
        field<&C::max_bad_fraction>("Largest share of unreadable samples in an epoch. The run fails if more than this share, and "
                                    "more than one sample, are unreadable; 0 = it fails at the first one.")
            .min(0)
            .max(1),
        field<&C::max_buffer_bytes>(
            "Memory limit for batches in preparation and use; 0 = 1 GiB, or three batches if they need more.")
            .min(0)
            .unit("bytes")
            .free_on_resume(),
        field<&C::cache>("Keep decoded samples for later epochs. auto = in memory if all fit into half of the free memory; ram "
                         "and device = in host memory; disk = in the cache folder, for later runs too.")
            .free_on_resume(),
        field<&C::cache_bytes>("Largest size of data.cache in memory or on disk; auto = half of the free space.")
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
        field<&C::limit>(
            "Memory limit for tensors on a CPU, in bytes (2 GB); a step that exceeds it is repeated with less memory. auto "
            "= the whole process may use nine tenths of the memory that is free at the start."),
        field<&C::micro_batches>("Number of micro-batches into which each batch is cut; only one at a time is in memory, and the "
                                 "result is that of the whole batch. A run doubles the number when memory runs out.")
            .min(1),
        field<&C::offload>("On a GPU, activations of at least this size (1 MB) are kept in host memory. Empty: off."),
        field<&C::cleanup_every>("Every this many steps the allocator gives free memory back to the system or the device; 0 = "
                                 "only when memory runs out, because returning and requesting memory takes time.")
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
        field<&C::max_steps>("Stop after this many steps; 0 = only by epochs.").min(0).free_on_resume(),
        field<&C::seed>("Seed of everything random."),
        field<&C::resume>(
            "auto = resume from the run folder's newest snapshot; never = start from the beginning; a path = start from that run "
            "or snapshot, and keep later snapshots in the run folder as a branch.")
            .path("auto|never")
            .free_on_resume(),
        field<&C::weights>("Start with the weights of this run, snapshot or file, and with a fresh optimiser and schedule. If "
                           "the run folder has a snapshot already, the run resumes from that.")
            .path(),
        field<&C::validate_every>("Steps between validations; 0 = validate at the end of epochs.").min(0).free_on_resume(),
        field<&C::validate_epochs>("Epochs between validations at the end of epochs, counted from the end of the first epoch.")
            .min(1)
            .free_on_resume(),
        field<&C::validate_at_start>("Also validate before the first step, for comparison.").free_on_resume(),
        field<&C::validate_batches>("Number of batches in a validation; 0 = the whole validation split.").min(0).free_on_resume(),
        field<&C::early_stop_patience>("Stop after this many validations without improvement; 0 = off.").min(0).free_on_resume(),
        field<&C::early_stop_delta>("Smallest improvement that counts for early_stop_patience.").min(0).free_on_resume(),
        field<&C::deterministic>(
            "Make runs with the same seed equal to the bit on a GPU too, resumed runs included. Steps are slower, and an "
            "operation without a deterministic form is refused. On a CPU runs are always deterministic."),
        field<&C::hang_limit>("Seconds without progress (at least 50 times the usual time) after which the run reports where it "
                              "hangs. From then on a signal to stop ends it at once. 0 = never.")
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
        field<&C::every_steps>("Steps between snapshots; 0 = only by epochs.").min(0),
        field<&C::every_epochs>("Epochs between snapshots; 0 = only by steps.").min(0),
        field<&C::keep_last>("Number of the newest snapshots to keep.").min(1),
        field<&C::keep_best>("Also keep the best by snapshot.best_metric."),
        field<&C::best_count>("Number of the best snapshots that keep_best keeps.").min(1).max(1000),
        field<&C::best_metric>("Validation metric that decides what is best, also for early stopping. Empty: the loss."),
        field<&C::best_is>("Which value of snapshot.best_metric is the best."),
        field<&C::keep_every>("Also keep every snapshot whose step is a multiple of this; 0 = off.").min(0),
        field<&C::max_lag>("Largest number of steps that training may take while a snapshot is being written; then training "
                           "waits. A crash loses at most the steps between two snapshots plus these.")
            .min(0),
        field<&C::on_error>("If a snapshot can't be written: warn and continue, or stop. If the final snapshot can't be written, "
                            "the run always fails."),
        field<&C::frozen>("Weights that are not trained: keep = each snapshot has them; leave_out = snapshots have their names "
                          "and hashes only, and the recipe loads the weights.")};
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
        field<&C::every>("Steps between log lines. Outside validations, the loss is read on the host at log lines only.").min(1),
        field<&C::line>("Format of a log line on the screen: Millrace's format, or that of the recipe's original program if the "
                        "recipe has one."),
        field<&C::tensorboard>("Write TensorBoard event files into the run folder."),
        field<&C::images>("Keep the recipe's pictures of a validation in the run folder."),
        field<&C::pictures_kept>(
            "Number of validations whose pictures are kept: the first, the newest and an even spread of those between.")
            .min(0),
        field<&C::train_metrics>("Also compute the recipe's metrics on training batches; the log line shows them as train/NAME."),
        field<&C::gpu_memory>("Add the memory in use to the log line, log.jsonl and the event files: that of the GPU's "
                              "allocator, or on a CPU that of the process."),
        field<&C::gpu_every>("Steps between extra lines with the memory in use and the GPU's utilisation; 0 = off.").min(0),
        field<&C::doctor>("Look for causes that slow the run, at log lines and once a second in the background, and report what "
                          "fixing them gains: see millrace doctor."),
        field<&C::doctor_trials>(
            "Largest share of the elapsed time for the doctor's own test steps, such as steps in another number format or with "
            "half the rows. Each is tried once; 0 = no test steps. They change no bit of the run.")
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
        field<&C::kernels>("Whether matrix products, attention, norms and convolutions on a CPU use our kernels or LibTorch's; "
                           "auto = chosen for each operation by a trial of the run's own step."),
        field<&C::tf32>(
            "Compute matrix products and convolutions in fp32 on a GPU as TF32, which rounds their factors to 10 bits and is "
            "several times as fast. auto = true if the run computes in bf16 or fp16, false in fp32, which is then exact."),
        field<&C::cudnn>("How cuDNN chooses an algorithm for a convolution on a GPU: timed = it times all algorithms once per "
                         "shape (cudnn_benchmark); rules = by its own rules; auto = timed, or rules with train.deterministic.")};
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
        field<&C::join_timeout>("Longest time that a rank waits for the others at the start.").min(1).unit("seconds"),
        field<&C::timeout>("Longest time that a rank waits for the others during the run, for instance while the first rank "
                           "makes data or saves, or when a link is cut. A rank that ends is noticed at once.")
            .min(1)
            .unit("seconds"),
        field<&C::check_every>("Steps between two comparisons of the ranks' weights; 0 = never.").min(0).unit("steps"),
        field<&C::bucket_bytes>("Largest size of gradients sent together during the backward pass; 0 = all are sent after it.")
            .min(0)
            .unit("bytes")
            .free_on_resume(),
        field<&C::compress>("Send fp32 gradients as bf16 and add them in bf16: half the bytes, for slow networks. Needs "
                            "distributed.bucket_bytes above 0."),
        field<&C::shard_optimizer>(
            "Each rank keeps the optimiser's state of its share of the parameters, updates these and sends them to the others "
            "(ZeRO stage 1). The weights are equal to the bit, and each rank needs less memory."),
        field<&C::average_every>(
            "Each rank steps with its own gradients; after this many steps, and at the end of an epoch and of "
            "the run, all ranks take the mean of their weights and optimiser state (local SGD), for slow "
            "networks. 1 = gradients are added in each step.")
            .min(1)
            .unit("steps"),
        field<&C::transport>(
            "Library that carries tensors between the ranks: auto = NCCL where each rank has a separate GPU and the "
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
        field<&C::train_it_per_s>("Fewest steps a second, between validations and snapshots; 0 = no target.").min(0).unit("1/s"),
        field<&C::validation_it_per_s>("Fewest validation batches a second; 0 = no target.").min(0).unit("1/s"),
        field<&C::samples_per_s>("Fewest training samples a second, of all ranks; 0 = no target.").min(0).unit("1/s"),
        field<&C::data_wait>("Largest share of the time in which steps wait for data; 1 = no target.").min(0).max(1),
        field<&C::gpu_busy>("Smallest share of the time in which the GPU computes; 0 = no target.").min(0).max(1)};
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
        field<&C::dir>("Run folder (--run); a run that it already holds is resumed. Empty: runs/<recipe>/<name or date-time>."),
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
        field<&C::memory>("Memory, and the time that saving it costs.").free_on_resume(),
        field<&C::optim>("Optimiser."),
        field<&C::train>("Length and order of the run."),
        field<&C::snapshot>("Saved state.").free_on_resume(),
        field<&C::log>("Log lines and event files.").free_on_resume(),
        field<&C::targets>("Targets of a run; a missed target is a finding of the doctor (log.doctor).").free_on_resume(),
        field<&C::profile>("A record of where the time of steps goes.").free_on_resume(),
        field<&C::device>("Where to run."),
        field<&C::distributed>("Several processes: millrace launch, torchrun, srun, mpirun.").free_on_resume(),
        field<&C::run>("Where the run's files go.").free_on_resume()};
  }
};

}  // namespace millrace

// config.cpp instantiates these templates once for all files, because each instantiation adds seconds to a file's compilation.
namespace millrace::config {
extern template RunConfig read<RunConfig>(const Json&);
extern template DataConfig read<DataConfig>(const Json&);
extern template RunNames read<RunNames>(const Json&);
extern template optim::OptimConfig read<optim::OptimConfig>(const Json&);
extern template Schema schema_of<RunConfig>(std::string_view);
}  // namespace millrace::config
