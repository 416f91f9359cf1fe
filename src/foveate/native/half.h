/* bf16: the upper half of a float. */

static void widen(const uint16_t *restrict half, int64_t size, float *restrict x) {
    for (int64_t i = 0; i < size; i++) {
        uint32_t bits = (uint32_t)half[i] << 16;
        memcpy(x + i, &bits, 4);
    }
}

/* To the nearest, of two the even one; what is no number stays none. */
static void narrow(const float *restrict x, int64_t size, uint16_t *restrict half) {
    for (int64_t i = 0; i < size; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, 4);
        uint32_t none = (bits & 0x7fffffff) > 0x7f800000;
        half[i] = (bits + (none ? 0x8000 : 0x7fff + (bits >> 16 & 1))) >> 16 | none << 6;
    }
}
