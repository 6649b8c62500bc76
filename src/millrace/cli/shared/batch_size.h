// Chooses the batch size for data.batch_size=auto, for commands that train.
#pragma once

#include "millrace/train/run/run.h"

namespace millrace::cli {

// Replaces data.batch_size=auto in the request's config by a number. If the request resumes a run, the number is the batch size
// of that run. Otherwise the number is the largest batch size with which a whole step fits into memory and an epoch has at least
// sixteen batches (see find_max_batch). Prints the number and the reason. Throws DeviceError if not even a batch of 1 fits.
void choose_batch_size(RunRequest& request);

}  // namespace millrace::cli
