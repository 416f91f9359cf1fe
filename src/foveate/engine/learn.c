/* Training of two small encoder-decoders: a Transformer (Vaswani et al., 2017, with norms before
 * each part) and recurrent networks with attention (Bahdanau et al., 2015, with GRUs).
 *
 * A matrix is row-major; row t B + b belongs to position t of example b, and id 0 is padding. Each
 * operation below computes a value and appends itself to a tape; its second half, run over the tape
 * from the end, adds to the gradients of what it has read. All memory is of one block, which every
 * forward pass uses anew. */

#include "vector.h"

#define EXPORT __attribute__((visibility("default")))

enum { MOST_NODES = 4096, MOST_WEIGHTS = 64, MOST_VALUES = 1 << 20, ROOM = 1 << 23 };
enum { LONGEST = 32, LARGEST = 64 }; /* positions; examples of a batch */

typedef struct Node Node;
struct Node {
    int rows, columns;
    float *x, *g; /* the value, and the gradient of the loss with respect to it */
    void (*back)(Node *);
    Node *a, *b, *c, *d; /* what it was computed from */
    const int *ids, *lengths;
    float *kept, scale;
    int batch, heads, causal, step, steps;
};

typedef struct { Node *weight, *bias; } Linear;
typedef struct { Linear query, key, value, output; } Heads;
typedef struct { Node *gain, *bias; } Norm;
typedef struct { Linear input, state; } Cell;

typedef enum { TRANSFORMER, RECURRENT } Kind;
typedef struct { /* as the caller gives them, in this order */
    int vocabulary, kind, size, hidden, heads, positions, scaled, masked, attends, seed;
} Settings;

typedef enum { SOURCE_SELF, TARGET_SELF, CROSS, MAPS } Map;
typedef struct {
    Settings is;
    int weights, values, nodes, steps, batch, source, target;
    size_t used, kept; /* floats of the block, and those of them that a pass leaves as they are */
    uint64_t random;
    Node weight[MOST_WEIGHTS], node[MOST_NODES], *logits;
    float *maps[MAPS], *positions, *block, *x, *g, *mean, *square; /* of the weights, and Adam's */
    int lengths[2][LARGEST];
    /* the Transformer */
    Node *embedding[2];
    Heads attention[MAPS]; /* by what they map */
    Norm before[7];
    Linear widen[2], narrow[2], output;
    /* recurrent networks */
    Cell cells[3]; /* forward, backward, decoder */
    Linear bridge, query, key, context, mix;
    Node *score;
} Learner;

static float *room(Learner *l, size_t size) {
    size = (size + 15) & ~(size_t)15;
    if (l->used + size > ROOM) return NULL;
    float *x = l->block + l->used;
    l->used += size;
    memset(x, 0, size * sizeof *x);
    return x;
}

/* A node for a new matrix of zeros; NULL without room, which all operations pass on. */
static Node *node(Learner *l, int rows, int columns, void (*back)(Node *), Node *a, Node *b) {
    float *x = room(l, (size_t)rows * columns), *g = room(l, (size_t)rows * columns);
    if (!x || !g || l->nodes == MOST_NODES) return NULL;
    Node *n = &l->node[l->nodes++];
    *n = (Node){rows, columns, x, g, back, a, b, .batch = l->batch};
    return n;
}

/* Rows of a matrix, whose gradients are added to its own. */
static Node *rows_of(Learner *l, Node *a, int from, int count) {
    if (!a || l->nodes == MOST_NODES) return NULL;
    Node *n = &l->node[l->nodes++];
    const size_t skip = (size_t)from * a->columns;
    *n = (Node){count, a->columns, a->x + skip, a->g + skip, .batch = l->batch};
    return n;
}

/* `rows` rows of C += A B, two vectors of columns from j on; A_ip is at i · down + p · across. */
static inline __attribute__((always_inline)) void tile(float *c, const float *a, const float *b,
    int rows, int inner, int columns, int down, int across) {
    Lanes sum[4][2];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < 2; j++) sum[i][j] = *(Lanes *)(c + i * columns + j * WIDTH);
    for (int p = 0; p < inner; p++) {
        const Lanes left = *(const Lanes *)(b + p * columns);
        const Lanes right = *(const Lanes *)(b + p * columns + WIDTH);
        for (int i = 0; i < rows; i++) {
            const float each = a[i * down + p * across];
            sum[i][0] += each * left;
            sum[i][1] += each * right;
        }
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < 2; j++) *(Lanes *)(c + i * columns + j * WIDTH) = sum[i][j];
}

