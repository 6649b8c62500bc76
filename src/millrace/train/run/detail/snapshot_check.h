// Checks a snapshot's record of the run itself before any of it is used.
#pragma once

#include "millrace/snapshot/snapshot.h"

namespace millrace {

// SnapshotError if the trainer's part is missing or holds something that no trainer writes. The session reads that part too.
void check_trainer_part(const snapshot::Content& content);

}  // namespace millrace
