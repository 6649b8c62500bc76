// The one include of a program that trains a module of its own: sources of samples, what composes them, and millrace::train().
// examples/own_program.cpp is a whole one.
//
// This header is for programs outside this tree: it stands above all floors, and no folder includes it.
#pragma once

#include "millrace/base/error.h"
#include "millrace/base/philox.h"
#include "millrace/core/batch.h"
#include "millrace/data/augment.h"
#include "millrace/data/compose.h"
#include "millrace/data/csv_source.h"
#include "millrace/data/folder.h"
#include "millrace/data/hdf5_source.h"
#include "millrace/data/image_source.h"
#include "millrace/data/memory_source.h"
#include "millrace/data/nifti_source.h"
#include "millrace/data/npy_source.h"
#include "millrace/data/source.h"
#include "millrace/data/token_source.h"
#include "millrace/data/window_source.h"
#include "millrace/train/run/train.h"