/* C += A B with B (inner, columns) */
static void multiply(float *c, const float *a, const float *b, int rows, int inner, int columns,
                     int down, int across) {
    int j = 0;
    for (; j + 2 * WIDTH <= columns; j += 2 * WIDTH) {
        int i = 0;
        for (; i + 4 <= rows; i += 4)
            tile(c + i * columns + j, a + i * down, b + j, 4, inner, columns, down, across);
        for (; i < rows; i++)
            tile(c + i * columns + j, a + i * down, b + j, 1, inner, columns, down, across);
    }
    for (int i = 0; j < columns && i < rows; i++)
        for (int p = 0; p < inner; p++)
            for (int k = j; k < columns; k++)
                c[i * columns + k] += a[i * down + p * across] * b[p * columns + k];
}

/* dX += dY Wᵀ, dW += Xᵀ dY, db += Σ dY */
static void linear_back(Node *n) {
    Node *x = n->a, *w = n->b, *bias = n->c;
    const int in = x->columns, out = n->columns;
    float *turned = n->kept;
    for (int i = 0; i < in; i++)
        for (int j = 0; j < out; j++) turned[j * in + i] = w->x[i * out + j];
    multiply(x->g, n->g, turned, n->rows, out, in, out, 1);
    multiply(w->g, x->x, n->g, in, n->rows, out, 1, in);
    if (bias)
        for (int i = 0; i < n->rows; i++) add_scaled(bias->g, n->g + i * out, 1, out);
}

/* Y = X W + b */
static Node *linear(Learner *l, Node *x, Linear by) {
    Node *w = by.weight, *n = x ? node(l, x->rows, w->columns, linear_back, x, w) : NULL;
    float *turned = room(l, (size_t)w->rows * w->columns);
    if (!n || !turned) return NULL;
    n->c = by.bias;
    n->kept = turned;
    if (by.bias)
        for (int i = 0; i < n->rows; i++)
            memcpy(n->x + i * n->columns, by.bias->x, n->columns * sizeof *n->x);
    multiply(n->x, x->x, w->x, n->rows, x->columns, n->columns, x->columns, 1);
    return n;
}

static void sum_back(Node *n) {
    add_scaled(n->a->g, n->g, 1, n->rows * n->columns);
    add_scaled(n->b->g, n->g, 1, n->rows * n->columns);
}

/* A + B */
static Node *sum_of_both(Learner *l, Node *a, Node *b) {
    Node *n = a && b ? node(l, a->rows, a->columns, sum_back, a, b) : NULL;
    for (int i = 0; n && i < n->rows * n->columns; i++) n->x[i] = a->x[i] + b->x[i];
    return n;
}

static void relu_back(Node *n) {
    for (int i = 0; i < n->rows * n->columns; i++) n->a->g[i] += n->x[i] > 0 ? n->g[i] : 0;
}

static void tanh_back(Node *n) {
    for (int i = 0; i < n->rows * n->columns; i++) n->a->g[i] += n->g[i] * (1 - n->x[i] * n->x[i]);
}

/* relu A or tanh A */
static Node *activated(Learner *l, Node *a, Activation kind) {
    Node *n = a ? node(l, a->rows, a->columns, kind == RELU ? relu_back : tanh_back, a, NULL) : NULL;
    if (n) activate(kind, memcpy(n->x, a->x, n->rows * n->columns * sizeof *n->x), n->rows * n->columns);
    return n;
}

static void rows_back(Node *n) {
    for (int i = 0; i < n->rows; i++)
        add_scaled(n->a->g + n->ids[i] * n->columns, n->g + i * n->columns, n->scale, n->columns);
}

/* √D E[id] + P */
static Node *embedded(Learner *l, Node *e, const int *ids, int count, int positions) {
    const int size = e->columns;
    Node *n = node(l, count, size, rows_back, e, NULL);
    if (!n) return NULL;
    n->ids = ids;
    n->scale = sqrtf(size);
    for (int i = 0; i < count; i++) {
        add_scaled(n->x + i * size, e->x + ids[i] * size, n->scale, size);
        if (positions) add_scaled(n->x + i * size, l->positions + i / l->batch * size, 1, size);
    }
    return n;
}

