/* The engine: whole searches with a packed model, without any library.
 *
 * Nothing here knows files, text or threads: `foveate.engine.packed` does. Arrays are row-major. */

#include "vector.h"
#include "linear.h"
#include "model.h"
#include "layers.h"
#include "sequence.h"
#include "search.h"
