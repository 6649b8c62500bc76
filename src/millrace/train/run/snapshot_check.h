// What a snapshot says about the run itself, checked before any of it is used.
#pragma once

#include "millrace/snapshot/snapshot.h"

namespace millrace {

// SnapshotError when the trainer's part, which the session reads too, is missing or holds what no trainer writes.
void check_trainer_part(const snapshot::Content& content);

}  // namespace millrace
