/* What a processor trains quicker without a tensor library in between: the selective scan and causal
 * convolution, RMSNorm, attention of short sequences, dropout, bias, cross-entropy, gradients of
 * weights. OpenMP's threads share their rows; sums over all rows are of groups of rows, which do not
 * depend on the number of threads.
 *
 * Every function has a twin in PyTorch that gives the same numbers up to the order of sums. Arrays
 * are row-major. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__AVX512F__) || defined(__AMX_INT8__)
#include <immintrin.h>
#endif

#ifdef __AVX512F__
enum { LANES = 16 };
#else
enum { LANES = 8 };
#endif

typedef float Lanes __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

/* max(0, x); NaN where x is. */
static inline float relu_of(float x) { return x <= 0 ? 0 : x; }

/* Σ_i x_i (2 i + 1) of each array, over all words of one that has at most 4,096 and over 64 of a
 * larger one; of several in their order. A change of one of these words always changes it. */
int64_t checksum(int64_t count, const uint32_t *const *arrays, const int64_t *words) {
    uint64_t sum = 0;
    for (int64_t n = 0; n < count; n++) {
        const uint32_t *x = arrays[n];
        const int64_t stride = words[n] <= 4096 ? 1 : words[n] / 64;
        uint64_t own = 0;
        for (int64_t i = 0; i < words[n]; i += stride) own += (uint64_t)x[i] * (2 * i + 1);
        sum = (sum ^ own) * 0x9e3779b97f4a7c15 + (sum >> 29);
    }
    return (int64_t)sum;
}

/* Whether numbers below 2^-126 count as zero in OpenMP's threads: bits 15 and 6 of their MXCSR. */
void flush_denormals(int on) {
#if defined(_OPENMP) && defined(__x86_64__)
#pragma omp parallel
    __builtin_ia32_ldmxcsr(on ? __builtin_ia32_stmxcsr() | 0x8040 : __builtin_ia32_stmxcsr() & ~0x8040);
#endif
}

#include "tiles.h"
#include "rows.h"
#include "scan.h"
#include "convolve.h"
#include "attend.h"
#include "dropout.h"
#include "bias.h"
#include "outer.h"
#include "norm.h"