/* dx = (dy g − mean(dy g) − x̂ mean(dy g x̂)) / σ */
static void norm_back(Node *n) {
    const int size = n->columns;
    for (int i = 0; i < n->rows; i++) {
        const float *unit = n->kept + i * (size + 1), *g = n->g + i * size, by = unit[size];
        float mean = 0, along = 0;
        for (int k = 0; k < size; k++) {
            const float each = g[k] * n->b->x[k];
            mean += each;
            along += each * unit[k];
            n->b->g[k] += g[k] * unit[k];
            n->c->g[k] += g[k];
        }
        mean /= size;
        along /= size;
        for (int k = 0; k < size; k++)
            n->a->g[i * size + k] += (g[k] * n->b->x[k] - mean - unit[k] * along) * by;
    }
}

/* x̂ g + b with x̂ = (x − mean x) / √(var x + 10⁻⁵), row by row */
static Node *norm(Learner *l, Node *a, Norm by) {
    Node *n = a ? node(l, a->rows, a->columns, norm_back, a, by.gain) : NULL;
    if (!n || !(n->kept = room(l, (size_t)a->rows * (a->columns + 1)))) return NULL;
    const int size = a->columns;
    n->c = by.bias;
    for (int i = 0; i < a->rows; i++) {
        float *unit = n->kept + i * (size + 1), variance = 0;
        const float *x = a->x + i * size, mean = sum(x, size) / size;
        for (int k = 0; k < size; k++) variance += (x[k] - mean) * (x[k] - mean);
        unit[size] = 1 / sqrtf(variance / size + 1e-5f);
        for (int k = 0; k < size; k++) {
            unit[k] = (x[k] - mean) * unit[size];
            n->x[i * size + k] = unit[k] * by.gain->x[k] + by.bias->x[k];
        }
    }
    return n;
}

/* ---- attention ---- */

/* The softmax of `count` scores in place; the others of `all` become 0. */
static void softmax(float *score, int count, int all) {
    const float most = maximum(score, count);
    float total = 0;
    for (int s = 0; s < count; s++) total += score[s] = exponential(score[s] - most);
    for (int s = 0; s < all; s++) score[s] = s < count ? score[s] / total : 0;
}

/* de = α (dα − Σ α dα), written over dα */
static void softmax_back(const float *weight, float *g, int count) {
    const float mean = dot(weight, g, count);
    for (int s = 0; s < count; s++) g[s] = weight[s] * (g[s] - mean);
}

/* The keys that a query may see: those that are no padding, and in the decoder none after it. */
static int seen(const Node *n, int b, int t) {
    const int real = n->lengths[b];
    return n->causal && t + 1 < real ? t + 1 : real;
}

static void attend_back(Node *n) {
    Node *q = n->a, *k = n->b, *v = n->c;
    const int B = n->batch, size = n->columns, part = size / n->heads;
    const int T = n->rows / B, S = k->rows / B;
    float g[LONGEST];
    for (int b = 0; b < B; b++)
        for (int h = 0; h < n->heads; h++)
            for (int t = 0; t < T; t++) {
                const int from = (t * B + b) * size + h * part, count = seen(n, b, t);
                const float *weight = n->kept + ((b * n->heads + h) * T + t) * S;
                for (int s = 0; s < count; s++) {
                    const int at = (s * B + b) * size + h * part;
                    g[s] = dot(n->g + from, v->x + at, part);
                    add_scaled(v->g + at, n->g + from, weight[s], part);
                }
                softmax_back(weight, g, count);
                for (int s = 0; s < count; s++) {
                    const int at = (s * B + b) * size + h * part;
                    add_scaled(q->g + from, k->x + at, n->scale * g[s], part);
                    add_scaled(k->g + at, q->x + from, n->scale * g[s], part);
                }
            }
}

