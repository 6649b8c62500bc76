// data.batch_size=auto for a command that trains.
#pragma once

#include "millrace/train/run/run.h"

namespace millrace::cli {

// Puts a number where the request's config says auto: that of the run which goes on, else the largest that ran whole steps here
// and leaves sixteen batches an epoch (see find_max_batch). Says which, with the reason. DeviceError when not even 1 fits.
void choose_batch_size(RunRequest& request);

}  // namespace millrace::cli
