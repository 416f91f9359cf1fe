/* Dropout by random bytes, and the residual sum that it stands in. */

enum { SPAN = 512 }; /* numbers at a time */

typedef struct { /* n numbers, as floats or as bf16 */
    void *at;
    int32_t half;
} Numbers;

static void read_span(const Numbers *from, int64_t at, int64_t count, float *to) {
    if (from->half) widen((uint16_t *)from->at + at, count, to);
    else memcpy(to, (float *)from->at + at, count * sizeof(float));
}

/* y = x + m ⊙ z · 256 / (256 − drop), m being 1 where a byte is at least `drop`; x may be NULL. */
void dropout(int64_t n, const Numbers *x, const Numbers *z, const uint8_t *bytes, int drop,
             const Numbers *y, int threads) {
    const float scale = 256.0f / (256 - drop);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t at = 0; at < n; at += SPAN) {
        const int64_t count = n - at < SPAN ? n - at : SPAN;
        float sum[SPAN] = {0}, change[SPAN];
        if (x) read_span(x, at, count, sum);
        read_span(z, at, count, change);
        for (int64_t i = 0; i < count; i++)
            sum[i] += bytes[at + i] >= drop ? change[i] * scale : 0;
        if (y->half) narrow(sum, count, (uint16_t *)y->at + at);
        else memcpy((float *)y->at + at, sum, count * sizeof(float));
    }
}
