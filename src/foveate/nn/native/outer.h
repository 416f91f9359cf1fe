/* Σ_n g_n x_nᵀ and Σ_n g_n of rows in bf16, the gradients of a linear map's weight and bias, by the
 * matrix unit of a processor that has one (AMX); sums are floats.
 *
 * A tile of g holds 16 of its columns with 32 rows n each, one of x 16 pairs of rows n of 16 columns:
 * both are made of two neighbouring rows, whose numbers come to lie in pairs; for g the 16 × 16 pairs
 * are turned. */

typedef struct {
    int64_t rows, out, in;
    const uint16_t *g, *x; /* (N, out), (N, in) */
    float *sums, *sum;     /* (out, in), (out) */
    int32_t threads;
} Outer;

#if defined(__AMX_BF16__) && defined(__AMX_INT8__) && defined(__AVX512BW__) && defined(__linux__)

enum {
    TILE_BYTES = 1024,
    PANEL_WIDTH = 32, /* columns that lie together: two tiles, 32 rows deep */
    PANEL_BYTES = 2 * TILE_BYTES,
    ROWS_DEEP = 256, /* rows at a time, of which tiles are made */
    FULL = 512,      /* columns of g and of x at a time: with their sums they stay near a core */
};

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t parts(int64_t whole, int64_t part) { return (whole + part - 1) / part; }