/* softmax(Q Kᵀ / √K) V, head by head */
static Node *attend(Learner *l, Node *q, Node *k, Node *v, int side, int causal, Map map) {
    Node *n = q && k && v ? node(l, q->rows, q->columns, attend_back, q, k) : NULL;
    const int B = l->batch, H = l->is.heads, size = l->is.size, part = size / H;
    if (!n || !(n->kept = room(l, (size_t)H * q->rows * (k->rows / B)))) return NULL;
    const int T = q->rows / B, S = k->rows / B;
    *n = (Node){n->rows, size, n->x, n->g, attend_back, q, k, v, .kept = n->kept, .batch = B, .heads = H,
                .lengths = l->lengths[side], .causal = causal, .scale = l->is.scaled ? 1 / sqrtf(part) : 1};
    l->maps[map] = n->kept;
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int t = 0; t < T; t++) {
                const int from = (t * B + b) * size + h * part, count = seen(n, b, t);
                float *weight = n->kept + ((b * H + h) * T + t) * S;
                for (int s = 0; s < count; s++)
                    weight[s] = n->scale * dot(q->x + from, k->x + (s * B + b) * size + h * part, part);
                softmax(weight, count, S);
                for (int s = 0; s < count; s++)
                    add_scaled(n->x + from, v->x + (s * B + b) * size + h * part, weight[s], part);
            }
    return n;
}

/* The weights of the step lie among those of all steps, (B, 1, T, S), as a Transformer's do. */
static void additive_back(Node *n) {
    Node *q = n->a, *k = n->b, *h = n->c, *v = n->d;
    const int B = n->batch, size = n->columns, S = k->rows / B;
    float g[LONGEST];
    for (int b = 0; b < B; b++) {
        const float *weight = n->kept + (size_t)b * n->steps * S;
        const int count = n->lengths[b];
        for (int s = 0; s < count; s++) {
            const int at = (s * B + b) * size;
            g[s] = dot(n->g + b * size, h->x + at, size);
            add_scaled(h->g + at, n->g + b * size, weight[s], size);
        }
        softmax_back(weight, g, count);
        for (int s = 0; s < count; s++) {
            const int at = (s * B + b) * size;
            for (int i = 0; i < size; i++) {
                const float y = hyperbolic_tangent(q->x[b * size + i] + k->x[at + i]);
                const float each = g[s] * v->x[i] * (1 - y * y);
                v->g[i] += g[s] * y;
                q->g[b * size + i] += each;
                k->g[at + i] += each;
            }
        }
    }
}

/* c_t = Σ_s α_ts h_s with α_t = softmax_s vᵀ tanh(W s_{t−1} + U h_s), row t of `all` contexts */
static Node *additive(Learner *l, Node *all, Node *q, Node *k, Node *h, int t) {
    Node *n = q && k && h ? rows_of(l, all, t * l->batch, l->batch) : NULL;
    if (!n) return NULL;
    const int B = l->batch, size = h->columns, S = k->rows / B;
    *n = (Node){n->rows, n->columns, n->x, n->g, additive_back, q, k, h, l->score, .batch = B,
                .kept = l->maps[CROSS] + (size_t)t * S, .lengths = l->lengths[0], .steps = l->target};
    for (int b = 0; b < B; b++) {
        float *weight = n->kept + (size_t)b * n->steps * S;
        const int count = n->lengths[b];
        for (int s = 0; s < count; s++) {
            const float *key = k->x + (s * B + b) * size, *query = q->x + b * size;
            weight[s] = 0;
            for (int i = 0; i < size; i++)
                weight[s] += n->d->x[i] * hyperbolic_tangent(query[i] + key[i]);
        }
        softmax(weight, count, S);
        for (int s = 0; s < count; s++)
            add_scaled(n->x + b * size, h->x + (s * B + b) * size, weight[s], size);
    }
    return n;
}

/* ---- the gated recurrent unit (Cho et al., 2014), as PyTorch has it ---- */

static int ends(const Node *n, int b) { return n->lengths && n->step >= n->lengths[b]; }

