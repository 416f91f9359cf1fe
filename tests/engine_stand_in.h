/* What the sets avxvnni and amx compute, on a processor with AVX-512 VNNI that has neither.
 *
 * Intel, Software Developer's Manual, volume 2: VPDPBUSD, TILELOADD, TDPBUSD, TILESTORED. */

#include <immintrin.h>

#if defined(STAND_IN_AVXVNNI) /* the same product of 32 bytes, as AVX-512 encodes it */
#undef __AVX512F__
#undef __AVX512VNNI__
#define __AVXVNNI__ 1
#define _mm256_dpbusd_avx_epi32(sum, x, w) _mm256_dpbusd_epi32(sum, x, w)
#else /* tiles in software */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static struct { uint8_t palette, start, none[14]; uint16_t bytes[16]; uint8_t rows[16]; } tiles_are;
static uint8_t tiles[8][16][64];
static long tile_products_made;

static void tile_load(int t, const void *from, long stride) {
    memset(tiles[t], 0, sizeof tiles[t]);
    for (int r = 0; r < tiles_are.rows[t]; r++)
        memcpy(tiles[t][r], (const char *)from + r * stride, tiles_are.bytes[t]);
}

static void tile_store(int t, void *to, long stride) {
    for (int r = 0; r < tiles_are.rows[t]; r++)
        memcpy((char *)to + r * stride, tiles[t][r], tiles_are.bytes[t]);
}

static void tile_multiply(int to, int a, int b) {
    for (int m = 0; m < tiles_are.rows[to]; m++)
        for (int n = 0; n < tiles_are.bytes[to] / 4; n++) {
            int32_t sum;
            memcpy(&sum, tiles[to][m] + 4 * n, 4);
            for (int k = 0; k < tiles_are.bytes[a]; k++)
                sum += tiles[a][m][k] * (int8_t)tiles[b][k / 4][4 * n + k % 4];
            memcpy(tiles[to][m] + 4 * n, &sum, 4);
        }
    tile_products_made++;
}

__attribute__((destructor)) static void report(void) {
    fprintf(stderr, "%ld products of tiles\n", tile_products_made);
}

#define __AMX_INT8__ 1
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbusd
#define _tile_loadconfig(from) memcpy(&tiles_are, from, sizeof tiles_are)
#define _tile_release() memset(&tiles_are, 0, sizeof tiles_are)
#define _tile_zero(t) memset(tiles[t], 0, sizeof tiles[t])
#define _tile_loadd(t, from, stride) tile_load(t, from, stride)
#define _tile_stored(t, to, stride) tile_store(t, to, stride)
#define _tile_dpbusd(to, a, b) tile_multiply(to, a, b)
#endif