/* Rows and columns of 16 × 16 pairs change places. */
static inline void turn_pairs(__m512i *x) {
    __m512i y[SIDE];
    for (int i = 0; i < SIDE; i += 2) {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
    for (int i = 0; i < SIDE; i += 4) /* x[i + j] gets the columns j, 4 + j, 8 + j, 12 + j of 4 rows */
        for (int j = 0; j < 2; j++) {
            x[i + 2 * j] = _mm512_unpacklo_epi64(y[i + j], y[i + j + 2]);
            x[i + 2 * j + 1] = _mm512_unpackhi_epi64(y[i + j], y[i + j + 2]);
        }
    for (int j = 0; j < 4; j++) {
        const __m512i even = _mm512_shuffle_i32x4(x[j], x[j + 4], 0x88);
        const __m512i even_below = _mm512_shuffle_i32x4(x[j + 8], x[j + 12], 0x88);
        const __m512i odd = _mm512_shuffle_i32x4(x[j], x[j + 4], 0xdd);
        const __m512i odd_below = _mm512_shuffle_i32x4(x[j + 8], x[j + 12], 0xdd);
        y[j] = _mm512_shuffle_i32x4(even, even_below, 0x88);
        y[j + 4] = _mm512_shuffle_i32x4(odd, odd_below, 0x88);
        y[j + 8] = _mm512_shuffle_i32x4(even, even_below, 0xdd);
        y[j + 12] = _mm512_shuffle_i32x4(odd, odd_below, 0xdd);
    }
    memcpy(x, y, sizeof y);
}

/* The numbers of a row that stand at even places, and those at odd ones. */
static inline __m512 even(__m512i row) { return (__m512)_mm512_slli_epi32(row, 16); }
static inline __m512 odd(__m512i row) {
    return (__m512)_mm512_and_si512(row, _mm512_set1_epi32((int)0xffff0000));
}

/* Two tiles of 32 rows and as many columns; zeros past the edges. The columns' sums, those at even
 * places and then those at odd ones, go on where they are wanted. */
static inline __attribute__((always_inline)) void tiles_of(
    const uint16_t *x, int64_t far, int64_t rows, int64_t columns, const int turned, char *tiles,
    float *sum) {
    static const uint16_t pairs[2][2 * SIDE] = {
        {0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39,
         8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47},
        {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
         24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63}};
    const __m512i left = _mm512_loadu_si512(pairs[0]), right = _mm512_loadu_si512(pairs[1]);
    const __mmask32 there = columns < PANEL_WIDTH ? ((__mmask32)1 << columns) - 1 : (__mmask32)-1;
    __m512i low[SIDE], high[SIDE];
    __m512 sums[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (int i = 0; i < SIDE; i++, x += 2 * far) {
        const __m512i first = _mm512_maskz_loadu_epi16(2 * i < rows ? there : 0, x);
        const __m512i second = _mm512_maskz_loadu_epi16(2 * i + 1 < rows ? there : 0, x + far);
        low[i] = _mm512_permutex2var_epi16(first, left, second);
        high[i] = _mm512_permutex2var_epi16(first, right, second);
        if (!sum) continue;
        sums[0] += even(first) + even(second);
        sums[1] += odd(first) + odd(second);
    }
    for (int i = 0; sum && i < 2; i++)
        _mm512_storeu_ps(sum + i * SIDE, _mm512_loadu_ps(sum + i * SIDE) + sums[i]);
    if (turned) turn_pairs(low), turn_pairs(high);
    memcpy(tiles, low, TILE_BYTES);
    memcpy(tiles + TILE_BYTES, high, TILE_BYTES);
}

/* Some rows of some columns, panel after panel, each as deep as the rows are. */
static inline __attribute__((always_inline)) void pack(
    const uint16_t *x, int64_t far, int64_t rows, int64_t columns, const int turned, char *panels,
    float *sum) {
    const int64_t steps = parts(rows, PANEL_WIDTH);
    for (int64_t s = 0; s < steps; s++)
        for (int64_t j = 0; j * PANEL_WIDTH < columns; j++)
            tiles_of(x + s * PANEL_WIDTH * far + j * PANEL_WIDTH, far, rows - s * PANEL_WIDTH,
                     columns - j * PANEL_WIDTH, turned, panels + (j * steps + s) * PANEL_BYTES,
                     sum ? sum + j * PANEL_WIDTH : NULL);
}

/* 32 × 32 sums begin, or go on. */
static void add_products(int begin, int64_t steps, const char *g, const char *x, char *sums) {
    if (begin) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        _tile_loadd(0, sums, DEPTH);
        _tile_loadd(1, sums + TILE_BYTES, DEPTH);
        _tile_loadd(2, sums + 2 * TILE_BYTES, DEPTH);
        _tile_loadd(3, sums + 3 * TILE_BYTES, DEPTH);
    }
    for (; steps-- > 0; g += PANEL_BYTES, x += PANEL_BYTES) {
        _tile_loadd(4, g, DEPTH);
        _tile_loadd(5, g + TILE_BYTES, DEPTH);
        _tile_loadd(6, x, DEPTH);
        _tile_loadd(7, x + TILE_BYTES, DEPTH);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums, DEPTH);
    _tile_stored(1, sums + TILE_BYTES, DEPTH);
    _tile_stored(2, sums + 2 * TILE_BYTES, DEPTH);
    _tile_stored(3, sums + 3 * TILE_BYTES, DEPTH);
}

typedef struct { /* what a thread has at hand */
    char g[FULL * ROWS_DEEP * 2], x[FULL * ROWS_DEEP * 2], sums[FULL * FULL * 4];
    float sum[FULL];
} Bench;

typedef struct { /* some columns of g and of x, whose sums one thread makes */
    int64_t top, height, left, width;
} Share;

/* From tiles to where they belong: rows of 16, and what is left of them at the edge. */
static void write_sums(const Outer *o, const Share *at, const Bench *bench) {
    const float *sums = (const float *)bench->sums;
    const int64_t across = parts(at->width, PANEL_WIDTH);
    for (int64_t i = 0; i < at->height; i++)
        for (int64_t j = 0; j < at->width; j += SIDE) {
            const int64_t square = i / PANEL_WIDTH * across + j / PANEL_WIDTH;
            const int64_t tile = square * 4 + i / SIDE % 2 * 2 + j / SIDE % 2;
            const float *from = sums + (tile * SIDE + i % SIDE) * SIDE;
            float *to = o->sums + (at->top + i) * o->in + at->left + j;
            if (at->width - j >= SIDE) memcpy(to, from, SIDE * sizeof(float));
            else memcpy(to, from, (at->width - j) * sizeof(float));
        }
}

static void outer_share(const Outer *o, const Share *at, Bench *bench) {
    float *sum = o->sum && at->left == 0 ? memset(bench->sum, 0, sizeof bench->sum) : NULL;
    for (int64_t n = 0; n < o->rows; n += ROWS_DEEP) {
        const int64_t rows = least(ROWS_DEEP, o->rows - n), steps = parts(rows, PANEL_WIDTH);
        pack(o->g + n * o->out + at->top, o->out, rows, at->height, 1, bench->g, sum);
        pack(o->x + n * o->in + at->left, o->in, rows, at->width, 0, bench->x, NULL);
        __asm__ volatile("" ::: "memory"); /* the compiler does not know that tiles read it */
        char *sums = bench->sums;
        for (int64_t i = 0; i < parts(at->height, PANEL_WIDTH); i++)
            for (int64_t j = 0; j < parts(at->width, PANEL_WIDTH); j++, sums += 4 * TILE_BYTES)
                add_products(n == 0, steps, bench->g + i * steps * PANEL_BYTES,
                             bench->x + j * steps * PANEL_BYTES, sums);
        __asm__ volatile("" ::: "memory");
    }
    write_sums(o, at, bench);
    for (int64_t i = 0; sum && i < at->height; i++)
        o->sum[at->top + i] = sum[i / PANEL_WIDTH * PANEL_WIDTH + i % 2 * SIDE + i % PANEL_WIDTH / 2];
}

/* False where it has to be computed elsewhere. Which thread makes a sum does not change it. */
int outer(const Outer *o) {
    if (!has_tiles()) return 0;
    const int64_t panels = parts(o->out, PANEL_WIDTH), across = parts(o->in, FULL);
    const int64_t down = parts(parts(panels * PANEL_WIDTH, FULL), o->threads) * o->threads;
    const int64_t tall = parts(panels, down) * PANEL_WIDTH;
#pragma omp parallel num_threads(o->threads)
    {
        static _Thread_local Bench *bench;
        if (!bench) bench = aligned_alloc(4096, parts(sizeof(Bench), 4096) * 4096);
        set_up_tiles();
#pragma omp for schedule(static)
        for (int64_t task = 0; task < down * across; task++) {
            const int64_t top = task / across * tall, left = task % across * FULL;
            const Share at = {top, least(tall, o->out - top), left, least(FULL, o->in - left)};
            if (at.height > 0) outer_share(o, &at, bench);
        }
        _tile_release();
    }
    return 1;
}
#else
int outer(const Outer *o) { return 0; }
#endif
