/* Products of bytes by the matrix unit of a processor that has one (AMX): 16 × 64 by 64 × 16 at a
 * time, with the same whole sums as without. `probe.c` has asked the system for the unit. */

#if defined(__AMX_INT8__)
enum { SIDE = 16, DEPTH = 64 };

static void configure_tiles(void) {
    struct { uint8_t palette, start, none[14]; uint16_t bytes[16]; uint8_t rows[16]; } all;
    memset(&all, 0, sizeof all);
    all.palette = 1;
    for (int i = 0; i < 8; i++) all.bytes[i] = DEPTH, all.rows[i] = SIDE;
    _tile_loadconfig(&all);
    __asm__ volatile("" ::: "memory"); /* the compiler does not know that tiles read memory */
}

/* Whole sums of 32 rows (of 16 unless `pair`), as bytes `in` apart, with the outputs of a panel. */
static inline __attribute__((always_inline)) void tile_products(
    const int pair, const int8_t *x, int in, const int8_t *b, int32_t whole[][INT8_PANEL]) {
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

/* As `apply`; false where that has to. Rows past the last hold anything, and are not read. */
static int apply_amx(const Linear *w, int rows, const float *x, float *y, How how, float *room) {
    if (!w->bytes || rows < AMX_ROWS || w->in % DEPTH) return 0;
    int8_t *bytes = (int8_t *)room;
    float *steps = room + (size_t)rows * w->in / 4 + (size_t)SIDE * 2 * w->in / 4;
    int32_t whole[2 * SIDE][INT8_PANEL];
    for (int r = 0; r < rows; r++)
        steps[r] = quantize(x + (size_t)r * w->in, w->in, w->in, bytes + (size_t)r * w->in);
    configure_tiles();
    for (int p = 0; p * INT8_PANEL < w->out; p++) {
        const int8_t *b = w->bytes + (size_t)p * w->in * INT8_PANEL;
        const int left = w->out - p * INT8_PANEL, count = left < INT8_PANEL ? left : INT8_PANEL;
        for (int r = 0; r < rows; r += 2 * SIDE) {
            const int8_t *from = bytes + (size_t)r * w->in;
            if (rows - r > SIDE) tile_products(1, from, w->in, b, whole);
            else tile_products(0, from, w->in, b, whole);
            for (int i = 0; i < 2 * SIDE && r + i < rows; i++) {
                float *to = y + (size_t)(r + i) * w->out + p * INT8_PANEL;
                put_whole(w, whole[i], p * INT8_PANEL, count, steps[r + i], to, how);
            }
        }
    }
    _tile_release();
    return 1;
}
#else
static int apply_amx(const Linear *w, int rows, const float *x, float *y, How how, float *room) {
    (void)w, (void)rows, (void)x, (void)y, (void)how, (void)room;
    return 0;
}
#endif
