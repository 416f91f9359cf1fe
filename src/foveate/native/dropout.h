/* Dropout by random bytes, and the residual sum that it stands in. */

enum { SPAN = 512 }; /* numbers at a time */

typedef struct { /* n numbers, as floats or as bf16 */
    void *at;
    int32_t half;
} Numbers;

/* y = x + m ⊙ z · 256 / (256 − drop), m being 1 where a byte is at least `drop`; x may be NULL. */
void dropout(int64_t n, const Numbers *x, const Numbers *z, const uint8_t *bytes, int drop,
             const Numbers *y, int threads) {
    const float scale = 256.0f / (256 - drop);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t at = 0; at < n; at += SPAN) {
        const int64_t count = n - at < SPAN ? n - at : SPAN;
        float sum[SPAN] = {0}, change[SPAN];
        if (x) take(x->at, x->half, at, count, sum);
        take(z->at, z->half, at, count, change);
        for (int64_t i = 0; i < count; i++)
            sum[i] += bytes[at + i] >= drop ? change[i] * scale : 0;
        give(sum, count, y->at, y->half, at);
    }
}
