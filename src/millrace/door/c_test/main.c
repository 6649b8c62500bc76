/* A C program reads a .npy file that it writes, in order: the header is C, and the library needs no C++ of its caller. */
#include <stdio.h>
#include <string.h>

#include "millrace/door/headrace.h"

static int failures = 0;

static void expect(int holds, const char* what) {
  printf("%s %s\n", holds ? "ok    " : "FAILED", what);
  if (!holds) ++failures;
}

static int write_npy(const char* path, int rows) {
  char header[128];
  memset(header, ' ', sizeof header);
  memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
  const int length =
      snprintf(header + 10, sizeof header - 10, "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, 3), }", rows);
  header[10 + length] = ' ';
  header[127] = '\n';
  FILE* const file = fopen(path, "wb");
  if (file == NULL) return 0;
  fwrite(header, 1, sizeof header, file);
  for (int i = 0; i < 3 * rows; ++i) {
    const float value = (float)i;
    fwrite(&value, sizeof value, 1, file);
  }
  return fclose(file) == 0;
}

int main(void) {
  expect(write_npy("c_test.npy", 10), "a file is written");
  headrace_loader* const loader =
      headrace_open("{\"data\": {\"kind\": \"npy\", \"arrays\": {\"x\": \"c_test.npy\"}}, \"batch_size\": 4, \"shuffle\": false}", NULL, 0);
  expect(loader != NULL, headrace_error());
  if (loader == NULL) return 1;
  expect(strstr(headrace_describe(loader), "\"batches\":3") != NULL, "three batches an epoch");
  int64_t rows = 0;
  float next = 0;
  int in_order = 1;
  headrace_batch batch;
  void* last = NULL;
  int got = HEADRACE_NOT_YET;
  while (got != HEADRACE_END && got != HEADRACE_FAILED) {
    got = headrace_next(loader, 1000, &batch);
    if (got != HEADRACE_BATCH) continue;
    const float* const values = batch.data[0];
    for (int64_t i = 0; i < 3 * batch.rows[0]; ++i, ++next) in_order &= values[i] == next;
    rows += batch.rows[0];
    headrace_release(last);
    last = batch.slot;
  }
  expect(got == HEADRACE_END && rows == 10 && in_order, "ten rows in order, then the end of the epoch");
  headrace_close(loader);
  expect(((const float*)batch.data[0])[0] == 24, "a batch is valid after its loader is closed");
  headrace_release(last);
  expect(headrace_open("{}", NULL, 0) == NULL && strstr(headrace_error(), "has no data") != NULL, "a mistake is said");
  expect(strlen(headrace_version()) > 0, "there is a version");
  const char* const verdict = headrace_diagnose("{\"times\": {\"steps\": 3}}");
  expect(verdict != NULL && strstr(verdict, "Too short to judge: 3 steps") != NULL, "a script is judged");
  return failures == 0 ? 0 : 1;
}
