/* bf16: the upper half of a float. */

static void widen(const uint16_t *restrict half, int64_t size, float *restrict x) {
    for (int64_t i = 0; i < size; i++) {
        uint32_t bits = (uint32_t)half[i] << 16;
        memcpy(x + i, &bits, 4);
    }
}

/* To the nearest, of two the even one; what is no number stays none. */
static void narrow(const float *restrict x, int64_t size, uint16_t *restrict half) {
    int64_t i = 0;
#ifdef __AVX512BF16__
    for (; i + 16 <= size; i += 16) { /* as below, but for numbers below 1e-38, which become 0 */
        const __m256bh some = _mm512_cvtneps_pbh(_mm512_loadu_ps(x + i));
        memcpy(half + i, &some, sizeof some);
    }
#endif
    for (; i < size; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, 4);
        uint32_t none = (bits & 0x7fffffff) > 0x7f800000;
        half[i] = (bits + (none ? 0x8000 : 0x7fff + (bits >> 16 & 1))) >> 16 | none << 6;
    }
}

/* Some numbers of an array of floats, or of bf16 where it is half, as floats; and back. */
static void take(const void *from, int half, int64_t at, int64_t count, float *to) {
    if (half) widen((const uint16_t *)from + at, count, to);
    else memcpy(to, (const float *)from + at, count * sizeof(float));
}

static void give(const float *from, int64_t count, void *to, int half, int64_t at) {
    if (half) narrow(from, count, (uint16_t *)to + at);
    else memcpy((float *)to + at, from, count * sizeof(float));
}
