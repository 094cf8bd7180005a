/* A rank in C: meets the others, trains, reports, writes a checkpoint when it is asked for one.
 * Every rank descends the same valley from a place of its own; rank 0 tells where the valley lies. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lockstep/lockstep.h>

static int fail(const char* what) {
  fprintf(stderr, "rank %d: %s: %s\n", lockstep_rank(), what, lockstep_error());
  return 1;
}

static bool save(int64_t step, double x) {
  char path[4096];
  snprintf(path, sizeof path, "%s/rank%d.txt", lockstep_checkpoint_directory(), lockstep_rank());
  FILE* file = fopen(path, "w");
  if (file == NULL) return false;
  const bool written = fprintf(file, "%" PRId64 " %.17g\n", step, x) > 0;
  return fclose(file) == 0 && written && lockstep_checkpoint(step, path);
}

int main(int count, char** arguments) {
  const int64_t steps = count > 1 ? strtoll(arguments[1], NULL, 10) : 200;
  double target = 3.0;
  lockstep_checkpoint_requested(); /* from here on this rank may be asked */
  if (lockstep_is_lockstep()) {
    if (lockstep_rank() == 0 && lockstep_set_once("target", &target, sizeof target) != LOCKSTEP_OK) return fail("set");
    if (lockstep_wait("target", 60) != LOCKSTEP_OK) return fail("wait");
    void* value;
    size_t size;
    if (lockstep_get("target", &value, &size) != LOCKSTEP_OK || size != sizeof target) return fail("get");
    memcpy(&target, value, sizeof target);
    lockstep_free(value);
    if (lockstep_barrier("start", 60) != LOCKSTEP_OK) return fail("barrier");
  }
  double x = lockstep_rank();
  for (int64_t step = 1; step <= steps; ++step) {
    const double away = x - target;
    x -= 0.1 * away;
    const struct lockstep_metric metrics[] = {{"loss", away * away}, {"samples", 1}};
    lockstep_report(step, metrics, 2);
    if (lockstep_checkpoint_requested() && !save(step, x)) return fail("checkpoint");
  }
  printf("rank %d of %d: x = %.6f\n", lockstep_rank(), lockstep_world_size(), x);
  return 0;
}
