// Millrace's loader and doctor as a C library, for programs in other languages; the Python package headrace calls it through
// ctypes.
//
//   headrace_loader* loader = headrace_open("{\"data\": {\"kind\": \"npy\", \"arrays\": {\"x\": \"x.npy\"}}}", NULL, 0, NULL);
//   if (loader == NULL) return fail(headrace_error());
//   headrace_batch batch;
//   int got = 0;
//   while ((got = headrace_next(loader, 1000, &batch)) == HEADRACE_BATCH || got == HEADRACE_NOT_YET) {
//     if (got == HEADRACE_NOT_YET) continue;
//     use(batch.data[0], batch.rows[0]);
//     headrace_release(batch.slot);
//   }
//   headrace_close(loader);
//
// Texts are UTF-8. A text that a function returns belongs to the library and is valid until this thread calls the library
// again. On failure a function returns NULL or HEADRACE_FAILED; headrace_error() then describes it. No function throws, sets a
// signal handler, prints, or ends the process.
//
// Threads: only one thread at a time may call the functions of a loader. headrace_release() may be called on any thread, also
// after headrace_close(). Different loaders are independent.
// Forks: a loader has threads, which a fork does not copy. In a child process its functions fail with a message, and
// headrace_release() and headrace_close() do nothing.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct headrace_loader headrace_loader;

// NOLINTNEXTLINE(readability-identifier-naming): the style of C
enum { HEADRACE_FAILED = -1, HEADRACE_END = 0, HEADRACE_BATCH = 1, HEADRACE_NOT_YET = 2 };

// A batch in host memory. `slot` owns the memory: all other members are valid until headrace_release(slot). The groups are the
// data sets of the pipeline, in the order of headrace_describe().
typedef struct {
  void* slot;
  uint64_t epoch;
  uint64_t index;               // number of the batch in its epoch, from 0
  const int64_t* rows;          // number of rows of each group; may be 0
  void* const* data;            // first byte of each field of each group; 64-byte aligned, rows contiguous
  const int64_t* const* items;  // for each group: the number of each row's sample in its data set
  uint64_t bad;                 // number of the batch's samples that could not be read; they were left out or replaced
} headrace_batch;

// A function for parts of kind "map". It reads the fields of one sample and writes the fields that it makes, in the order of the
// pipeline's JSON (`makes` sorted by name). `seed` is a function of the loader's seed, the epoch and the sample's position.
// Several reader threads call the function at once. It returns 0 for success; any other value makes the sample a bad sample.
typedef int (*headrace_function)(const void* const* fields, void* const* made, uint64_t seed, void* context);
typedef struct {
  headrace_function call;
  // Called once on any thread, before the function's first call, with {"fields": [{"name", "dtype", "shape"}], "made": [...]}.
  // May be NULL.
  void (*describe)(const char* fields, void* context);
  void* context;
} headrace_map;

// Watches the memory of batches, so that the caller can register it with a device. `taken` is called with each new piece of
// memory, which many batches will use. `given_back` is called before the piece is freed, at the latest in headrace_close(), even
// if a batch is still held. Both functions are called on any thread, one call at a time, and may not call this library.
typedef struct {
  void (*taken)(void* memory, size_t bytes, void* context);
  void (*given_back)(void* memory, size_t bytes, void* context);
  void* context;
} headrace_watch;

// Returns the version of Millrace.
const char* headrace_version(void);

// Returns this thread's latest failure: {"kind": "DataError", "what": ..., "where": ..., "next": ...}; where and next may be
// empty.
const char* headrace_error(void);

// Opens the data and starts reading. `description` is the JSON that `millrace bench loader` reads, described by its --help:
// {"data": PART, "batch_size": 16, "shuffle": true, ...}. Relative paths start at the current folder. `maps` are the functions
// of parts of kind "map", by number; they must stay valid until the loader is closed. `watch` may be NULL; its functions must
// stay valid until then too.
headrace_loader* headrace_open(const char* description, const headrace_map* maps, size_t count, const headrace_watch* watch);

// Returns the constant properties of the loader: {"groups": [{"name", "samples", "rows", "fields": [{"name", "dtype",
// "shape"}]}], "batches": number in an epoch, "samples": number in an epoch over all ranks}. `shape` is the shape of one sample,
// `rows` the number of rows of a full batch.
const char* headrace_describe(headrace_loader* loader);

// Gets the next batch in order. Returns HEADRACE_END at the end of an epoch; the next call begins the next epoch. Returns
// HEADRACE_NOT_YET, and changes nothing, if no batch is ready within `milliseconds`. Without reader threads the call itself
// reads, however long that takes.
int headrace_next(headrace_loader* loader, int64_t milliseconds, headrace_batch* batch);
void headrace_release(void* slot);

// Returns the position in the data: {"fingerprint", "content", "seed", "epoch", "next_batch", ...}. The position is that of the
// batch that headrace_next() returns next; at the end of an epoch, the beginning of the next epoch. "content" is a digest of the
// files; the first call reads part of the files for it. headrace_load_state() refuses the state of another pipeline, batch size
// or seed. It also refuses the state of other files, unless "content" is left out.
const char* headrace_state(headrace_loader* loader);
int headrace_load_state(headrace_loader* loader, const char* state);

// Drops prepared batches and begins the given epoch.
int headrace_restart(headrace_loader* loader, uint64_t epoch);

// Returns counts since the loader was opened: {"batches", "samples", "bad_samples", "wait_seconds", "read_seconds",
// "read_cpu_seconds", "readers", "buffer_bytes", "cache": {"hits", "misses", "bytes", "budget_bytes"} or null, "slow_files":
// [...]}.
const char* headrace_counters(headrace_loader* loader);

// Returns the loader's choices and their reasons: {"readers", "readers_reason", "cache_reason", "buffer_bytes", "data": [how
// files are read]}.
const char* headrace_plan(headrace_loader* loader);

// Returns the warnings and notes since the last call, oldest first: [{"kind": "warning" or "note", "text"}]; at most 100 are
// kept.
const char* headrace_messages(headrace_loader* loader);

// Stops the readers and frees the loader. Waits for running functions of `maps`, and never calls them later. Batches stay valid
// until they are released. NULL is allowed. The owner must close a loader before the process ends, because the loader's threads
// must not outlive the data that they use.
void headrace_close(headrace_loader* loader);

// --- The doctor, for training loops that are not Millrace's.

// Judges the measurements of a stretch of a script. `evidence`: JSON of doctor::Evidence (doctor/evidence.h) with the names of
// its members; any member may be left out. Returns doctor::verdict_on() for it: findings, accounts and a verdict.
const char* headrace_diagnose(const char* evidence);

// Returns {"cores": number that this process may use, "memory": {"used", "room"}, "system": counters from which a later reader
// finds out why the process ended}.
const char* headrace_machine(void);

// Samples the machine once a second, in a separate thread. `gpu`: the number of the script's GPU in CUDA, -1 = no GPU. Start the
// sampler on the loop's thread, because it measures how long that thread waits for a core. Only one thread at a time may call a
// sampler's functions. In a fork they fail, and headrace_sampler_stop() does nothing.
typedef struct headrace_sampler headrace_sampler;
headrace_sampler* headrace_sampler_start(int gpu);

// Returns {"machine": measurements since the last call (null: none yet), "evidence": members of doctor::Evidence about the time
// since the start}. The CPU time of child processes counts as the process's own.
const char* headrace_sampler_read(headrace_sampler* sampler);
const char* headrace_sampler_stop(headrace_sampler* sampler);  // like headrace_sampler_read(), but frees the sampler

#ifdef __cplusplus
}
#endif
