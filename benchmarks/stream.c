/* STREAM's four kernels on float arrays, by McCalpin's rules (1995): gcc -O3 -fopenmp stream.c
   Usage: stream BYTES_OF_AN_ARRAY WINDOWS. Prints the bytes per second of copy, scale, add and triad: the median over
   windows, each the mean of eight executions. */
#include <stdio.h>
#include <stdlib.h>
#include <omp.h>

static int ascending(const void *a, const void *b) { return (*(double *)a > *(double *)b) - (*(double *)a < *(double *)b); }

int main(int argc, char **argv) {
    size_t bytes = atoll(argv[1]), count = bytes / sizeof(float);
    int windows = atoi(argv[2]), arrays[4] = {2, 2, 3, 3};
    float *a = aligned_alloc(64, bytes), *b = aligned_alloc(64, bytes), *c = aligned_alloc(64, bytes);
    float scale = 0.41421356f; /* sqrt(2) - 1 keeps the values of a */
    double *seconds[4];
    for (int kernel = 0; kernel < 4; kernel++) seconds[kernel] = calloc(windows, sizeof(double));
#pragma omp parallel for
    for (size_t i = 0; i < count; i++) a[i] = 1.0f, b[i] = 2.0f, c[i] = 0.0f;
    for (int repetition = -1; repetition < 8 * windows; repetition++) {
        for (int kernel = 0; kernel < 4; kernel++) {
            double began = omp_get_wtime();
            if (kernel == 0) {
#pragma omp parallel for
                for (size_t i = 0; i < count; i++) c[i] = a[i];
            } else if (kernel == 1) {
#pragma omp parallel for
                for (size_t i = 0; i < count; i++) b[i] = scale * c[i];
            } else if (kernel == 2) {
#pragma omp parallel for
                for (size_t i = 0; i < count; i++) c[i] = a[i] + b[i];
            } else {
#pragma omp parallel for
                for (size_t i = 0; i < count; i++) a[i] = b[i] + scale * c[i];
            }
            if (repetition >= 0) seconds[kernel][repetition / 8] += (omp_get_wtime() - began) / 8;
        }
    }
    for (int kernel = 0; kernel < 4; kernel++) {
        qsort(seconds[kernel], windows, sizeof(double), ascending);
        printf("%.6g ", arrays[kernel] * (double)bytes / seconds[kernel][windows / 2]);
    }
    printf("%g\n", (double)a[count / 2]);
    return 0;
}
