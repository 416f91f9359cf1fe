/* Dropout by random bytes, and the residual sum that it stands in. */

enum { SPAN = 512, IN_WORD = 8 }; /* numbers at a time, and those that a random word decides */

typedef struct { /* n numbers, as floats or as bf16 */
    void *at;
    int32_t half;
} Numbers;

/* The n-th random word of a seed: splitmix64 (Steele et al., 2014). */
static inline uint64_t random_word(uint64_t seed, uint64_t n) {
    uint64_t z = seed + (n + 1) * 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

/* y = x + m ⊙ z · 256 / (256 − drop), m being 1 where a byte is at least `drop`; x may be NULL. */
void dropout(int64_t n, const Numbers *x, const Numbers *z, int64_t seed, int drop,
             const Numbers *y, int threads) {
    const float scale = 256.0f / (256 - drop);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t at = 0; at < n; at += SPAN) {
        const int64_t count = n - at < SPAN ? n - at : SPAN;
        float sum[SPAN] = {0}, change[SPAN];
        uint64_t words[SPAN / IN_WORD];
        for (int i = 0; i < SPAN / IN_WORD; i++) words[i] = random_word(seed, at / IN_WORD + i);
        const uint8_t *bytes = (const uint8_t *)words;
        if (x) take(x->at, x->half, at, count, sum);
        take(z->at, z->half, at, count, change);
        for (int64_t i = 0; i < count; i++)
            sum[i] += bytes[i] >= drop ? change[i] * scale : 0;
        give(sum, count, y->at, y->half, at);
    }
}
