/* The layers of a Transformer encoder, over real places alone: nothing is computed of padding. */

enum { AT_ONCE = 128 }; /* places that go through all layers together, while they are in the cache */

static int at_once(int longest) { return longest > AT_ONCE ? longest : AT_ONCE; }

/* How many floats of room the layers need. */
int64_t encode_room(const Stack *s, int longest) { return room_of(s, at_once(longest), longest); }

/* Each place of a source looks at all of it. */
static void attend_source(const Stack *s, int count, const float *qkv, float *scores,
                          const float **keys, float *out) {
    const int size = s->size;
    const float **values = keys + count;
    for (int n = 0; n < count; n++) {
        keys[n] = qkv + (size_t)n * 3 * size + size;
        values[n] = keys[n] + size;
    }
    for (int n = 0; n < count; n++, qkv += 3 * size, out += size)
        attend(s->heads, size, qkv, count, keys, values, scores, out);
}

static void encode_some(const Stack *s, int sources, const int64_t *starts, int longest, float *x,
                        float *room) {
    const int size = s->size, rows = starts[sources] - starts[0];
    const Room in = room_at(s, rows, longest, room);
    for (int l = 0; l < s->layers; l++) {
        const Layer *layer = s->layer + l;
        apply(&layer->own, rows, enter(s, layer->norm, rows, x, in.h), in.wide, SET, in.spare);
        for (int m = 0; m < sources; m++) {
            const size_t from = starts[m] - starts[0];
            attend_source(s, starts[m + 1] - starts[m], in.wide + from * 3 * size, in.scores,
                          in.keys, in.mixed + from * size);
        }
        apply(&layer->own_out, rows, in.mixed, x, ADD, in.spare);
        leave(s, layer->norm, rows, x);
        feed(s, layer, layer->norm + 1, rows, x, &in);
    }
    normalise(&s->last, rows, size, x, x);
}

/* x (N, D) of M sources, one after another, becomes what the layers make of it; that of source m
 * are the rows from starts[m] to starts[m + 1]. */
void encode(const Stack *s, int sources, const int64_t *starts, int longest, float *x, float *room) {
    for (int m = 0, next; m < sources; m = next) {
        for (next = m + 1; next < sources && starts[next + 1] - starts[m] <= AT_ONCE;) next++;
        encode_some(s, next - m, starts + m, longest, x + starts[m] * s->size, room);
    }
}
