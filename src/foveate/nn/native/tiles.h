/* The matrix unit of a processor that has one (AMX): 16 × 64 bytes by 64 × 16 at a time. */

#if defined(__AMX_INT8__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>

enum { SIDE = 16, DEPTH = 64, TILE_DATA = 18, ASK = 0x1023 };

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
#endif
