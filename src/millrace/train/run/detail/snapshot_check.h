// Checks the trainer's part of a snapshot before any of it is used.
#pragma once

#include "millrace/snapshot/snapshot.h"

namespace millrace {

// Throws SnapshotError if the trainer's part is missing or has values that no trainer writes.
void check_trainer_part(const snapshot::Content& content);

}  // namespace millrace
