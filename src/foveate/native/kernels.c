/* What a processor does quicker without a tensor library in between. Decoding: linear maps of packed
 * weights, one step of a Transformer decoder, what a search asks of its logits; one thread and nothing
 * allocated, so that several threads may each do some rows. Training: the selective scan; attention of
 * short sequences, dropout, bias, cross-entropy, gradients of weights, which OpenMP's threads share.
 *
 * Every function has a twin in PyTorch that gives the same numbers up to the order of sums. Arrays
 * are row-major; N rows are hypotheses, M sources. */

#include "linear.h"

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

#include "rows.h"
#include "scan.h"
#include "attend.h"
#include "dropout.h"
#include "bias.h"
#include "outer.h"
#include "layers.h"
#include "step.h"
#include "encode.h"
