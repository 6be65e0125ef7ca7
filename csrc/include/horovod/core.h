/* SPDX-License-Identifier: Apache-2.0
 *
 * The one contract between the engine and everything above it.
 *
 * A process holds at most one engine. Python reaches these functions through ctypes, and the few of every step through
 * csrc/glue/python; TensorFlow kernels, XLA handlers and MXNet callbacks call them directly. Nothing here names a
 * framework.
 *
 *   hvd_start -> hvd_submit -> (hvd_poll | hvd_wait | done callback) -> hvd_result -> hvd_release
 *
 * Every function is safe to call from any thread. Functions that can fail return a negative
 * hvd_status (or store one), and hvd_last_error() then holds the reason for the calling thread.
 */
#ifndef HOROVOD_CORE_H_
#define HOROVOD_CORE_H_

#include <stdint.h>

#if defined(__cplusplus)
extern "C" {
#endif

#define HVD_API __attribute__((visibility("default")))
#define HVD_API_VERSION 5

/* Error classes; skins map them to their framework's exception types. */
enum hvd_status {
  HVD_OK = 0,
  HVD_INVALID = -1,      /* bad argument: seen locally, nothing was sent                     */
  HVD_PRECONDITION = -2, /* ranks disagree on a tensor, or the engine is not initialised      */
  HVD_ABORTED = -3,      /* the operation was refused                                        */
  HVD_UNKNOWN = -4,      /* a peer died, the transport failed, or the job was shut down       */
  HVD_TIMEOUT = -5       /* hvd_wait only: not done yet                                      */
};

enum hvd_kind {
  HVD_ALLREDUCE = 0,
  HVD_ALLGATHER = 1,
  HVD_BROADCAST = 2,
  HVD_JOIN = 3,
  HVD_ALLTOALL = 4,
  HVD_BARRIER = 5,
  HVD_REDUCESCATTER = 6
};

enum hvd_dtype {
  HVD_UINT8 = 0,
  HVD_INT8 = 1,
  HVD_UINT16 = 2,
  HVD_INT16 = 3,
  HVD_INT32 = 4,
  HVD_INT64 = 5,
  HVD_FLOAT16 = 6,
  HVD_FLOAT32 = 7,
  HVD_FLOAT64 = 8,
  HVD_BOOL = 9,
  HVD_BFLOAT16 = 10,
  HVD_UINT32 = 11,
  HVD_UINT64 = 12
};

enum hvd_reduce_op { HVD_AVERAGE = 0, HVD_SUM = 1, HVD_ADASUM = 2, HVD_MIN = 3, HVD_MAX = 4, HVD_PRODUCT = 5 };

/* ---------------------------------------------------------------- the world and its links -- */

/* Who is in the job. Filled by the bootstrap; copied by hvd_start. */
typedef struct hvd_world {
  uint32_t struct_size;
  int32_t rank, size;
  int32_t n_hosts;
  uint32_t generation;           /* which life of the job's world this is; shown in errors      */
  const int32_t* host_of_rank;   /* [size]  host index of each rank; host 0 holds rank 0       */
  const char* const* host_names; /* [n_hosts] as shown in errors, e.g. "node7"                 */
  int32_t shm_fd;                /* memory shared by the ranks of this host; -1 if alone on it  */
  const int32_t* doorbell_fds;   /* [local_size] eventfds in local-rank order; NULL if alone    */
} hvd_world;

/* An open, authenticated, blocking stream socket to another rank. The engine owns fd from then on. */
enum hvd_link_kind {
  HVD_LINK_CONTROL = 0,  /* host leader <-> host leader, edges of the tree to rank 0           */
  HVD_LINK_WATCH = 1,    /* liveness: local rank <-> its leader, and leader <-> leader          */
  HVD_LINK_DATA_OUT = 2, /* bytes from me to the same column of the host 2^hop further          */
  HVD_LINK_DATA_IN = 3,  /* bytes to me from the same column of the host 2^hop before           */
  HVD_LINK_QUICK = 4     /* host leader <-> host leader, each two of a few hosts: small calls   */
};

typedef struct hvd_link {
  int32_t kind;        /* hvd_link_kind                                                       */
  int32_t peer;        /* global rank at the other end                                        */
  int32_t process_set; /* 0 but for data links                                                */
  int32_t hop;         /* data links: k in distance 2^k; else 0                                */
  int32_t dial;        /* 1: this side connects, 0: this side accepts                          */
  int32_t fd;          /* open socket, -1 in a plan                                            */
  uint8_t key[32];     /* known to the two ends of this connection alone; zero in a plan       */
} hvd_link;

/* The links this rank needs for a process set (members sorted by rank; id 0 also yields the control,
 * watch and quick links). Pure function of its arguments. Returns the count; writes at most cap. A member
 * of no link-needing set gets 0. A DATA_OUT at one end is the DATA_IN (same hop) at the other. */
HVD_API int32_t hvd_plan_links(const hvd_world* world, const int32_t* members, int32_t n_members, int32_t process_set,
                               hvd_link* out, int32_t cap);

/* Creates the shared memory of a host with local_size ranks and returns its descriptor (an unnamed
 * memfd, close-on-exec: nothing to clean up), or a negative hvd_status. */
HVD_API int32_t hvd_shm_create(int32_t local_size);
/* A close-on-exec, non-blocking eventfd for one rank's doorbell. */
HVD_API int32_t hvd_doorbell_create(void);

/* ------------------------------------------------------------------------------ lifecycle -- */

HVD_API int32_t hvd_api_version(void);
/* Settings by the names of the settings table, e.g. ("fusion_threshold", "67108864"). They take effect
 * at the next hvd_start; the few that may change while running say so in the table. */
HVD_API int32_t hvd_configure(const char* name, const char* value);
/* Starts the engine; returns when this rank is ready. Takes ownership of every descriptor passed. */
HVD_API int32_t hvd_start(const hvd_world* world, const hvd_link* links, int32_t n_links);
/* Tells every rank to stop, fails what is outstanding, joins the threads. Idempotent. reason: why this rank
 * leaves, e.g. "ValueError: no such file (train.py:41)", for the errors of the others; NULL: in good order. */
HVD_API int32_t hvd_stop(const char* reason);
/* 1 while started (also after a peer's shutdown or death, until hvd_stop), 0 otherwise. */
HVD_API int32_t hvd_is_running(void);
/* HVD_OK while the job goes on; otherwise the status that every new request gets, e.g. because a rank died. */
HVD_API int32_t hvd_check(void);
/* Fails everything everywhere with this reason, as a dead rank would. */
HVD_API int32_t hvd_abort(const char* reason);
/* Called before hvd_start when the user wants data over MPI: the path of the MPI library (already loaded) and
 * a communicator of our own, in which every rank has its global rank. HVD_INVALID: calls are missing there. */
HVD_API int32_t hvd_mpi_attach(const char* library_path, uint64_t communicator);

/* -1 when not running. */
HVD_API int32_t hvd_rank(void);
HVD_API int32_t hvd_size(void);
HVD_API int32_t hvd_local_rank(void);
HVD_API int32_t hvd_local_size(void);
HVD_API int32_t hvd_cross_rank(void);
HVD_API int32_t hvd_cross_size(void);
HVD_API int32_t hvd_is_homogeneous(void);

/* ----------------------------------------------------------------------------- process sets -- */

/* Collective over all ranks: registers the set and returns its id (> 0), the same everywhere.
 * HVD_INVALID: bad ranks or already registered; HVD_PRECONDITION: ranks disagree. On several hosts
 * the caller then opens the links of hvd_plan_links(id) and attaches them before first use. */
HVD_API int32_t hvd_add_process_set(const int32_t* ranks, int32_t n);
HVD_API int32_t hvd_attach_links(const hvd_link* links, int32_t n_links);
/* Collective over all ranks. HVD_OK, or HVD_INVALID for an unknown id or 0. */
HVD_API int32_t hvd_remove_process_set(int32_t id);
/* Number of members, or HVD_INVALID; writes at most cap global ranks, sorted. */
HVD_API int32_t hvd_process_set_ranks(int32_t id, int32_t* ranks, int32_t cap);
/* Number of registered sets (the global one included); writes at most cap ids. */
HVD_API int32_t hvd_process_set_ids(int32_t* ids, int32_t cap);

/* --------------------------------------------------------------------------------- requests -- */

/* Called when the size of an output becomes known (allgather, alltoall, reducescatter) and the request
 * gave no output. Returns memory for the output, or NULL to fail the operation. index is the request's
 * place in its group. Runs on an engine thread, which must not be blocked. */
typedef void* (*hvd_alloc_fn)(void* context, int32_t index, const int64_t* shape, int32_t ndim);
/* Called once per submission when it is done, with an hvd_status and its text (valid during the call).
 * hvd_result works inside it. Runs on an engine thread: do not block, do not call hvd_wait. */
typedef void (*hvd_done_fn)(void* context, int64_t handle, int32_t status, const char* error);

/* One tensor of one collective. Zero the struct, then fill in what the kind needs. The engine copies the
 * struct, the name, the shape and the splits; input and output must stay valid until completion. */
typedef struct hvd_request {
  uint32_t struct_size;  /* sizeof(hvd_request)                                              */
  int32_t kind;          /* hvd_kind                                                        */
  const char* name;      /* matched across ranks within the process set                      */
  const void* input;     /* dense memory; may equal output (in place)                        */
  void* output;          /* NULL: alloc is asked, or the engine owns the memory              */
  const int64_t* shape;  /* [ndim] of input                                                  */
  const int64_t* splits; /* alltoall: rows for each member, NULL = even                      */
  double prescale;       /* allreduce, reducescatter: 1.0 for none                           */
  double postscale;
  int32_t ndim;
  int32_t dtype;       /* hvd_dtype                                                         */
  int32_t reduce_op;   /* hvd_reduce_op                                                     */
  int32_t root;        /* broadcast: global rank                                            */
  int32_t process_set; /* 0 = all ranks                                                     */
  int32_t n_splits;
  int32_t device;     /* -1 = host memory, else the number of a CUDA device of this process   */
  int32_t priority;   /* reserved: higher first among equals                                  */
  void* ready_event;  /* device: a CUevent after which the input is there; NULL: the engine   */
                      /* records one of its own on `stream` now                               */
  void* stream;       /* device: the CUstream the caller works on; NULL = the default stream   */
  int32_t wire_dtype; /* allreduce on a device: HVD_FLOAT16 or HVD_BFLOAT16 to travel in; 0    */
} hvd_request;

enum hvd_submit_flags {
  HVD_WILL_WAIT = 1,    /* the caller waits at once: skip waking the background thread           */
  HVD_AUTO_RELEASE = 2, /* release the handle by itself after the done callback                */
  HVD_GROUP = 4,        /* atomic group even when n == 1                                        */
  HVD_IN_STREAM = 8,    /* device: hvd_wait_stream with the request's stream follows at once, so */
                        /* that the work may as well be put on that stream                      */
  HVD_APART = 16        /* n > 1 is no group: each is matched by its own name, whatever other    */
                        /* ranks submit it with; only the handle is one                          */
};

/* Submits n requests; n > 1 makes an atomic group: none runs until all are ready on all ranks.
 * Returns a handle > 0 that completes when all n have, or a negative hvd_status. */
HVD_API int64_t hvd_submit(const hvd_request* requests, int32_t n, uint32_t flags, hvd_alloc_fn alloc, hvd_done_fn done,
                           void* context);
/* Submit and wait in one call: hvd_wait, or for device memory hvd_wait_stream with the first request's stream.
 * Returns the status, HVD_TIMEOUT: wait again. The handle, to be released, is stored before the wait; 0: the submission
 * itself was refused. */
HVD_API int32_t hvd_run(const hvd_request* requests, int32_t n, double timeout_s, int64_t* handle);

/* The same for requests whose outputs are the caller's own memory: nothing is left to be released. 0: done. Positive:
 * not done after timeout_s (0: it was not done at once), this is the handle to finish, where the caller then waits for
 * a device as well. Negative: the status. */
HVD_API int64_t hvd_call(const hvd_request* requests, int32_t n, double timeout_s);

/* 1 done, 0 not yet, HVD_INVALID unknown handle. */
HVD_API int32_t hvd_poll(int64_t handle);
/* Waits up to timeout_s (< 0: for ever) and returns the operation's status, HVD_TIMEOUT, or HVD_INVALID
 * with "unknown handle". On failure hvd_last_error() holds the text. */
HVD_API int32_t hvd_wait(int64_t handle, double timeout_s);
/* hvd_wait, and hvd_release unless it returns HVD_TIMEOUT. */
HVD_API int32_t hvd_finish(int64_t handle, double timeout_s);

/* Device memory. A submission is carried out by the device itself, in order with the caller's stream: it begins after
 * ready_event (or what was on `stream` at hvd_submit), and hvd_wait_stream puts it before whatever the stream is given
 * from then on. The caller waits until the work is enqueued, not for the device. hvd_poll and hvd_wait are for the
 * host: they look at the device. The done callback comes when the work is enqueued. The memory must stay valid until
 * the device is done. Timeouts and results as in hvd_wait. */
HVD_API int32_t hvd_wait_stream(int64_t handle, void* stream, double timeout_s);
/* Copies output `index`, where it is the engine's own device memory, to `to` in the order of the stream (which must
 * wait for the handle already), after which the engine uses its memory again. */
HVD_API int32_t hvd_copy_output(int64_t handle, int32_t index, void* to, void* stream);

typedef struct hvd_output {
  void* data;            /* the request's output, alloc's memory, or engine-owned until release */
  const int64_t* shape;  /* valid until release                                              */
  const int64_t* splits; /* alltoall: received rows from each member                          */
  int32_t ndim;
  int32_t n_splits;
  int64_t value; /* join: the rank that joined last                                   */
} hvd_output;
/* Output `index` of a completed submission. */
HVD_API int32_t hvd_result(int64_t handle, int32_t index, hvd_output* out);
/* Moves ownership of an engine-owned output to the caller, who frees it with hvd_free. */
HVD_API void* hvd_take(int64_t handle, int32_t index);
/* Outputs from this size on, in bytes, are worth an hvd_allocate: their memory is kept when it is freed. */
enum hvd_output_sizes { HVD_LARGE_OUTPUT = 4194304 };
/* Memory of the host for an output, 64-byte aligned, from what is kept of freed ones if it can; NULL: there is none.
 * Freed with hvd_free, also after hvd_stop. */
HVD_API void* hvd_allocate(int64_t bytes);
/* Lets go of what hvd_take or hvd_allocate gave; NULL is fine. */
HVD_API void hvd_free(void* data);
/* Forgets the handle and frees what the engine owns for it. Safe before completion. */
HVD_API void hvd_release(int64_t handle);

/* ------------------------------------------------------------------------------ observation -- */

/* Text of the last failure seen by the calling thread. */
HVD_API const char* hvd_last_error(void);
/* Chrome-trace timeline, called on every rank: rank 0 writes to path, rank 3 to "trace.rank3.json" for "trace.json". */
HVD_API int32_t hvd_timeline_start(const char* path, int32_t mark_cycles);
HVD_API int32_t hvd_timeline_stop(void);
/* Whether a timeline is being written. Cheap. */
HVD_API int32_t hvd_timeline_active(void);
/* For the timeline: the caller copied the tensor of this name before it submitted it (after = 0), or when it had the
 * result (1). began, ended: seconds of CLOCK_MONOTONIC. */
HVD_API void hvd_copied(const char* name, int32_t after, double began, double ended);
/* Counters as a JSON object, e.g. {"batches": 12, "tensors": 161, ...}. Returns the length needed. */
HVD_API int64_t hvd_metrics(char* buffer, int64_t cap);
/* What this rank does now, as a JSON object: {"state": "idle" (nothing is outstanding: the script computes), "waiting"
 * or "working", "name", "kind", "since_s": 1.2, "missing": [3] (as far as this rank knows), "queue": 4}. Returns the
 * length needed. */
HVD_API int64_t hvd_now(char* buffer, int64_t cap);
/* The flight recorder, as a JSON array: the last 1000 collectives of this rank, oldest first, each with "seq", "name",
 * "kind", "dtype", "shape", "bytes", "process_set", "state" ("queued", "announced", "running", "done" or "failed"),
 * "queued_us", "ready_us", "started_us", "ended_us" (microseconds since 1970, 0: not yet), "last_rank" (who was ready
 * last, -1: unknown) and "waited_us". Returns the length needed. */
HVD_API int64_t hvd_recent(char* buffer, int64_t cap);
/* Marks this moment. NULL: a step of the training is done; steps are counted and timed. Else a text for the timeline.
 */
HVD_API int32_t hvd_mark(const char* text);
/* What was found for GPUs and which way their tensors go, as a JSON object; "{}" before the first GPU tensor. Returns
 * the length needed. */
HVD_API int64_t hvd_device_report(char* buffer, int64_t cap);
/* Called (on a helper thread) when the stall watch asks this rank where it is; writes a line such as
 * "train.py:41 in step", then the stacks of all threads, and returns their length. NULL to clear. */
typedef int32_t (*hvd_where_fn)(char* buffer, int32_t cap);
HVD_API void hvd_set_where(hvd_where_fn where);

#if defined(__cplusplus)
}
#endif

#endif /* HOROVOD_CORE_H_ */
