/* Products of whole numbers by the matrix unit of a processor that has one (AMX): 16 × 64 bytes by
 * 64 × 16 at a time, the same sums as without. */

#if defined(__AMX_INT8__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>

enum { SIDE = 16, DEPTH = 64, FEW = 8, TILE_DATA = 18, ASK = 0x1023 };

/* Linux lends the unit to whom asks, once for the whole process. */
static int has_tiles(void) {
    static int known = -1;
    if (known < 0) known = syscall(SYS_arch_prctl, ASK, TILE_DATA) == 0;
    return known;
}

static void set_up_tiles(void) {
    struct { uint8_t palette, start, none[14]; uint16_t bytes[16]; uint8_t rows[16]; } all;
    memset(&all, 0, sizeof all);
    all.palette = 1;
    for (int i = 0; i < 8; i++) all.bytes[i] = DEPTH, all.rows[i] = SIDE;
    _tile_loadconfig(&all);
}

/* Σ_k x_k w_k of 32 rows, as bytes `in` apart, or of 16, with the 32 outputs of a panel. */
static inline __attribute__((always_inline)) void tile_products(
    const int pair, const uint8_t *x, int in, const int8_t *b, int32_t whole[][INT8_PANEL]) {
    const int far = INT8_PANEL * 4, out = INT8_PANEL * sizeof(int32_t);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int k = 0; k < in; k += DEPTH, x += DEPTH, b += DEPTH * INT8_PANEL) {
        _tile_loadd(4, x, in);
        _tile_loadd(6, b, far);
        _tile_loadd(7, b + far / 2, far);
        _tile_dpbusd(0, 4, 6);
        _tile_dpbusd(1, 4, 7);
        if (!pair) continue;
        _tile_loadd(5, x + (size_t)SIDE * in, in);
        _tile_dpbusd(2, 5, 6);
        _tile_dpbusd(3, 5, 7);
    }
    _tile_stored(0, whole[0], out);
    _tile_stored(1, whole[0] + SIDE, out);
    _tile_stored(2, whole[SIDE], out);
    _tile_stored(3, whole[SIDE] + SIDE, out);
}

/* As `apply` does; false where that has to. */
static int apply_tiles(const Linear *w, int rows, const float *x, float *y, How how, float *room) {
    if (!w->scale || rows < FEW || w->in % DEPTH || !has_tiles()) return 0;
    uint8_t *bytes = (uint8_t *)room; /* those of rows that are not there are anything */
    float *steps = room + (size_t)rows * w->in, sums[INT8_PANEL];
    int32_t whole[2 * SIDE][INT8_PANEL];
    for (int r = 0; r < rows; r++)
        steps[r] = bytes_of(x + (size_t)r * w->in, w->in, bytes + (size_t)r * w->in);
    set_up_tiles();
    __asm__ volatile("" ::: "memory"); /* the compiler does not know that tiles read it */
    for (int p = 0; p * INT8_PANEL < w->out; p++) {
        const int8_t *b = (const int8_t *)w->weight + (size_t)p * w->in * INT8_PANEL;
        const int left = w->out - p * INT8_PANEL, count = left < INT8_PANEL ? left : INT8_PANEL;
        for (int r = 0; r < rows; r += 2 * SIDE) {
            const uint8_t *from = bytes + (size_t)r * w->in;
            if (rows - r > SIDE) tile_products(1, from, w->in, b, whole);
            else tile_products(0, from, w->in, b, whole);
            for (int i = 0; i < 2 * SIDE && r + i < rows; i++) {
                worth(w, p, whole[i], steps[r + i], sums);
                put(y + (size_t)(r + i) * w->out + p * INT8_PANEL, sums, count, how);
            }
        }
    }
    _tile_release();
    return 1;
}
#else
static int apply_tiles(const Linear *w, int rows, const float *x, float *y, How how, float *room) {
    return 0;
}
#endif
