/* Which instruction sets of the engine this processor and its system have: names, the best last. */

#if defined(__x86_64__) || defined(_M_X64)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum { EAX, EBX, ECX, EDX };

static int bit(const unsigned *registers, int which, int number) {
    return registers[which] >> number & 1;
}

/* Linux lets a process use the tiles of AMX once it has asked. */
static int may_use_tiles(void) {
#if defined(__linux__) && defined(SYS_arch_prctl)
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#else
    return 0;
#endif
}

/* Intel, Software Developer's Manual, volume 2, CPUID; a system says in XCR0 which registers it keeps. */
const char *instruction_sets(void) {
    enum { VECTORS = 0x6, MASKS = 0xe6, TILES = 0x60000 };
    unsigned one[4] = {0}, seven[4] = {0}, more[4] = {0}, kept = 0, high;
    __get_cpuid(1, one, one + EBX, one + ECX, one + EDX);
    if (__get_cpuid_count(7, 0, seven, seven + EBX, seven + ECX, seven + EDX) && seven[EAX])
        __get_cpuid_count(7, 1, more, more + EBX, more + ECX, more + EDX);
    if (bit(one, ECX, 27)) __asm__("xgetbv" : "=a"(kept), "=d"(high) : "c"(0));
    const int avx2 = (kept & VECTORS) == VECTORS && bit(seven, EBX, 5) && bit(one, ECX, 12);
    const int avxvnni = avx2 && bit(more, EAX, 4);
    const int avx512 = avx2 && (kept & MASKS) == MASKS && bit(seven, EBX, 16) && bit(seven, EBX, 17) &&
                       bit(seven, EBX, 30) && bit(seven, EBX, 31); /* F, DQ, BW, VL */
    const int vnni = avx512 && bit(seven, ECX, 11);
    const int amx = vnni && (kept & TILES) == TILES && bit(seven, EDX, 24) && bit(seven, EDX, 25);
    if (amx && may_use_tiles())
        return avxvnni ? "base sse4 avx2 avxvnni avx512vnni amx" : "base sse4 avx2 avx512vnni amx";
    if (vnni) return avxvnni ? "base sse4 avx2 avxvnni avx512vnni" : "base sse4 avx2 avx512vnni";
    if (avxvnni) return "base sse4 avx2 avxvnni";
    return avx2 ? "base sse4 avx2" : bit(one, ECX, 19) && bit(one, ECX, 9) ? "base sse4" : "base";
}

#elif defined(__aarch64__)
#if defined(__linux__)
#include <sys/auxv.h>
static int has_products(void) { return getauxval(AT_HWCAP) >> 20 & 1; /* HWCAP_ASIMDDP */ }
#else
static int has_products(void) { return 1; /* every processor of Apple's computers */ }
#endif
const char *instruction_sets(void) { return has_products() ? "neon dotprod" : "neon"; }

#else
const char *instruction_sets(void) { return "base"; }
#endif
