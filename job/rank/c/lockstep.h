/* Talk to Lockstep from inside a training program in C, or in any language that calls C. C99; C++ has
 * lockstep/lockstep.hpp on top of this.
 *
 *     for (int64_t step = 1; step <= steps; ++step) {
 *       double loss = train_step();
 *       lockstep_report_loss(step, loss);
 *       if (step % 1000 == 0 || lockstep_checkpoint_requested()) save(step);
 *     }
 *
 * Ranks are not asked for a checkpoint at the same step: where all must save together, each calls it and rank 0
 * broadcasts its answer, or they wait for each other for ever.
 *
 * Link with `pkg-config --cflags --libs lockstep`, or in CMake with
 * `find_package(Lockstep)` and `target_link_libraries(train Lockstep::lockstep)`.
 *
 * The agent of this node listens on the Unix socket that LOCKSTEP_SOCKET names; the connection is opened at first
 * use. Without it (the program was started by hand) reports do nothing and return false, this process is rank 0
 * of 1, and the key functions return LOCKSTEP_UNAVAILABLE, because nothing can stand in for the other ranks.
 *
 * Every function may be called from any thread. Key functions, lockstep_wait() and lockstep_barrier() of one process
 * take turns: while one thread waits for a key or at a barrier, the others' wait for it. So it must not wait for what
 * another thread of the process would set. Reports never wait. A child of fork() opens its own connection. No function
 * writes to the terminal, ends the process or changes errno's meaning for the caller. Texts are UTF-8.
 *
 * The functions and types of this header stay as they are within one major version of the library. */
#ifndef LOCKSTEP_LOCKSTEP_H
#define LOCKSTEP_LOCKSTEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(LOCKSTEP_BUILDS_THE_LIBRARY)
#pragma GCC visibility push(default)
#endif

/* "0.1.0": of the library that is loaded. */
const char* lockstep_version(void);

/* ---- where this process stands --------------------------------------------------------------------------------
 * Read from the environment at the first call of any of them. Numbers that are none (a broken environment) count
 * as not set. */

/* Whether Lockstep started this process. */
bool lockstep_is_lockstep(void);
/* Over the job, and on this node; from 0. -1 in a process that starts the ranks itself (launch node): they are known
 * by RANK, PADDLE_TRAINER_ID or OMPI_COMM_WORLD_RANK and by what these launchers set beside it. Of ranks that share a
 * GPU (resources.ranks_per_gpu) LOCAL_RANK is the number of the GPU, lockstep_local_rank() the rank's own. */
int32_t lockstep_rank(void);
int32_t lockstep_world_size(void);
int32_t lockstep_local_rank(void);
int32_t lockstep_local_world_size(void);
int32_t lockstep_node_rank(void);
int32_t lockstep_nodes(void);
/* Starts of the ranks in one allocation, and allocations; from 1. With either above 1 ranks of this job ran before:
 * look for a checkpoint. */
int32_t lockstep_generation(void);
int32_t lockstep_attempt(void);
/* "" = none. They live as long as the process. */
const char* lockstep_job_id(void);
const char* lockstep_role(void);                 /* "worker", "ps", ... */
const char* lockstep_address(void);              /* of this node, proven by its agent */
const char* lockstep_checkpoint_directory(void); /* of the whole job, over attempts */

/* ---- reports: never block ------------------------------------------------------------------------------------- */

struct lockstep_metric {
  const char* name; /* [a-z][a-z0-9_]*, at most 64 long: "loss", "samples", "step_seconds", "learning_rate", ... */
  double value;     /* may be NaN or infinite */
};

/* The metrics of a finished optimizer step of this rank. `step`: finished optimizer steps, from 1.
 * False if it was dropped: no agent, one that does not read fast enough, or a name that is none. */
bool lockstep_report(int64_t step, const struct lockstep_metric* metrics, size_t count);
bool lockstep_report_loss(int64_t step, double loss);
/* What this rank does from now on: "init", "train", "eval" or "checkpoint". In the last two no steps are no hang for
 * ten times as long, unless the job has watch.hang_seconds. */
bool lockstep_phase(const char* name);
/* A checkpoint of `step` lies at `path`; call it once the file is durable. Waits a second at most for an agent that
 * is behind: unlike a report it must not be lost. */
bool lockstep_checkpoint(int64_t step, const char* path);
/* How many messages of this process were dropped. */
int64_t lockstep_dropped_reports(void);
/* True once after each request for a checkpoint: `lockstep checkpoint ID`, or the time limit is near. The first call
 * installs a handler for the signal LOCKSTEP_CHECKPOINT_SIGNAL (one that was there before is called, too); make it
 * before training starts. Every rank is asked, but not at the same step. */
bool lockstep_checkpoint_requested(void);

/* ---- keys that all ranks of a generation share ----------------------------------------------------------------- */

enum lockstep_status {
  LOCKSTEP_OK = 0,
  LOCKSTEP_INVALID = 1,     /* the input is wrong; the same call will fail again */
  LOCKSTEP_NOT_FOUND = 2,   /* no such key yet */
  LOCKSTEP_CONFLICT = 3,    /* it was set once, to another value; or this generation is over */
  LOCKSTEP_DENIED = 4,
  LOCKSTEP_EXHAUSTED = 5,   /* larger than a message, or the generation's keys are full */
  LOCKSTEP_UNAVAILABLE = 6, /* no agent answers */
  LOCKSTEP_TIMED_OUT = 7,   /* the message names what is missing */
  LOCKSTEP_CANCELLED = 8,
  LOCKSTEP_CORRUPT = 9,
  LOCKSTEP_INTERNAL = 10
};

/* What the last call of this thread that did not return LOCKSTEP_OK says; valid until the next such call. */
const char* lockstep_error(void);

/* Keys have 1 to 256 bytes, values any bytes, at most 1 MiB. */
enum lockstep_status lockstep_set(const char* key, const void* value, size_t size);
/* As lockstep_set(), but the key may never have another value; readers' agents keep it then. */
enum lockstep_status lockstep_set_once(const char* key, const void* value, size_t size);
/* Sets the key if its value is `expected`; with `expected_size` 0 only if there is no such key. `*swapped` says
 * whether it did. */
enum lockstep_status lockstep_compare_and_set(const char* key, const void* expected, size_t expected_size,
                                              const void* value, size_t size, bool* swapped);
/* `*value` is the caller's, to be freed with lockstep_free(); a zero byte that `*size` does not count follows it.
 * Untouched unless LOCKSTEP_OK. */
enum lockstep_status lockstep_get(const char* key, void** value, size_t* size);
/* Returns when the key exists, or after so many seconds; more than 24 hours, INFINITY too, count as 24 hours. */
enum lockstep_status lockstep_wait(const char* key, double seconds);
/* Adds to a counter that starts at 0; `*sum` (may be NULL) is the new value. */
enum lockstep_status lockstep_add(const char* key, int64_t delta, int64_t* sum);
/* `*deleted` (may be NULL): whether there was such a key. */
enum lockstep_status lockstep_delete(const char* key, bool* deleted);
/* Returns when every rank of the generation has called it with this name. `seconds` as in lockstep_wait(). */
enum lockstep_status lockstep_barrier(const char* name, double seconds);

void lockstep_free(void* value);

#if defined(LOCKSTEP_BUILDS_THE_LIBRARY)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
