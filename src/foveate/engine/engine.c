/* The engine: whole searches with a packed model, without any library.
 *
 * Nothing here knows files, text or threads: `foveate.engine.packed` does. Arrays are row-major. */

#include "vector.h"
#include "linear.h"
#include "model.h"
#include "layers.h"
#include "sequence.h"
#include "terms.h"
#include "search.h"

/* The instruction set that this library was compiled for. */
const char *instruction_set(void) {
#if defined(__AMX_INT8__)
    return "amx";
#elif defined(__AVX512VNNI__)
    return "avx512vnni";
#elif defined(__AVXVNNI__)
    return "avxvnni";
#elif defined(__AVX2__)
    return "avx2";
#elif defined(__SSE4_1__)
    return "sse4";
#elif defined(__ARM_FEATURE_DOTPROD)
    return "dotprod";
#elif defined(__ARM_NEON)
    return "neon";
#elif defined(__wasm_simd128__)
    return "wasm";
#else
    return "base";
#endif
}