static void cell_back(Node *n) {
    const int size = n->columns;
    for (int b = 0; b < n->rows; b++)
        for (int i = 0; i < size; i++) {
            const float *gate = n->kept + (b * size + i) * 3, r = gate[0], z = gate[1], y = gate[2];
            const float g = n->g[b * size + i], dy = g * (1 - z) * (1 - y * y);
            const float *u = n->b->x + b * 3 * size + i, before = n->c->x[b * size + i];
            const float of_gates[] = {dy * u[2 * size] * r * (1 - r), g * (before - y) * z * (1 - z), dy};
            n->c->g[b * size + i] += ends(n, b) ? g : g * z;
            for (int k = 0; k < 3 && !ends(n, b); k++) {
                const int at = (b * 3 + k) * size + i;
                n->a->g[at] += of_gates[k];
                n->b->g[at] += k == 2 ? dy * r : of_gates[k];
            }
        }
}

/* r, z = σ(x + u), y = tanh(x + r u), h′ = (1 − z) y + z h, row `step` of `all` states; padding
 * leaves the state as it is. */
static Node *cell(Learner *l, Node *all, Node *x, Node *u, Node *h, const int *lengths, int step) {
    Node *n = x && u && h ? rows_of(l, all, step * l->batch, l->batch) : NULL;
    if (!n || !(n->kept = room(l, 3 * (size_t)n->rows * n->columns))) return NULL;
    const int size = n->columns;
    *n = (Node){n->rows, size, n->x, n->g, cell_back, x, u, h, .kept = n->kept, .lengths = lengths,
                .step = step};
    for (int b = 0; b < n->rows; b++)
        for (int i = 0; i < size; i++) {
            const float *px = x->x + b * 3 * size + i, *pu = u->x + b * 3 * size + i;
            const float r = sigmoid(px[0] + pu[0]), z = sigmoid(px[size] + pu[size]);
            const float y = hyperbolic_tangent(px[2 * size] + r * pu[2 * size]);
            const float before = h->x[b * size + i];
            memcpy(n->kept + (b * size + i) * 3, (float[]){r, z, y}, 3 * sizeof r);
            n->x[b * size + i] = ends(n, b) ? before : (1 - z) * y + z * before;
        }
    return n;
}

static Node *attention(Learner *l, Node *x, Node *memory, int side, int causal, Map map) {
    const Heads *by = &l->attention[map];
    Node *q = linear(l, x, by->query), *k = linear(l, memory, by->key), *v = linear(l, memory, by->value);
    return linear(l, attend(l, q, k, v, side, causal, map), by->output);
}

static Node *feed_forward(Learner *l, Node *x, int side, Norm by) {
    Node *wide = activated(l, linear(l, norm(l, x, by), l->widen[side]), RELU);
    return sum_of_both(l, x, linear(l, wide, l->narrow[side]));
}

/* x + f(norm x) for each part f of an encoder layer and a decoder layer, and W norm(y) */
static Node *transformer(Learner *l, const int *source, const int *input) {
    const int B = l->batch, positions = l->is.positions;
    Node *x = embedded(l, l->embedding[0], source, l->source * B, positions), *y, *memory;
    Node *norms = norm(l, x, l->before[0]);
    x = sum_of_both(l, x, attention(l, norms, norms, 0, 0, SOURCE_SELF));
    memory = norm(l, feed_forward(l, x, 0, l->before[1]), l->before[2]);
    y = embedded(l, l->embedding[1], input, l->target * B, positions);
    norms = norm(l, y, l->before[3]);
    y = sum_of_both(l, y, attention(l, norms, norms, 1, l->is.masked, TARGET_SELF));
    norms = norm(l, y, l->before[4]);
    y = sum_of_both(l, y, attention(l, norms, memory, 0, 0, CROSS));
    y = feed_forward(l, y, 1, l->before[5]);
    return linear(l, norm(l, y, l->before[6]), l->output);
}

/* The states of one direction (S B, D), and the last one. */
static Node *states(Learner *l, Node *x, Cell *by, int back, Node **last) {
    const int B = l->batch, S = l->source;
    Node *gates = linear(l, x, by->input), *all = node(l, S * B, l->is.size, NULL, NULL, NULL);
    Node *h = node(l, B, l->is.size, NULL, NULL, NULL);
    for (int k = 0; k < S; k++) {
        const int t = back ? S - 1 - k : k;
        Node *x_t = rows_of(l, gates, t * B, B);
        h = cell(l, all, x_t, linear(l, h, by->state), h, l->lengths[0], t);
    }
    *last = h;
    return all;
}

