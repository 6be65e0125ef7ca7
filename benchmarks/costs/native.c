/* SPDX-License-Identifier: Apache-2.0
 *
 * The loops of loops.py by the C header alone: what is left when no Python runs. Compiled by rank.py against the
 * engine that is measured. Every function returns seconds a call, or -1 if the engine refused.
 */
#include <horovod/core.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static hvd_request describe(int kind, const char* name, float* data, const int64_t* shape) {
  hvd_request request;
  memset(&request, 0, sizeof request);
  request.struct_size = sizeof request;
  request.kind = kind;
  request.name = name;
  request.input = request.output = data;
  request.shape = shape;
  request.ndim = shape ? 1 : 0;
  request.prescale = request.postscale = 1.0;
  request.dtype = HVD_FLOAT32;
  request.reduce_op = HVD_SUM;
  request.root = request.device = -1;
  return request;
}

static double repeat(const hvd_request* request, int n, int32_t calls) {
  double start = now();
  for (int32_t i = 0; i < calls; ++i) {
    int64_t handle = 0;
    if (hvd_run(request, n, 10.0, &handle) != HVD_OK) return -1.0;
    hvd_release(handle);
  }
  return (now() - start) / calls;
}

double native_allreduce(int32_t calls) {
  static float data[1] = {1.0f};
  static const int64_t shape[1] = {1};
  hvd_request request = describe(HVD_ALLREDUCE, "native", data, shape);
  return repeat(&request, 1, calls);
}

double native_barrier(int32_t calls) {
  hvd_request request = describe(HVD_BARRIER, "native.barrier", NULL, NULL);
  return repeat(&request, 1, calls);
}

static hvd_request* some(const int64_t* counts, int32_t n) {
  hvd_request* requests = calloc((size_t)n, sizeof(hvd_request));
  for (int32_t i = 0; i < n; ++i) {
    char* name = malloc(32);
    snprintf(name, 32, "native.g%d", i);
    requests[i] = describe(HVD_ALLREDUCE, name, calloc((size_t)counts[i], sizeof(float)), counts + i);
  }
  return requests;
}

double native_many(int32_t calls, const int64_t* counts, int32_t n) {
  hvd_request* requests = some(counts, n);
  int64_t* handles = calloc((size_t)n, sizeof(int64_t));
  double start = now();
  for (int32_t call = 0; call < calls; ++call) {
    for (int32_t i = 0; i < n; ++i)
      if ((handles[i] = hvd_submit(requests + i, 1, 0, NULL, NULL, NULL)) <= 0) return -1.0;
    for (int32_t i = 0; i < n; ++i) {
      if (hvd_wait(handles[i], 10.0) != HVD_OK) return -1.0;
      hvd_release(handles[i]);
    }
  }
  return (now() - start) / calls;
}

double native_grouped(int32_t calls, const int64_t* counts, int32_t n) { return repeat(some(counts, n), n, calls); }

/* What a foreign call costs that does nothing. */
int32_t native_nothing(const void* a, int32_t b, double c, int64_t* d) {
  (void)a, (void)b, (void)c;
  *d = 1;
  return 0;
}
