/* Preloaded into a server: adds the microseconds in the file $CLOCK_AHEAD, a 64-bit integer, to the time of day. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *ahead_us;

__attribute__((constructor)) static void map(void) {
  int file = open(getenv("CLOCK_AHEAD"), O_RDONLY | O_CLOEXEC);
  void *found = mmap(NULL, sizeof *ahead_us, PROT_READ, MAP_SHARED, file, 0);
  if (file < 0 || found == MAP_FAILED)
    abort();
  close(file);
  ahead_us = found;
}

static int64_t now_us(void) {
  struct timespec real;
  syscall(SYS_clock_gettime, CLOCK_REALTIME, &real);
  return real.tv_sec * 1000000LL + real.tv_nsec / 1000 + (ahead_us ? *ahead_us : 0);
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  int64_t us = now_us();
  now->tv_sec = us / 1000000;
  now->tv_usec = us % 1000000;
  return 0;
}

time_t time(time_t *now) {
  time_t s = now_us() / 1000000;
  if (now)
    *now = s;
  return s;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  if (clock != CLOCK_REALTIME)
    return (int)syscall(SYS_clock_gettime, clock, now);
  int64_t us = now_us();
  now->tv_sec = us / 1000000;
  now->tv_nsec = us % 1000000 * 1000;
  return 0;
}
