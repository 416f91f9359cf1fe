/* Searches: beam search (a beam of one is greedy) and sampling, with continuous batching.
 *
 * A search holds sources in progress; each has hypotheses of its own, and no row of any product
 * depends on another, so that a source has the same outputs whatever is decoded beside it. */

typedef enum { COUNT, BOUND, SHRINK } Stop; /* when a beam ends: see decode/beam.py */

typedef struct { /* of all sources of a search */
    int32_t sampling, stop, width; /* whether tokens are drawn; a `Stop`; hypotheses of a source */
    int32_t start, end, best;  /* ids; outputs that are wanted of each source */
    int32_t room;              /* rows that are computed together */
    int32_t reach;             /* tokens that a language model reads at once, 0: any number */
    int32_t ruled;             /* whether one of the next two, or `forbid`, is used */
    int32_t shortest, no_repeat; /* tokens before the end; no n-gram occurs twice, 0: any may */
    int32_t top_k;             /* 0: all */
    float length_penalty, length_offset, temperature, top_p, min_p, repetition_penalty;
    uint64_t seed;
    const int32_t *never;      /* ids that are never written */
    int32_t nevers;
    /* the automaton of UTF-8 over the tokens: (8, V) states behind each, 8 where it may not follow;
     * NULL where each token is valid by itself */
    const uint8_t *after;
    const uint8_t *pieces; /* (V) GOES_ON | IN_WORD of each token; NULL where no terms are required */
    int32_t certain; /* a given token with at least this id has p = 1, such as a language; 0: none */
    int32_t forced_end; /* whether an output that is cut off counts as ended, with p = 1 */
} Settings;

typedef struct {
    const Model *model;
    Settings is;
    Work work;
    Source *waiting, *last, *active;
    int32_t rows, waits;          /* of the active sources; how many wait */
    Row *row;
    int32_t *ids;
    int32_t *ready;               /* finished sources: number, outputs, each as in `found` */
    size_t filled, space;
    float *every;                 /* log p of all tokens at each forced position (T, V); NULL: not kept */
    int failed;                   /* a Refusal */
} Search;

typedef enum { UNKNOWN = 0, NO_MEMORY = -1, NO_NUMBERS = -2, TOO_LONG = -3, UNFIT = -4, NO_TERM = -5 } Refusal;

static void free_source(Source *s) {
    if (!s) return;
    free(s->memory), free(s->values), free(s->final), free(s->context), free(s->cache);
    free(s->ancestor), free(s->tokens), free(s->state), free(s->spare), free(s->prefix);
    free(s->prompt), free(s->place), free(s->total), free(s->utf8), free(s->done), free(s->best);
    free(s->vocabulary), free(s->never), free(s->terms), free(s->forced), free_linear(&s->some), free(s->forbids), free(s->found);
    free(s);
}

static int32_t *copy_of(const int32_t *from, int count) {
    int32_t *to = malloc((count + 1) * sizeof(int32_t));
    if (to && count) memcpy(to, from, count * sizeof(int32_t));
    return to;
}

/* Room for one more position of every hypothesis. */
static int grow(Source *s) {
    if (s->read < s->capacity && s->written < s->capacity) return 1;
    const size_t capacity = s->capacity ? 2 * (size_t)s->capacity : 32, cells = capacity * s->width;
    float *cache = realloc(s->cache, (cells * s->model->decoder.cache + 1) * sizeof(float));
    if (cache) s->cache = cache;
    int32_t *ancestor = realloc(s->ancestor, cells * sizeof(int32_t));
    if (ancestor) s->ancestor = ancestor;
    int32_t *tokens = realloc(s->tokens, cells * sizeof(int32_t));
    if (tokens) s->tokens = tokens;
    if (!cache || !ancestor || !tokens) return 0;
    s->capacity = capacity;
    return 1;
}

static int append(int32_t **to, size_t *filled, size_t *room, const int32_t *from, size_t count) {
    if (*filled + count > *room) {
        const size_t wanted = 2 * (*filled + count);
        int32_t *larger = realloc(*to, wanted * sizeof(int32_t));
        if (!larger) return 0;
        *to = larger, *room = wanted;
    }
    memcpy(*to + *filled, from, count * sizeof(int32_t));
    *filled += count;
    return 1;
}

