// The language model for users' own programs: the model, its tokenizer, and train_model(), which has the arguments of the
// function of that name in AGI2 (the program that this recipe follows, see originals/README.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/data/files/tokenizer.h"
#include "recipes/language_model/generate.h"
#include "recipes/language_model/model.h"

namespace millrace::recipes::language_model {

struct TrainModelOptions {
  std::int64_t epochs = 10;
  std::int64_t batch_size = 4;
  double learning_rate = 1e-4;
  std::int64_t seq_len = 512;
  std::string device = "auto";
  std::string save_path = "model";  // the run folder
  std::int64_t start_epoch = 0;     // accepted and ignored, because a resumed run knows its epoch
  std::string resume_path;          // a run or snapshot to resume
  bool use_amp = true;              // true = train in bf16 if a trial finds it faster and accurate
  bool log_gpu_memory = false;
  std::int64_t num_workers = 0;  // 0 = read in the calling thread
  bool pin_memory = true;        // has an effect only on a GPU
  double val_fraction = 0.1;
  std::uint64_t seed = 0;
  bool print = true;
};

// Each list has an entry for each epoch; val_loss is NaN if there is no validation.
struct History {
  std::vector<double> train_loss;
  std::vector<double> epoch_times;  // seconds
  std::vector<double> val_loss;
};

// Trains `model` in place on text files and returns its history. The run's files are in options.save_path. Throws Error.
History train_model(std::shared_ptr<Transformer> model, std::shared_ptr<const data::Tokenizer> tokenizer,
                    const std::vector<std::string>& sources, const TrainModelOptions& options = {});

}  // namespace millrace::recipes::language_model
