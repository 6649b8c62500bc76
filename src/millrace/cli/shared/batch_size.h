// data.batch_size=auto for a command that trains.
#pragma once

#include "millrace/train/run/run.h"

namespace millrace::cli {

// Replaces auto in the request's config by a number: that of the resumed run, else the largest that ran whole steps here and
// leaves sixteen batches an epoch (see find_max_batch). Prints the number and the reason. DeviceError if not even 1 fits.
void choose_batch_size(RunRequest& request);

}  // namespace millrace::cli