/* h = h→ + h←, s_0 = tanh W(h→_S + h←_1), s_t = GRU(y_{t−1}, c_t, s_{t−1}); W s_t + V c_t */
static Node *recurrent(Learner *l, const int *source, const int *input) {
    const int B = l->batch, S = l->source, T = l->target, size = l->is.size;
    Node *last[2], *x = embedded(l, l->embedding[0], source, S * B, 0);
    Node *forward = states(l, x, &l->cells[0], 0, &last[0]);
    Node *h = sum_of_both(l, forward, states(l, x, &l->cells[1], 1, &last[1]));
    Node *keys = linear(l, h, l->key);
    Node *s = activated(l, linear(l, sum_of_both(l, last[0], last[1]), l->bridge), TANH);
    Node *y = linear(l, embedded(l, l->embedding[1], input, T * B, 0), l->cells[2].input);
    Node *all = node(l, T * B, size, NULL, NULL, NULL), *contexts = node(l, T * B, size, NULL, NULL, NULL);
    if (!(l->maps[CROSS] = room(l, (size_t)B * T * S))) return NULL;
    for (int t = 0; t < T; t++) {
        Node *gates = rows_of(l, y, t * B, B);
        if (l->is.attends) {
            Node *c = additive(l, contexts, linear(l, s, l->query), keys, h, t);
            gates = sum_of_both(l, gates, linear(l, c, l->context));
        }
        s = cell(l, all, gates, linear(l, s, l->cells[2].state), s, NULL, t);
    }
    return s ? sum_of_both(l, linear(l, all, l->output), linear(l, contexts, l->mix)) : NULL;
}

/* ---- weights ---- */

/* A matrix of weights, uniform on ±√(6 / (rows + columns)) (Glorot & Bengio, 2010), or constant. */
static Node *weight(Learner *l, int rows, int columns, float constant) {
    const float most = sqrtf(6.0f / (rows + columns));
    const int size = rows * columns;
    Node *n = &l->weight[l->weights++];
    *n = (Node){.rows = rows, .columns = columns, .x = l->x + l->values, .g = l->g + l->values};
    for (int i = 0; i < size; i++) {
        uint64_t z = l->random += 0x9e3779b97f4a7c15u; /* splitmix64 (Steele et al., 2014) */
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        n->x[i] = rows == 1 ? constant : most * ((float)((z ^ (z >> 31)) >> 40) / 8388608 - 1);
    }
    l->values += (size + 15) & ~15;
    return n;
}

static Linear linear_of(Learner *l, int in, int out) {
    Node *w = weight(l, in, out, 0);
    return (Linear){w, weight(l, 1, out, 0)};
}

static void build_transformer(Learner *l) {
    const int D = l->is.size;
    for (int i = 0; i < 7; i++) {
        l->before[i].gain = weight(l, 1, D, 1);
        l->before[i].bias = weight(l, 1, D, 0);
    }
    for (int i = 0; i < 12; i++) ((Linear *)l->attention)[i] = linear_of(l, D, D);
    for (int side = 0; side < 2; side++) {
        l->widen[side] = linear_of(l, D, l->is.hidden);
        l->narrow[side] = linear_of(l, l->is.hidden, D);
    }
}

static void build_recurrent(Learner *l) {
    const int D = l->is.size;
    for (int i = 0; i < 6; i++) ((Linear *)l->cells)[i] = linear_of(l, D, 3 * D);
    l->bridge = linear_of(l, D, D);
    l->query = linear_of(l, D, D);
    l->key = linear_of(l, D, D);
    l->context = linear_of(l, D, 3 * D);
    l->mix = linear_of(l, D, l->is.vocabulary);
    l->score = weight(l, D, 1, 0);
}

/* ---- what is called from outside ---- */

EXPORT void free_learner(Learner *l) {
    if (l) free(l->block);
    free(l);
}

