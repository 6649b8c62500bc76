// The one header that a recipe's author includes.
//
// A recipe defines what is learned from which data: a config, a class derived from Recipe, and an Entry that names them.
// `millrace new NAME` writes a complete one. In the order in which a recipe is written:
//
//   what                                            where                        names
//   keys of your own: help, ranges, flags           config/field.h               config::field, min, max, size
//   other names of keys, words of other programs    train/recipe/foreign_options.h accepted_word accepted_text
//   samples computed or composed                    data/transforms/compose.h    generate map subset concat repeat take
//   samples from arrays in memory                   data/sources/memory_source.h memory_array MemorySource
//   samples from tables, arrays, pictures, volumes, data/sources/csv_source.h npy_source.h hdf5_source.h image_source.h
//     texts, series                                   nifti_source.h token_source.h window_source.h
//   folders of files, one a sample                  data/files/folder.h data/sources/file_source.h   FileSource
//   augmentation by the reader threads              data/transforms/augment.h    augment random_crop random_flip noise normalise
//   random numbers of a sample, of a batch's rows   base/philox.h nn/noise.h     Philox make_key normal_rows
//   random numbers of a layer of your own           core/random.h                RandomScope RowScope
//   data, model, losses, metrics, pictures          train/recipe/recipe.h        Recipe Objective Facts Context
//   batches, sums with counts, saved state          core/batch.h                 Batch Loss LossTerm State
//   layers                                          LibTorch                     torch::nn
//   layers that are faster here, and PCA            nn/functional.h batch_norm.h volume.h stencil.h residual.h decoder.h pca.h
//   parts that may be recomputed to save memory     memory/block.h               memory::block
//   losses                                          nn/losses.h                  mean_squared_error mean_absolute_error
//                                                   nn/cross_entropy.h           CrossEntropy
//   metrics                                         metrics/board.h              add_regression add_classification add_mean
//   pictures                                        picture/draw.h               curves maps matrix histograms images
//   a tensor's values as plain numbers              core/host_values.h           host_values
//   errors in three parts: what, where, what next   base/error.h                 DataError RowError
//   long work that a signal ends                    system/stop.h                stop_if_signalled
//   a recipe's registration for the command line    train/recipe/entry.h         Entry entry_of
//   weights of a file into a module, frozen parts   nn/weights.h                 nn::load_weights nn::Frozen
//   weights of a run, as tensors                    train/assembly/weights.h     Weights load_weights
//   a command of your own, with a trained model     config/arguments.h train/run/loaded.h Arguments load_for_inference
//   the program: one line                           cli/main.h                   cli_main
//
// Anything else has a header in the folders next to this one: texts for people (base/format.h), tables (format/csv.h), weights in
// safetensors (format/safetensors.h), and more.
//
// A program without a recipe trains its own module with millrace::train (millrace/train.h).
//
// This header is for programs outside this tree. It belongs to no floor of ARCHITECTURE.md, so no folder of src/ includes it.
// Compiling LibTorch's layers takes ten seconds; with a precompiled header (as `millrace new` writes it) they are compiled once.
#pragma once

#include <torch/nn/modules.h>

#include "millrace/base/error.h"
#include "millrace/base/philox.h"
#include "millrace/cli/main.h"
#include "millrace/config/arguments.h"
#include "millrace/config/field.h"
#include "millrace/core/batch.h"
#include "millrace/core/host_values.h"
#include "millrace/core/random.h"
#include "millrace/data/files/folder.h"
#include "millrace/data/loader/source.h"
#include "millrace/data/sources/csv_source.h"
#include "millrace/data/sources/file_source.h"
#include "millrace/data/sources/hdf5_source.h"
#include "millrace/data/sources/image_source.h"
#include "millrace/data/sources/memory_source.h"
#include "millrace/data/sources/nifti_source.h"
#include "millrace/data/sources/npy_source.h"
#include "millrace/data/sources/token_source.h"
#include "millrace/data/sources/window_source.h"
#include "millrace/data/transforms/augment.h"
#include "millrace/data/transforms/compose.h"
#include "millrace/memory/block.h"
#include "millrace/metrics/board.h"
#include "millrace/nn/batch_norm.h"
#include "millrace/nn/clamp.h"
#include "millrace/nn/cross_entropy.h"
#include "millrace/nn/decoder.h"
#include "millrace/nn/functional.h"
#include "millrace/nn/losses.h"
#include "millrace/nn/noise.h"
#include "millrace/nn/pca.h"
#include "millrace/nn/residual.h"
#include "millrace/nn/stencil.h"
#include "millrace/nn/volume.h"
#include "millrace/nn/weights.h"
#include "millrace/picture/draw.h"
#include "millrace/system/stop.h"
#include "millrace/train/assembly/weights.h"
#include "millrace/train/recipe/config.h"
#include "millrace/train/recipe/entry.h"
#include "millrace/train/recipe/foreign_options.h"
#include "millrace/train/recipe/recipe.h"
#include "millrace/train/run/loaded.h"
