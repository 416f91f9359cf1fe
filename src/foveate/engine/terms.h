/* Terms that the outputs of a source must hold; see decode/constraints.py: RequiredPhrases.
 *
 * They are numbers: of each spelling its term, flags (it brings no blank of its own, it only begins a
 * text), how many ids it has, and these. What a text holds of them follows from its ids alone. */

enum { GOES_ON = 1, IN_WORD = 2 };    /* a token continues a word; it ends inside one */
enum { TERM, FLAGS, LENGTH, IDS };    /* of a spelling */
enum { BARE = 1, INITIAL = 2 };
enum { NOT_MET = INT32_MAX };

typedef struct { /* a text, and for each term the place from which it is met, and whether it is unless
                    the next token continues the word */
    int32_t length, *ids, *met, *pending;
} Text;

#define EACH_SPELLING(p, s) \
    for (const int32_t *p = (s)->terms; p < (s)->terms + (s)->spelt; p += IDS + p[LENGTH])

/* Whether a text ends with so many ids of a spelling, which began before its term was met. */
static int ends_with(const Text *x, const int32_t *spelling, int count, const uint8_t *pieces) {
    const int from = x->length - count;
    if (from < 0 || x->met[spelling[TERM]] <= from) return 0;
    if (spelling[FLAGS] & INITIAL && from) return 0;
    if (spelling[FLAGS] & BARE && from && pieces[x->ids[from - 1]] & IN_WORD) return 0;
    return !memcmp(x->ids + from, spelling + IDS, count * sizeof(int32_t));
}

static int holds(const Text *x, int term) { return x->pending[term] || x->met[term] != NOT_MET; }

static int holds_all(const Source *s, const Text *x) {
    for (int i = 0; i < s->named; i++) if (!holds(x, i)) return 0;
    return 1;
}

static void read_id_of_text(const Source *s, Text *x, int32_t id, const uint8_t *pieces) {
    for (int i = 0; i < s->named && !(pieces[id] & GOES_ON); i++)
        if (x->pending[i] && x->met[i] == NOT_MET) x->met[i] = x->length;
    memset(x->pending, 0, s->named * sizeof(int32_t));
    x->ids[x->length++] = id;
    EACH_SPELLING(p, s) if (ends_with(x, p, p[LENGTH], pieces)) x->pending[p[TERM]] = 1;
}

/* How many ids of terms a text has: those of the terms it holds, and of the one that is furthest. */
static int progress(const Source *s, const Text *x, const uint8_t *pieces) {
    int term = -1, whole = 0, longest = 0, begun = 0;
    EACH_SPELLING(p, s) {
        if (p[TERM] != term) term = p[TERM], whole += longest, longest = 0;
        if (holds(x, term)) longest = p[LENGTH] > longest ? p[LENGTH] : longest;
        else for (int i = begun + 1; i < p[LENGTH]; i++) if (ends_with(x, p, i, pieces)) begun = i;
    }
    return whole + longest + begun;
}

/* Whether numbers spell terms 0, 1, …, in their order; how many of these there are. */
static int are_terms(const int32_t *numbers, int count, int *terms) {
    int term = -1;
    for (int i = 0; i < count; i += IDS + numbers[i + LENGTH]) {
        const int32_t *p = numbers + i, left = count - i - IDS;
        if (left < 1 || p[LENGTH] < 1 || p[LENGTH] > left) return 0;
        if ((p[TERM] != term && p[TERM] != term + 1) || p[TERM] < 0 || p[FLAGS] >> 2) return 0;
        term = p[TERM];
    }
    return *terms = term + 1, 1;
}
