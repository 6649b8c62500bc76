// Millrace's loader and doctor as a C library, for programs in other languages; the Python package headrace calls it through
// ctypes.
//
//   headrace_loader* loader = headrace_open("{\"data\": {\"kind\": \"npy\", \"arrays\": {\"x\": \"x.npy\"}}}", NULL, 0);
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
// Texts are UTF-8. A text that a function returns belongs to the library and is valid until this thread calls the library again.
// Failure is NULL or HEADRACE_FAILED; headrace_error() then says what happened. No function throws, sets a signal handler,
// prints, or ends the process.
//
// Threads: the calls on one loader belong to one thread at a time. headrace_release() may be called on any thread, also after
// headrace_close(). Different loaders are independent.
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

// A batch in host memory. `slot` owns it: everything else is valid until headrace_release(slot). Groups are the data sets of the
// pipeline, in the order of headrace_describe().
typedef struct {
  void* slot;
  uint64_t epoch;
  uint64_t index;               // within the epoch
  const int64_t* rows;          // of each group; 0 is possible
  void* const* data;            // of each field of each group: its first byte, 64-byte aligned, rows contiguous
  const int64_t* const* items;  // of each group: the number of each row's sample in its data set
} headrace_batch;

// A function for parts of kind "map": reads the fields of one sample and writes those that it makes, in the order of the
// pipeline's JSON (`makes` sorted by name). `seed` is a function of the loader's seed, the epoch and the sample's position.
// Called on reader threads, several at once; 0 = done, another value makes it a bad sample.
typedef int (*headrace_function)(const void* const* fields, void* const* made, uint64_t seed, void* context);
typedef struct {
  headrace_function call;
  // Called once before the first call, on any thread: {"fields": [{"name", "dtype", "shape"}], "made": [...]}. May be NULL.
  void (*describe)(const char* fields, void* context);
  void* context;
} headrace_map;

// The version of Millrace.
const char* headrace_version(void);

// This thread's latest failure: {"kind": "DataError", "what": ..., "where": ..., "next": ...}; where and next may be empty.
const char* headrace_error(void);

// Opens the data and starts reading. `description` is the JSON that `millrace bench loader` reads, described by its --help:
// {"data": PART, "batch_size": 16, "shuffle": true, ...}; relative paths are seen from the current folder. `maps` are the
// functions of parts of kind "map", by number; they must stay valid until the loader is closed.
headrace_loader* headrace_open(const char* description, const headrace_map* maps, size_t count);

// What does not change: {"groups": [{"name", "samples", "rows", "fields": [{"name", "dtype", "shape"}]}], "batches": of an epoch,
// "samples": of an epoch over all ranks}. `shape` is that of one sample, `rows` those of a full batch.
const char* headrace_describe(headrace_loader* loader);

// The next batch in order, HEADRACE_END at the end of an epoch (the call after that begins the next), or HEADRACE_NOT_YET where
// no batch is there within `milliseconds`: then nothing has changed. Without reader threads the call reads, however long it
// takes.
int headrace_next(headrace_loader* loader, int64_t milliseconds, headrace_batch* batch);
void headrace_release(void* slot);

// The place in the data: {"fingerprint", "content", "seed", "epoch", "next_batch", ...}, of the batch that headrace_next()
// returns next. At the end of an epoch it is the beginning of the next. "content" is a digest of the files, which the first call
// reads in part. Loading refuses another pipeline, batch size or seed, and other files unless "content" is left out.
const char* headrace_state(headrace_loader* loader);
int headrace_load_state(headrace_loader* loader, const char* state);

// Drops prepared batches and begins that epoch.
int headrace_restart(headrace_loader* loader, uint64_t epoch);

// {"batches", "samples", "bad_samples", "wait_seconds", "read_seconds", "read_cpu_seconds", "readers", "buffer_bytes",
// "cache": {"hits", "misses", "bytes", "budget_bytes"} or null, "slow_files": [...]}, since the loader was opened.
const char* headrace_counters(headrace_loader* loader);

// What was chosen and why: {"readers", "readers_reason", "cache_reason", "buffer_bytes", "data": [how files are read]}.
const char* headrace_plan(headrace_loader* loader);

// Warnings and notes since the last call, oldest first: [{"kind": "warning" or "note", "text"}]; at most 100 are kept.
const char* headrace_messages(headrace_loader* loader);

// Stops the readers and frees the loader. Batches stay valid until they are released. NULL is allowed. Every loader must be
// closed before the process ends, by its owner: threads may not outlive what they use.
void headrace_close(headrace_loader* loader);

// --- The doctor, for training loops that are not Millrace's.

// Judges what was measured of a stretch of a script. `evidence`: JSON of doctor::Evidence (doctor/evidence.h) with the names of
// its members; all may be left out. Returns doctor::verdict_on() of it: findings, accounts and a verdict.
const char* headrace_diagnose(const char* evidence);

// {"cores": that this process may use, "memory": {"used", "room"}, "system": what tells later why the process ended}.
const char* headrace_machine(void);

// A thread that looks at the machine once a second. `gpu`: the number of the script's GPU in CUDA, -1 = it has none. Call it on
// the loop's thread: whether that thread has a core is part of what is read. The calls belong to one thread at a time; in a fork
// they fail, and stop does nothing.
typedef struct headrace_sampler headrace_sampler;
headrace_sampler* headrace_sampler_start(int gpu);

// {"machine": what was seen since the last call (null: nothing yet), "evidence": members of doctor::Evidence about the time since
// the start}. CPU time of the process's children counts as its own.
const char* headrace_sampler_read(headrace_sampler* sampler);
const char* headrace_sampler_stop(headrace_sampler* sampler);  // headrace_sampler_read() a last time; frees the sampler

#ifdef __cplusplus
}
#endif