static int32_t bits_of(float x) {
    int32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

static float float_of(int32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

static int32_t id_of(const Source *s, int32_t place) {
    return s->allowed ? s->vocabulary[place] : place;
}

/* lp(y) = ((5 + |y|) / 6)^α for an output of so many tokens with its end. */
static float penalty(const Search *q, int length) {
    const float offset = q->is.length_offset;
    return q->is.sampling ? 1 : (float)pow((offset + length) / (offset + 1), q->is.length_penalty);
}

/* Keep an output: what a hypothesis has written, and for one that ended nothing more. */
static int collect(const Search *q, Source *s, int hypothesis, float log_p, int ended) {
    const float score = log_p / penalty(q, s->written + (ended || q->is.forced_end));
    const int32_t head[] = {s->written, ended, bits_of(log_p), bits_of(score)};
    int made = append(&s->found, &s->filled, &s->room, head, 4);
    for (int t = 0; made && t < s->written; t++)
        made = append(&s->found, &s->filled, &s->room, s->tokens + (size_t)t * s->width + hypothesis, 1);
    int rank = s->outputs < s->width ? s->outputs : s->width; /* among the best, from the highest */
    for (; rank > 0 && s->best[rank - 1] < score; rank--)
        if (rank < s->width) s->best[rank] = s->best[rank - 1];
    if (rank < s->width) s->best[rank] = score;
    s->outputs++;
    return made;
}

/* ------------------------------------------------------------------------------ the next token */

/* −∞ for tokens after which an n-gram of tokens would occur twice in a hypothesis. */
static void forbid_repeats(const Source *s, int hypothesis, int n, float *z) {
#define WRITTEN(t) s->tokens[(size_t)(t) * s->width + hypothesis]
    for (int t = 0; t + n <= s->written; t++) {
        int same = 1;
        for (int i = 0; same && i < n - 1; i++) same = WRITTEN(t + i) == WRITTEN(s->written - n + 1 + i);
        if (same) z[WRITTEN(t + n - 1)] = -INFINITY;
    }
#undef WRITTEN
}

static int next_state(const Search *q, const Source *s, int state, int place) {
    return q->is.after[(size_t)state * q->model->vocabulary + id_of(s, place)] & 15;
}

/* From which states so many more tokens finish a character; see decode/constraints.py. */
static void see_characters(const Search *q, Source *s, int size) {
    uint16_t finished = 1 << WHOLE;
    for (int more = 0; more <= LONGEST; more++) {
        uint16_t open = 0; /* states from which a token leads to one of them */
        for (int state = 0; state < STATES; state++)
            for (int v = 0; v < size; v++)
                open |= (finished >> next_state(q, s, state, v) & 1) << state;
        s->finished[more] = finished, s->stuck[more] = ~open, finished |= open;
    }
}

/* −∞ for tokens that may not follow inside a character, or that could not be finished in time. */
static void bar(const Search *q, const Source *s, int hypothesis, float *z, int size) {
    const int left = s->limit - s->written, state = s->utf8[hypothesis];
    int more = left - 1 < LONGEST ? left - 1 : LONGEST;
    if (s->stuck[more] >> state & 1) more = LONGEST; /* too few are left: as if there were enough */
    for (int v = 0; v < size; v++)
        if (!(s->finished[more] >> next_state(q, s, state, v) & 1)) z[v] = -INFINITY;
}

/* What a search sees of the logits z (V) of a hypothesis: log p(v) = z_v − log Z, −∞ where v may not
 * come. Inside a given prefix there is one choice, whose log p is that of the model, or 0. */
static float constrain(const Search *q, Source *s, int hypothesis, int end, float *z, int size,
                       float *spare) {
    const Settings *is = &q->is;
    for (int i = 0; i < s->nevers; i++) z[s->never[i]] = -INFINITY;
    const float log_z = log_sum_exp(z, size);
    if (s->written < s->given) {
        const int only = s->prefix[s->written];
        const float own = z[only];
        for (int v = 0; v < size; v++) z[v] = -INFINITY;
        z[only] = own;
        return is->certain && only >= is->certain ? own : log_z;
    }
    if (is->ruled && is->after) memcpy(spare, z, size * sizeof(float));
    if (is->no_repeat) forbid_repeats(s, hypothesis, is->no_repeat, z);
    if (s->written < is->shortest) z[end] = -INFINITY;
    for (size_t i = 0; i < s->forbidden; i += 2)
        if (s->forbids[i] == hypothesis) z[s->forbids[i + 1]] = -INFINITY;
    if (is->after) bar(q, s, hypothesis, z, size);
    if (is->ruled && maximum(z, size) == -INFINITY) { /* no token is left: the output ends, p = 1 */
        if (is->after && s->utf8[hypothesis] != WHOLE) { /* but a character is finished first */
            memcpy(z, spare, size * sizeof(float));
            bar(q, s, hypothesis, z, size);
        } else z[end] = log_z;
    }
    return log_z;
}

enum { BLOCK_OF_SCORES = 64 };

static int insert(float v, int at, float *value, int32_t *index, int count, int k) {
    if (count == k && !(v > value[k - 1])) return count;
    int i = count < k ? count++ : k - 1;
    for (; i > 0 && v > value[i - 1]; i--) value[i] = value[i - 1], index[i] = index[i - 1];
    value[i] = v, index[i] = at;
    return count;
}

/* The k highest of z, best first, of equals the first: looked for in the k blocks of the highest
 * maxima alone. `maxima` is room for one number of each block. */
static int highest(const float *z, int size, int k, float *value, int32_t *index, float *maxima) {
    const int blocks = (size + BLOCK_OF_SCORES - 1) / BLOCK_OF_SCORES;
    int count = 0;
    for (int b = 0; b < blocks; b++) {
        const int left = size - b * BLOCK_OF_SCORES;
        maxima[b] = maximum(z + b * BLOCK_OF_SCORES, left < BLOCK_OF_SCORES ? left : BLOCK_OF_SCORES);
        count = insert(maxima[b], b, value, index, count, k);
    }
    const float least = count < k ? -INFINITY : value[k - 1];
    count = 0;
    for (int b = 0; b < blocks; b++)
        if (maxima[b] >= least)
            for (int i = b * BLOCK_OF_SCORES; i < size && i < (b + 1) * BLOCK_OF_SCORES; i++)
                count = insert(z[i], i, value, index, count, k);
    return count;
}

/* Hypothesis j goes on as hypothesis parent[j] with one more token; n of them. */
static void go_on(Source *s, int n, const int32_t *parent, const int32_t *token, const Search *q) {
    const int width = s->width;
    int same = 1;
    for (int j = 0; j < n; j++) same &= parent[j] == j;
    int32_t *column = s->place + 2 * width;
    for (int t = 0; !same && t < s->read; t++) {
        int32_t *row = s->ancestor + (size_t)t * width;
        for (int j = 0; j < n; j++) column[j] = row[parent[j]];
        memcpy(row, column, n * sizeof(int32_t));
    }
    for (int t = 0; !same && t < s->written; t++) {
        int32_t *row = s->tokens + (size_t)t * width;
        for (int j = 0; j < n; j++) column[j] = row[parent[j]];
        memcpy(row, column, n * sizeof(int32_t));
    }
    memcpy(s->ancestor + (size_t)s->read * width, parent, n * sizeof(int32_t));
    memcpy(s->tokens + (size_t)s->written * width, token, n * sizeof(int32_t));
    s->read++, s->written++, s->live = n;
    if (!same && s->model->decoder.state) {
        const size_t size = s->model->decoder.state;
        for (int j = 0; j < n; j++)
            memcpy(s->spare + j * size, s->state + parent[j] * size, size * sizeof(float));
        float *state = s->state;
        s->state = s->spare, s->spare = state;
    }
    if (q->is.after) {
        for (int j = 0; j < n; j++) column[j] = s->utf8[parent[j]];
        for (int j = 0; j < n; j++) {
            const int state = next_state(q, s, column[j], token[j]);
            s->utf8[j] = s->finished[LONGEST] >> state & 1 ? state : WHOLE;
        }
    }
}

/* ------------------------------------------------------------------------------------- searches */

typedef struct { /* the most probable extensions, each by parent · V + token, and room to look for them */
    float *best, *value, *maxima, *spare;
    int32_t *from, *index;
} Extensions;

/* The 2k best extensions of all hypotheses; how many there are, or −1 for scores that are no numbers. */
static int best_extensions(Search *q, Source *s, float *z, int size, int most, const Extensions *e) {
    int count = 0;
    for (int j = 0; j < s->live; j++) {
        float *row = z + (size_t)j * size;
        const float log_z = constrain(q, s, j, s->end, row, size, e->spare);
        if (!(log_z < INFINITY)) return q->failed = NO_NUMBERS, -1;
        const int n = highest(row, size, most, e->value, e->index, e->maxima);
        for (int i = 0; i < n && e->value[i] > -INFINITY; i++)
            count = insert(s->total[j] + (e->value[i] - log_z), j * size + e->index[i], e->best, e->from,
                           count, 2 * s->width);
    }
    return count;
}

typedef struct { float log_p; int32_t from, bank, turn, forced; } InBank;

static int by_bank(const void *a, const void *b) {
    const InBank *x = a, *y = b;
    if (x->bank != y->bank) return y->bank - x->bank;
    return x->log_p > y->log_p ? -1 : x->log_p < y->log_p ? 1 : x->from - y->from;
}

static int by_turn(const void *a, const void *b) {
    const InBank *x = a, *y = b;
    return x->turn != y->turn ? x->turn - y->turn : y->bank - x->bank;
}

/* One more extension, unless it is known or may not be; `x` is the text before it, `after` has room.
 * It has written so many ids of a term that is forced on the model; 0 where the model chose it. */
static int add_to_bank(const Search *q, const Source *s, const Text *x, Text *after, float log_p,
                       int32_t from, int token, int forced, InBank *to, int first, int count) {
    for (int i = first; i < count; i++) {
        if (to[i].from != from) continue;
        if (to[i].forced && forced > to[i].forced) to[i].forced = forced;
        return count;
    }
    if (!(log_p > -INFINITY)) return count;
    memcpy(after->met, x->met, 2 * s->named * sizeof(int32_t)), after->length = x->length;
    read_id_of_text(s, after, token, q->is.pieces);
    to[count] = (InBank){log_p, from, progress(s, after, q->is.pieces), 0, forced};
    return count + 1;
}

typedef struct { /* a hypothesis that is extended: its text, room for one more id, its scores */
    const Text *text;
    Text *after;
    float *row, log_z;
    int32_t j, size, first;
    InBank *each;
} Extended;

#define ADD(v, forced) all = add_to_bank(q, s, h->text, h->after, s->total[h->j] + (h->row[v] - h->log_z), \
                                         h->j * h->size + (v), v, forced, h->each, h->first, all)

static int add_likely(const Search *q, const Source *s, const Extended *h, const Extensions *e, int all) {
    const int likely = (s->written ? s->width : 1) + 1, k = likely < h->size ? likely : h->size;
    const int n = highest(h->row, h->size, k, e->value, e->index, e->maxima);
    for (int i = 0; i < n; i++) ADD(e->index[i], 0);
    return all;
}

/* The extensions that complete a term of which so many ids are written; once it is written those that
 * do not continue its word. */
static int add_committed(const Search *q, const Source *s, const Extended *h, const Extensions *e,
                         int written, int top, int all) {
    const uint8_t *pieces = q->is.pieces;
    int closed = 0, others = 0;
    EACH_SPELLING(p, s)
        if (p[LENGTH] >= written && ends_with(h->text, p, written, pieces)) {
            if (p[LENGTH] == written) closed = 1;
            else ADD(p[IDS + written], written + 1);
        }
    for (int v = 0; closed && v < h->size; v++) others |= !(pieces[v] & GOES_ON) && h->row[v] > -INFINITY;
    if (!others) return all;
    for (int v = 0; v < h->size; v++) if (pieces[v] & GOES_ON) h->row[v] = -INFINITY;
    all = add_likely(q, s, h, e, all);
    if (top >= 0) EACH_SPELLING(p, s)
        if (!(p[FLAGS] & BARE) && !holds(h->text, p[TERM]) && ends_with(h->text, p, 0, pieces))
            ADD(p[IDS], 1);
    return all;
}

/* The likely extensions, those that continue a term, and those that begin one where a word begins: as
 * the most probable token does, which is −1 where the text would end. */
static int add_free(const Search *q, const Source *s, const Extended *h, const Extensions *e, int top,
                    int all) {
    const uint8_t *pieces = q->is.pieces;
    all = add_likely(q, s, h, e, all);
    EACH_SPELLING(p, s) {
        const int bare = p[FLAGS] & BARE, apart = bare && !(pieces[p[IDS]] & GOES_ON);
        const int begins = top >= 0 && (apart || bare == (pieces[top] & GOES_ON)) &&
                           !holds(h->text, p[TERM]);
        for (int i = !begins; i < p[LENGTH]; i++)
            if (ends_with(h->text, p, i, pieces)) ADD(p[IDS + i], i + 1);
    }
    return all;
}
#undef ADD

/* The same with terms: the likely extensions and those that continue a term, in turn the best one of
 * each bank, from the fullest one down (Hokamp & Liu, 2017; Post & Vilar, 2018). */
static int extensions_in_banks(Search *q, Source *s, float *z, int size, const Extensions *e,
                               InBank *each, int32_t *numbers) {
    const int named = s->named;
    Text x = {0, numbers + 4 * named, numbers, numbers + named}, after = x;
    after.met += 2 * named, after.pending += 2 * named;
    int all = 0;
    for (int j = 0; j < s->live; j++) {
        float *row = z + (size_t)j * size;
        const float log_z = constrain(q, s, j, s->end, row, size, e->spare);
        if (!(log_z < INFINITY)) return q->failed = NO_NUMBERS, -1;
        x.length = 0;
        for (int i = 0; i < named; i++) x.met[i] = NOT_MET, x.pending[i] = 0;
        for (int t = 0; t < s->written; t++)
            read_id_of_text(s, &x, s->tokens[(size_t)t * s->width + j], q->is.pieces);
        highest(row, size, 1, e->value, e->index, e->maxima);
        const int top = e->index[0] == s->end ? -1 : e->index[0];
        const int first = all, forced = s->written ? s->forced[j] : 0;
        if (!holds_all(s, &x)) row[s->end] = -INFINITY;
        const Extended h = {&x, &after, row, log_z, j, size, first, each};
        if (forced) all = add_committed(q, s, &h, e, forced, top, all);
        if (all == first) all = add_free(q, s, &h, e, top, all);
    }
    qsort(each, all, sizeof *each, by_bank);
    for (int i = 1; i < all; i++)
        each[i].turn = each[i].bank == each[i - 1].bank ? each[i - 1].turn + 1 : 0;
    qsort(each, all, sizeof *each, by_turn);
    const int count = all < 2 * s->width ? all : 2 * s->width;
    for (int i = 0; i < count; i++) {
        e->best[i] = each[i].log_p, e->from[i] = each[i].from;
        s->forced[s->width + i] = each[i].forced;
    }
    return count;
}

static int with_terms(Search *q, Source *s, float *z, int size, int most, const Extensions *e) {
    InBank *each = malloc((size_t)s->live * (most + s->spelt) * sizeof *each);
    int32_t *numbers = malloc((4 * (size_t)s->named + s->written + 1) * sizeof *numbers);
    const int count = each && numbers ? extensions_in_banks(q, s, z, size, e, each, numbers)
                                      : (q->failed = NO_MEMORY, -1);
    free(each), free(numbers);
    return count;
}

/* A position of a beam: the 2k best extensions of all hypotheses; of these, the first k that end
 * within the k best are outputs, and the first k others go on. True while the source goes on. */
static int extend_beam(Search *q, Source *s, float *z, int size, float *room) {
    const int k = s->width, most = k + 1 < size ? k + 1 : size, end = s->end;
    Extensions e = {.best = room, .value = room + 2 * k};
    e.maxima = e.value + most;
    e.from = (int32_t *)(e.maxima + size / BLOCK_OF_SCORES + 1), e.index = e.from + 2 * k;
    e.spare = (float *)(e.index + most);
    const int count = s->named ? with_terms(q, s, z, size, most, &e)
                               : best_extensions(q, s, z, size, most, &e);
    if (count < 0) return 0;
    int32_t *parent = s->place, *token = parent + k, kept = 0;
    float totals[k];
    const int last = s->written + 1 >= s->limit;
    int collected = 0;
    const int open = q->is.stop == SHRINK ? k - s->outputs : count;
    for (int c = 0; c < count && c < open; c++) {
        const int32_t j = e.from[c] / size, v = e.from[c] % size;
        if (v == end) {
            if (c < k && !collect(q, s, j, e.best[c], 1)) return q->failed = NO_MEMORY, 0;
            collected |= c < k;
        } else if (kept < k) {
            if (s->named) s->forced[kept] = s->forced[k + c];
            parent[kept] = j, token[kept] = v, totals[kept++] = e.best[c];
        }
    }
    if (kept) go_on(s, kept, parent, token, q);
    memcpy(s->total, totals, kept * sizeof(float));
    int full = !kept;
    if (kept && s->outputs >= k)
        full = q->is.stop == BOUND ? s->best[k - 1] >= totals[0] / penalty(q, s->written) : collected;
    for (int j = 0; last && !(q->is.forced_end && full) && j < kept; j++)
        if (!collect(q, s, j, totals[j], 0)) return q->failed = NO_MEMORY, 0;
    return !full && !last;
}

/* splitmix64 (Steele et al., 2014) */
static uint64_t mixed_bits(uint64_t x) {
    x += 0x9E3779B97F4A7C15;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
    x = (x ^ x >> 27) * 0x94D049BB133111EB;
    return x ^ x >> 31;
}

/* A number in [0, 1) that depends on these alone. */
static double uniform(uint64_t seed, uint64_t source, uint64_t position, uint64_t output) {
    const uint64_t bits = mixed_bits(mixed_bits(mixed_bits(mixed_bits(seed) + source) + position) + output);
    return (double)(bits >> 11) * 0x1p-53;
}

typedef struct { float z; int32_t at; } Ranked;

static int by_score(const void *a, const void *b) {
    const Ranked *x = a, *y = b;
    return x->z > y->z ? -1 : x->z < y->z ? 1 : x->at - y->at;
}

/* The logits after all filters; see decode/sample.py. */
static void filter(const Settings *is, const Source *s, int hypothesis, float *z, int size,
                   Ranked *ranked) {
    for (int t = 0; is->repetition_penalty != 1 && t < s->written; t++) {
        const int v = s->tokens[(size_t)t * s->width + hypothesis];
        int before = 0;
        for (int u = 0; u < t; u++) before |= s->tokens[(size_t)u * s->width + hypothesis] == v;
        if (!before) z[v] = z[v] > 0 ? z[v] / is->repetition_penalty : z[v] * is->repetition_penalty;
    }
    if (is->temperature != 1) for (int v = 0; v < size; v++) z[v] /= is->temperature;
    if ((is->top_k && is->top_k < size) || is->top_p < 1) {
        for (int v = 0; v < size; v++) ranked[v] = (Ranked){z[v], v};
        qsort(ranked, size, sizeof *ranked, by_score);
    }
    if (is->top_k && is->top_k < size) {
        const float least = ranked[is->top_k - 1].z;
        for (int v = 0; v < size; v++) z[v] = z[v] < least ? -INFINITY : z[v];
    }
    if (is->top_p < 1) {
        const float most = ranked[0].z;
        double total = 0, mass = 0;
        for (int v = 0; v < size; v++) total += z[v] == -INFINITY ? 0 : exp((double)z[v] - most);
        for (int i = 0; i < size; i++) {
            const float own = z[ranked[i].at];
            if (i && mass / total >= is->top_p) z[ranked[i].at] = -INFINITY;
            mass += own == -INFINITY ? 0 : exp((double)own - most);
        }
    }
    if (is->min_p > 0) {
        const float least = maximum(z, size) + (float)log(is->min_p);
        for (int v = 0; v < size; v++) z[v] = z[v] < least ? -INFINITY : z[v];
    }
}

/* A position of samples: each hypothesis draws y = min {v : Σ_{w ≤ v} p(w) > u}. */
static int extend_samples(Search *q, Source *s, float *z, int size, float *room) {
    const int width = s->width;
    const int first = s->live == 1 && width > 1 && s->written == 0;
    float *scores = room, *spare = scores + size;
    Ranked *ranked = (Ranked *)(spare + size);
    int32_t *parent = s->place, *token = parent + width;
    float totals[width];
    for (int o = 0; o < width; o++) { /* all begin in one row, from which they diverge */
        const int j = first ? 0 : o;
        parent[o] = j, totals[o] = s->total[o];
        if (s->done[o]) { token[o] = s->end; continue; }
        memcpy(scores, z + (size_t)j * size, size * sizeof(float));
        const float log_z = constrain(q, s, j, s->end, scores, size, spare);
        if (!(log_z < INFINITY)) return q->failed = NO_NUMBERS, 0;
        memcpy(spare, scores, size * sizeof(float));
        filter(&q->is, s, j, scores, size, ranked);
        const float most = maximum(scores, size);
        if (!(fabsf(most) < INFINITY)) return q->failed = NO_NUMBERS, 0;
        double total = 0, below = 0;
        for (int v = 0; v < size; v++) total += exp((double)scores[v] - most);
        const double drawn = uniform(q->is.seed, s->number, s->written, o) * total;
        int v = 0;
        for (; v < size - 1; v++) if ((below += exp((double)scores[v] - most)) > drawn) break;
        token[o] = v, totals[o] += spare[v] - log_z;
    }
    go_on(s, width, parent, token, q);
    int live = 0;
    for (int o = 0; o < width; o++) {
        s->total[o] = totals[o];
        const int ended = token[o] == s->end, last = s->written >= s->limit;
        if (!s->done[o] && (ended || last)) {
            s->written -= ended;
            const int made = collect(q, s, o, totals[o], ended);
            s->written += ended;
            if (!made) return q->failed = NO_MEMORY, 0;
        }
        s->done[o] |= ended || last;
        live += !s->done[o];
    }
    return live > 0;
}

/* ------------------------------------------------------------------------- outputs of a source */

/* Write the outputs of a source, best first and each once, to the search's results. */
static int finish(Search *q, Source *s) {
    const int all = s->outputs;
    int32_t **output = malloc((all + 1) * sizeof *output);
    if (!output) return 0;
    int32_t *at = s->found;
    for (int i = 0; i < all; i++, at += 4 + at[0]) { /* by score, of equals the first */
        int j = i;
        for (; j > 0 && float_of(output[j - 1][3]) < float_of(at[3]); j--) output[j] = output[j - 1];
        output[j] = at;
    }
    int count = all < s->width ? all : s->width, distinct = 0;
    for (int i = 0; i < count; i++) {
        int known = 0;
        for (int j = 0; j < distinct && !q->is.sampling; j++)
            known |= output[j][0] == output[i][0] && output[j][1] == output[i][1] &&
                     !memcmp(output[j] + 4, output[i] + 4, output[i][0] * sizeof(int32_t));
        if (!known) output[distinct++] = output[i];
    }
    if (distinct > q->is.best) distinct = q->is.best;
    const int32_t head[] = {s->number, distinct};
    int made = append(&q->ready, &q->filled, &q->space, head, 2);
    for (int i = 0; made && i < distinct; i++) {
        for (int t = 0; t < output[i][0]; t++) output[i][4 + t] = id_of(s, output[i][4 + t]);
        made = append(&q->ready, &q->filled, &q->space, output[i], 4 + output[i][0]);
    }
    free(output);
    return made;
}

/* ------------------------------------------------------------------------------------- the loop */

/* Memory for what a source and its hypotheses need; false where there is none. */
static int prepare(const Search *q, Source *s) {
    const Model *m = s->model;
    const Decoder *d = &m->decoder;
    const Recurrence *n = &m->encoder.recurrence;
    const size_t width = s->width, states = n->layers ? n->layers * n->cell[0].states : 0;
    s->memory = malloc((s->length * d->memory + 1) * sizeof(float));
    s->values = malloc(((size_t)s->length * m->encoder.size + 1) * sizeof(float));
    s->final = malloc((states * m->encoder.size + 1) * sizeof(float));
    s->context = malloc((d->context_size + 1) * sizeof(float));
    s->state = malloc((width * d->state + 1) * sizeof(float));
    s->spare = malloc((width * d->state + 1) * sizeof(float));
    s->place = malloc(3 * width * sizeof(int32_t)), s->total = calloc(width, sizeof(float));
    s->utf8 = calloc(width, 1), s->done = calloc(width, 1);
    s->best = calloc(width, sizeof(float));
    s->live = 1;
    if (q->is.after) see_characters(q, s, s->allowed ? s->allowed : m->vocabulary);
    return s->memory && s->values && s->final && s->context && s->state && s->spare && s->place &&
           s->total && s->utf8 && s->done && s->best && grow(s) &&
           (!s->allowed || some_outputs(&m->output, s->vocabulary, s->allowed, &s->some));
}

/* Read some sources together, up to the state before their first token. */
static int begin(Search *q, int count, Source *const *some) {
    const Model *m = q->model;
    const int32_t *ids[count];
    for (int i = 0; i < count; i++) {
        ids[i] = some[i]->prompt;
        if (!prepare(q, some[i])) return 0;
    }
    if (m->has_encoder && !encode(m, count, some, ids, &q->work)) return 0;
    for (int i = 0; m->has_decoder && i < count; i++) {
        Source *s = some[i];
        const size_t positions = (size_t)s->length + s->prompted + 1;
        if (!reserve(&q->work, m, positions, positions)) return 0;
        if (m->has_encoder) cache_memory(m, s, &q->work);
        start_states(m, s, &q->work);
    }
    return 1;
}

/* Begin to decode waiting sources while their hypotheses find room. */
static int admit(Search *q) {
    enum { TOGETHER = 64, POSITIONS = 256 };
    const int width = q->is.width;
    while (q->waiting && (!q->rows || q->rows + width <= q->is.room)) {
        Source *some[TOGETHER];
        int count = 0, positions = 0;
        while (q->waiting && count < TOGETHER && (!q->rows || q->rows + width <= q->is.room) &&
               (!count || positions + q->waiting->length <= POSITIONS)) {
            Source *s = some[count++] = q->waiting;
            positions += s->length, q->waiting = s->next, q->rows += width, q->waits--;
            if (!q->waiting) q->last = NULL;
            s->next = q->active, q->active = s;
        }
        if (!begin(q, count, some)) return 0;
    }
    return 1;
}

/* Tables and memory for tokens of the decoder up to a position. */
static int ready_for(Search *q, size_t rows, int count) {
    return reserve(&q->work, q->model, rows, count) &&
           make_tables(&q->work, 1, &q->model->decoder.stack.embedding.position, count);
}

/* Let a hypothesis read tokens, as one sequence where all positions can be computed at once; with
 * `targets` also log p of as many tokens, each after the token that is read before it. */
static int read_sequence(Search *q, Source *s, int hypothesis, const int32_t *tokens, int count,
                         const int32_t *targets, float *log_p) {
    enum { TOGETHER = 64 };
    const Model *m = q->model;
    const int at_once = m->decoder.stack.recurrence.layers ? 1 : TOGETHER;
    Row row[TOGETHER];
    for (int from = 0; from < count; from += at_once) {
        const int rows = count - from < at_once ? count - from : at_once;
        const int first = s->read, all = first + rows;
        if (all > m->positions[1]) return q->failed = TOO_LONG, 0;
        if (!ready_for(q, TOGETHER, s->length > all ? s->length : all)) return 0;
        for (int i = 0; i < rows; i++, s->read++) {
            if (!grow(s)) return 0;
            row[i] = (Row){s, hypothesis, s->read, 0};
            s->ancestor[(size_t)s->read * s->width + hypothesis] = hypothesis;
        }
        s->read = first;
        read_tokens(m, rows, row, tokens + from, &q->work);
        s->read += rows;
        if (!targets) continue;
        float *z = q->work.logits;
        apply(&m->output, rows, q->work.x, z, SET, q->work.room);
        for (int i = 0; i < rows; i++, z += m->vocabulary) {
            for (int j = 0; j < q->is.nevers; j++) z[q->is.never[j]] = -INFINITY;
            const float log_z = log_sum_exp(z, m->vocabulary);
            log_p[from + i] = z[targets[from + i]] - log_z;
            if (!isfinite(log_p[from + i])) return q->failed = NO_NUMBERS, 0;
            float *every = q->every ? q->every + (size_t)(from + i) * m->vocabulary : NULL;
            for (int v = 0; every && v < m->vocabulary; v++) every[v] = z[v] - log_z;
        }
    }
    return 1;
}

/* The id at a place of all that a hypothesis of a language model has read: start, prompt, output. */
static int32_t read_id(const Search *q, const Source *s, int hypothesis, int at) {
    if (!at) return q->is.start;
    if (at <= s->prompted) return s->prompt[at - 1];
    return id_of(s, s->tokens[(size_t)(at - 1 - s->prompted) * s->width + hypothesis]);
}

/* Let all hypotheses read what stands before the last token of their text: the prompt at first; past
 * its reach a language model reads the last half anew, as the beginning of a text. */
static int read_before(Search *q, Source *s) {
    const int text = s->prompted + s->written + 1, reach = q->is.reach;
    const int again = reach && (s->written ? s->read + 1 : text) > reach;
    if (!again && (s->written || !s->prompted)) return 1;
    const int half = reach / 2 > 1 ? reach / 2 : 1, count = (again && half < text ? half : text) - 1;
    int32_t *tokens = malloc((count + 1) * sizeof(int32_t));
    int made = tokens != NULL;
    for (int j = 0; made && j < s->live; j++) {
        for (int i = 0; i < count; i++) tokens[i] = read_id(q, s, j, text - 1 - count + i);
        memset(state_of(s, j), 0, s->model->decoder.state * sizeof(float));
        s->read = 0;
        made = read_sequence(q, s, j, tokens, count, NULL, NULL);
    }
    free(tokens);
    return made;
}

/* One position of all active sources. */
static int step(Search *q) {
    const Model *m = q->model;
    int rows = 0, longest = 0;
    for (Source *s = q->active; s; s = s->next) {
        if (!m->has_encoder && !read_before(q, s)) return 0;
        if (s->read >= m->positions[1]) return q->failed = TOO_LONG, 0;
        if (!grow(s)) return 0;
        longest = s->read > longest ? s->read : longest;
        longest = s->length > longest ? s->length : longest;
        for (int j = 0; j < s->live; j++, rows++) {
            q->row[rows] = (Row){s, j, s->read, 0};
            q->ids[rows] = read_id(q, s, j, s->prompted + s->written);
        }
    }
    if (!ready_for(q, rows, longest + 1)) return 0;
    Work *w = &q->work;
    read_tokens(m, rows, q->row, q->ids, w);
    const int size = m->decoder.output_size;
    int some = 0;
    for (Source *s = q->active; s; s = s->next) some |= s->allowed;
    if (!some) apply(&m->output, rows, w->x, w->logits, SET, w->room);
    const size_t extra = 8 * (size_t)q->is.width + 4 * (size_t)m->vocabulary + 256;
    float *room = malloc(extra * sizeof(float));
    if (!room) return 0;
    int at = 0;
    for (Source **link = &q->active; *link;) {
        Source *s = *link;
        const int live = s->live, vocabulary = s->allowed ? s->allowed : m->vocabulary;
        float *z = w->logits + (size_t)at * m->vocabulary;
        if (some)
            apply(s->allowed ? &s->some : &m->output, live, w->x + (size_t)at * size, z, SET, w->room);
        at += live;
        const int on = q->is.sampling ? extend_samples(q, s, z, vocabulary, room)
                                      : extend_beam(q, s, z, vocabulary, room);
        s->forbidden = 0;
        if (q->failed) break;
        if (on) { link = &s->next; continue; }
        if (!finish(q, s)) { q->failed = NO_MEMORY; break; }
        *link = s->next;
        q->rows -= s->width;
        free_source(s);
    }
    free(room);
    return !q->failed;
}

/* ------------------------------------------------------------------------------- what is called */

static int in_bounds(const int32_t *ids, int count, int limit) {
    for (int i = 0; i < count; i++) if (ids[i] < 0 || ids[i] >= limit) return 0;
    return count >= 0;
}

static int is_sound(const Settings *is, const Model *model) {
    enum { WIDEST = 1 << 14, ROOMIEST = 1 << 20 };
    const int32_t ids[] = {is->start, is->end};
    return is->width > 0 && is->width <= WIDEST && is->room <= ROOMIEST && is->best > 0 &&
           (int64_t)is->width * model->vocabulary <= INT32_MAX && is->reach >= 0 &&
           is->no_repeat >= 0 && is->top_k >= 0 && is->top_p > 0 && is->min_p >= 0 &&
           is->temperature > 0 && is->repetition_penalty > 0 && fabsf(is->length_penalty) < INFINITY &&
           is->length_offset >= 0 &&
           in_bounds(is->never, is->nevers, model->vocabulary) &&
           in_bounds(ids, model->has_decoder ? 2 : 0, model->vocabulary);
}

/* A search with a model; NULL where its settings are none, or without memory. They stay the caller's. */
Search *new_search(const Model *model, const Settings *settings) {
    Search *q = is_sound(settings, model) ? calloc(1, sizeof *q) : NULL;
    if (!q) return NULL;
    q->model = model, q->is = *settings;
    if (q->is.room < q->is.width) q->is.room = q->is.width;
    const size_t rows = (size_t)q->is.room + q->is.width;
    q->row = malloc(rows * sizeof(Row)), q->ids = malloc(rows * sizeof(int32_t));
    if (!q->row || !q->ids) { free(q->row), free(q->ids), free(q); return NULL; }
    return q;
}

/* Drop all sources, and what they have given. */
void clear(Search *q) {
    Source *lists[] = {q->active, q->waiting};
    for (int i = 0; i < 2; i++)
        for (Source *s = lists[i], *next; s; s = next) next = s->next, free_source(s);
    q->active = q->waiting = q->last = NULL;
    q->rows = q->waits = q->failed = 0, q->filled = 0;
}

void free_search(Search *q) {
    if (!q) return;
    clear(q);
    free_work(&q->work);
    for (int i = 0; i < 2; i++) free(q->work.angles[i]), free(q->work.waves[i]);
    free(q->row), free(q->ids), free(q->ready), free(q);
}

/* A source of a search; NULL with a refusal. */
static Source *new_source(const Search *q, int number, const int32_t *ids, int count, int *refusal) {
    const Model *m = q->model;
    const int reads = m->has_encoder ? m->encoder.embedding.table.rows : m->vocabulary;
    if ((m->has_encoder && !count) || !in_bounds(ids, count, reads)) return *refusal = UNKNOWN, NULL;
    if (count > (m->has_encoder ? m->positions[0] : MOST)) return *refusal = TOO_LONG, NULL;
    Source *s = calloc(1, sizeof *s);
    *refusal = NO_MEMORY;
    if (!s) return NULL;
    s->model = m, s->number = number, s->width = q->is.width;
    s->length = m->has_encoder ? count : 0;
    s->prompt = copy_of(ids, count), s->prompted = m->has_encoder ? 0 : count;
    return s->prompt ? s : (free_source(s), NULL);
}

static int place_of(const Source *s, int32_t id) {
    for (int v = 0; v < s->allowed; v++) if (s->vocabulary[v] == id) return v;
    return s->allowed ? -1 : id;
}

/* Let a source be decoded: ids that the encoder reads or that stand behind the start of a language
 * model, those with which outputs begin, and those that may be written (none: all; not both). Else a
 * refusal. */
int add_source(Search *q, int number, const int32_t *ids, int count, const int32_t *prefix, int given,
               int limit, const int32_t *vocabulary, int allowed) {
    const int size = q->model->vocabulary, nevers = q->is.nevers;
    if (!q->model->has_decoder || limit < 1 || (given && allowed)) return UNFIT;
    if (!in_bounds(prefix, given, size) || !in_bounds(vocabulary, allowed, size)) return UNKNOWN;
    int refusal;
    Source *s = new_source(q, number, ids, count, &refusal);
    if (!s) return refusal;
    s->limit = limit, s->prefix = copy_of(prefix, given), s->given = given;
    s->vocabulary = copy_of(vocabulary, allowed), s->allowed = allowed;
    s->never = copy_of(q->is.never, nevers);
    if (!s->prefix || !s->vocabulary || !s->never) return free_source(s), NO_MEMORY;
    for (int i = 0; i < nevers; i++) {
        const int place = place_of(s, s->never[i]);
        if (place >= 0) s->never[s->nevers++] = place;
    }
    s->end = place_of(s, q->is.end);
    if (s->end < 0) return free_source(s), UNKNOWN;
    if (q->last) q->last->next = s;
    else q->waiting = s;
    q->last = s, q->waits++;
    return 1;
}

/* Log p of each token of a given output, whose last one is its end; else a refusal. */
int force(Search *q, const int32_t *ids, int count, const int32_t *target, int length, float *log_p) {
    if (!q->model->has_decoder) return UNFIT;
    if (!in_bounds(target, length, q->model->vocabulary)) return UNKNOWN;
    int refusal;
    Source *s = new_source(q, 0, ids, count, &refusal);
    if (!s) return refusal;
    const int before = s->prompted;
    int32_t *tokens = malloc(((size_t)before + length + 1) * sizeof(int32_t));
    int made = tokens && begin(q, 1, &s);
    if (made) {
        tokens[0] = q->is.start;
        memcpy(tokens + 1, s->prompt, before * sizeof(int32_t));
        memcpy(tokens + 1 + before, target, (length > 0 ? length - 1 : 0) * sizeof(int32_t));
        made = read_sequence(q, s, 0, tokens, before, NULL, NULL) &&
               read_sequence(q, s, 0, tokens + before, length, target, log_p);
    }
    refusal = q->failed ? q->failed : NO_MEMORY, q->failed = 0;
    free(tokens), free_source(s);
    return made ? 1 : refusal;
}

/* The scores of all labels for one text; else a refusal. */
int classify(Search *q, const int32_t *ids, int count, float *scores, int labels) {
    const Model *m = q->model;
    int refusal = UNFIT;
    Source *s = !m->has_decoder && labels == m->labels ? new_source(q, 0, ids, count, &refusal) : NULL;
    if (!s) return refusal;
    const int made = begin(q, 1, &s);
    if (made) {
        Work *w = &q->work;
        const int size = m->encoder.size;
        float *pooled = w->mixed;
        if (m->pooling == POOL_FIRST) memcpy(pooled, s->values, size * sizeof(float));
        else if (m->pooling == POOL_MAX) {
            memcpy(pooled, s->values, size * sizeof(float));
            for (int t = 1; t < count; t++)
                for (int i = 0; i < size; i++) {
                    const float value = s->values[(size_t)t * size + i];
                    pooled[i] = value > pooled[i] ? value : pooled[i];
                }
        } else if (m->pooling == POOL_ATTENTION) {
            const Attention *a = &m->pooling_attention;
            const int far = cached_floats(a);
            if (a->joint.out) apply(&a->joint, count, s->values, w->wide, SET, w->room);
            for (int t = 0; t < count; t++) {
                w->keys[t] = w->cached + (size_t)t * far;
                cache_position(a, w->wide + (size_t)t * a->joint.out, s->values + (size_t)t * size,
                               NULL, w->cached + (size_t)t * far, w);
            }
            const float *query = m->pooling_query;
            if (a->query.out) apply(&a->query, 1, query, w->gate, SET, w->room), query = w->gate;
            if (w->taps) take(w, a, QUERY, query, (int64_t)a->heads * a->query_size);
            attend(a, NULL, query, 0, count, w->keys, w->h, w);
            put_output(a, 1, size, w->h, pooled, SET, w);
        } else summarize(m, s, m->pooling == POOL_MEAN, pooled);
        apply(&m->output, 1, pooled, scores, SET, w->room);
    }
    free_source(s);
    for (int i = 0; made && i < labels; i++) if (!isfinite(scores[i])) return NO_NUMBERS;
    return made ? 1 : NO_MEMORY;
}

/* Let taps take what layers compute, until the next call; their memory stays the caller's. */
void observe(Search *q, Tap *tap, int taps) { q->work.tap = tap, q->work.taps = taps; }

/* Let `force` write log p of all tokens at each position, until the next call; how many tokens there
 * are. The memory stays the caller's. */
int keep_all(Search *q, float *to) { return q->every = to, q->model->vocabulary; }

/* Decode up to so many positions, but stop once a source is finished; how many sources are left, or
 * a refusal: nothing more is decoded then. */
int advance(Search *q, int positions) {
    for (int i = 0; i < positions && (q->active || q->waiting) && !q->failed; i++) {
        if ((!admit(q) || !step(q)) && !q->failed) q->failed = NO_MEMORY;
        if (q->filled) break;
    }
    int left = q->waits;
    for (Source *s = q->active; s; s = s->next) left++;
    return q->failed ? q->failed : left;
}

/* How many numbers the finished sources have taken since; they are copied where these find room. */
int64_t results(Search *q, int32_t *to, int64_t room) {
    const int64_t count = q->filled;
    if (!count || count > room) return count;
    memcpy(to, q->ready, count * sizeof(int32_t));
    q->filled = 0;
    return count;
}

/* The sources that are being decoded: number, hypotheses and tokens of each; of each hypothesis log p
 * and ids. As `results`. */
int64_t hypotheses(const Search *q, int32_t *to, int64_t room) {
    int64_t count = 0;
    for (const Source *s = q->active; s; s = s->next) count += 3 + (int64_t)s->live * (1 + s->written);
    if (count > room) return count;
    for (const Source *s = q->active; s; s = s->next) {
        *to++ = s->number, *to++ = s->live, *to++ = s->written;
        for (int j = 0; j < s->live; j++) {
            *to++ = bits_of(s->total[j]);
            for (int t = 0; t < s->written; t++) *to++ = id_of(s, s->tokens[(size_t)t * s->width + j]);
        }
    }
    return count;
}

/* Let the outputs of the source that was added last hold terms (terms.h); else a refusal. */
int require(Search *q, const int32_t *terms, int count) {
    Source *s = q->last;
    int named;
    if (!s || s->allowed || !q->is.pieces || q->is.sampling) return NO_TERM;
    if (!are_terms(terms, count, &named)) return NO_TERM;
    free(s->terms), free(s->forced), s->named = 0;
    s->terms = copy_of(terms, count), s->forced = calloc(3 * (size_t)s->width, sizeof(int32_t));
    if (!s->terms || !s->forced) return NO_MEMORY;
    s->spelt = count;
    EACH_SPELLING(p, s) if (!in_bounds(p + IDS, p[LENGTH], q->model->vocabulary)) return UNKNOWN;
    return s->named = named, 1;
}

/* Let ids not follow hypotheses of a source (pairs) at its next position; else a refusal. */
int forbid(Search *q, int number, const int32_t *pairs, int count) {
    Source *s = q->last && q->last->number == number ? q->last : q->active;
    while (s && s->number != number) s = s->next;
    if (!s) return UNKNOWN;
    for (int i = 0; i < count; i++) {
        if (!in_bounds(pairs + 2 * i + 1, 1, q->model->vocabulary)) return UNKNOWN;
        const int32_t pair[] = {pairs[2 * i], place_of(s, pairs[2 * i + 1])};
        if (pair[1] >= 0 && !append(&s->forbids, &s->forbidden, &s->forbid_room, pair, 2))
            return NO_MEMORY;
    }
    return 1;
}