/* A model with random weights; NULL for settings that it does not have, and without memory. */
EXPORT Learner *new_learner(const Settings *is) {
    Learner *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    l->is = *is;
    const int isGood = is->heads > 0 && is->size > 0 && is->size % is->heads == 0 && is->size <= 128
        && is->vocabulary > 1 && is->vocabulary <= 1024 && is->hidden > 0 && is->hidden <= 512;
    if (!isGood || !(l->block = malloc(ROOM * sizeof(float)))) return free_learner(l), NULL;
    l->random = (uint64_t)is->seed;
    float **parts[] = {&l->x, &l->g, &l->mean, &l->square};
    for (int i = 0; i < 4; i++) *parts[i] = room(l, MOST_VALUES);
    for (int side = 0; side < 2; side++) l->embedding[side] = weight(l, is->vocabulary, is->size, 0);
    if (is->kind == TRANSFORMER) build_transformer(l);
    else build_recurrent(l);
    l->output = linear_of(l, is->size, is->vocabulary);
    l->positions = room(l, LONGEST * is->size);
    for (int t = 0; t < LONGEST; t++)
        for (int k = 0; k < is->size; k++) { /* sin(t / 10⁴^(2i/D)) and cos of it at 2i and 2i + 1 */
            const double angle = t / pow(1e4, (k & ~1) / (double)is->size);
            l->positions[t * is->size + k] = (float)(k & 1 ? cos(angle) : sin(angle));
        }
    l->kept = l->used;
    return l;
}

/* How many tensors there are, floats in all of them (each filled up to 16), and those of one. */
EXPORT int weights(const Learner *l) { return l->weights; }
EXPORT int values(const Learner *l) { return l->values; }
EXPORT int rows(const Learner *l, int i) { return l->weight[i].rows; }
EXPORT int columns(const Learner *l, int i) { return l->weight[i].columns; }
EXPORT float *value(Learner *l, int i) { return l->weight[i].x; }
EXPORT float *gradient(Learner *l, int i) { return l->weight[i].g; }

/* The logits of a batch with `B` sources of `S` ids and `T` inputs; NULL for more than fits. */
EXPORT float *forward(Learner *l, int B, int S, int T, const int *source, const int *input) {
    if (B < 1 || S < 1 || T < 1 || B > LARGEST || S > LONGEST || T > LONGEST) return NULL;
    const int *ids[] = {source, input}, steps[] = {S, T};
    l->batch = B;
    l->source = S;
    l->target = T;
    l->nodes = 0;
    l->used = l->kept;
    for (int side = 0; side < 2; side++)
        for (int b = 0; b < B; b++) {
            int length = steps[side];
            while (length > 1 && !ids[side][(length - 1) * B + b]) length--;
            l->lengths[side][b] = length;
        }
    l->logits = (l->is.kind == TRANSFORMER ? transformer : recurrent)(l, source, input);
    return l->logits ? l->logits->x : NULL;
}

/* The mean of −log p of the targets that are no padding; its gradients are those of the weights. */
EXPORT float backward(Learner *l, const int *targets) {
    Node *z = l->logits;
    const int V = l->is.vocabulary;
    double loss = 0;
    int count = 0;
    memset(l->g, 0, l->values * sizeof *l->g);
    for (int i = 0; i < z->rows; i++) count += targets[i] != 0;
    for (int i = 0; i < z->rows; i++) {
        if (!targets[i]) continue;
        const float *x = z->x + i * V, all = log_sum_exp(x, V);
        loss += all - x[targets[i]];
        for (int k = 0; k < V; k++)
            z->g[i * V + k] = (exponential(x[k] - all) - (k == targets[i])) / count;
    }
    for (int i = l->nodes; i--;)
        if (l->node[i].back) l->node[i].back(&l->node[i]);
    return (float)(loss / count);
}

/* Adam (Kingma & Ba, 2015) with β = 0.9, 0.98, for gradients of a norm of at most 1. */
EXPORT void update(Learner *l, float rate) {
    const float size = sqrtf(dot(l->g, l->g, l->values)), clip = size > 1 ? 1 / size : 1;
    l->steps++;
    const float first = 1 - (float)pow(0.9, l->steps), second = 1 - (float)pow(0.98, l->steps);
    for (int i = 0; i < l->values; i++) {
        const float g = clip * l->g[i];
        l->mean[i] += 0.1f * (g - l->mean[i]);
        l->square[i] += 0.02f * (g * g - l->square[i]);
        l->x[i] -= rate * (l->mean[i] / first) / (sqrtf(l->square[i] / second) + 1e-8f);
    }
}

/* The weights of a kind of attention in the last forward pass, (B, heads, T, S); NULL if none. */
EXPORT float *weights_of(Learner *l, int map) { return l->maps[map]; }
