/* SPDX-License-Identifier: Apache-2.0 */
/* How far apart two cores are: prints the nanoseconds that a cache line takes from one to the other and back.
 *
 *     core_distance 0 1
 *
 * Cores of one cache: some 60 ns; of two: some 350. A virtual machine may be moved from the one to the other. Fails if
 * both never had a core at the same time. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

enum { kRounds = 50 };            /* between two looks at the clock */
static const double kMost = 20e6; /* nanoseconds in all */
static const double kUndisturbed = 5e3;

static _Alignas(128) atomic_long ball; /* odd: the partner's turn; negative: enough */

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static int pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  return sched_setaffinity(0, sizeof set, &set);
}

static void* partner(void* core) {
  if (pin(*(int*)core)) exit(1);
  for (;;) {
    long seen = atomic_load(&ball);
    if (seen < 0) return NULL;
    if (seen & 1) atomic_store(&ball, seen + 1);
  }
}

int main(int count, char** words) {
  if (count != 3) return 2;
  int here = atoi(words[1]), there = atoi(words[2]);
  setpriority(PRIO_PROCESS, 0, -20); /* for both, where that is allowed */
  pthread_t thread;
  if (pin(here) || pthread_create(&thread, NULL, partner, &there)) return 1;
  double best = kMost;
  long at = 0;
  for (double end = now_ns() + kMost; now_ns() < end;) {
    double start = now_ns();
    for (int i = 0; i < kRounds; ++i, at += 2) {
      atomic_store(&ball, at + 1);
      while (atomic_load(&ball) != at + 2) {
      }
    }
    double each = (now_ns() - start) / kRounds;
    if (each < best) best = each;
  }
  atomic_store(&ball, -1);
  pthread_join(thread, NULL);
  if (best > kUndisturbed) return 1;
  printf("%.0f\n", best);
  return 0;
}
