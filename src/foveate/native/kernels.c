/* What a processor does quicker without a tensor library in between. Decoding: linear maps of packed
 * weights, one step of a Transformer decoder, what a search asks of its logits; one thread and nothing
 * allocated, so that several threads may each do some rows. Training: the selective scan; attention of
 * short sequences, dropout, bias, cross-entropy, gradients of weights, which OpenMP's threads share.
 *
 * Every function has a twin in PyTorch that gives the same numbers up to the order of sums. Arrays
 * are row-major; N rows are hypotheses, M sources. */

#include "linear.h"

/* A sum over the words of small arrays and over every 1,021st of larger ones, which tells apart
 * most contents. */
int64_t checksum(int64_t count, const uint32_t *const *arrays, const int64_t *words) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t stride = words[i] <= 4096 ? 1 : 1021;
        for (int64_t at = 0; at < words[i]; at += stride)
            sum = (sum ^ arrays[i][at]) * 0x9e3779b97f4a7c15 + (sum >> 29);
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
