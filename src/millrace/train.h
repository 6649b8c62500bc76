// The one header that a program includes to train its own module: sources of samples, functions that compose them, and
// millrace::train(). examples/own_program.cpp is a complete program.
//
// This header is for programs outside this tree. It belongs to no floor of ARCHITECTURE.md, so no folder of src/ includes it.
#pragma once

#include "millrace/base/error.h"
#include "millrace/base/philox.h"
#include "millrace/core/batch.h"
#include "millrace/data/files/folder.h"
#include "millrace/data/loader/source.h"
#include "millrace/data/sources/csv_source.h"
#include "millrace/data/sources/hdf5_source.h"
#include "millrace/data/sources/image_source.h"
#include "millrace/data/sources/memory_source.h"
#include "millrace/data/sources/nifti_source.h"
#include "millrace/data/sources/npy_source.h"
#include "millrace/data/sources/token_source.h"
#include "millrace/data/sources/window_source.h"
#include "millrace/data/transforms/augment.h"
#include "millrace/data/transforms/compose.h"
#include "millrace/train/run/train.h"
