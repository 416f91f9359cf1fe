// Outputs that are valid UTF-8: the states of its automaton behind each token (`foveate.decode.engine`).
const WHOLE = 0, REJECTED = 8, STATES = 8, SILENT = [1, 2, 3];
const FIRST = [[0x00, 0x7f, 0], [0xc2, 0xdf, 1], [0xe0, 0xe0, 4], [0xe1, 0xec, 2], [0xed, 0xed, 5], [0xee, 0xef, 2], [0xf0, 0xf0, 6], [0xf1, 0xf3, 3], [0xf4, 0xf4, 7]];
const NEXT = [
  [], [[0x80, 0xbf, 0]], [[0x80, 0xbf, 1]], [[0x80, 0xbf, 2]], [[0xa0, 0xbf, 1]], [[0x80, 0x9f, 1]], [[0x90, 0xbf, 2]], [[0x80, 0x8f, 2]],
];

const after = (state: number, byte: number) =>
  (state === WHOLE ? FIRST : NEXT[state] ?? []).find(([from, to]) => byte >= from! && byte <= to!)?.[2] ?? REJECTED;

/** The state behind each token (8, V); undefined where each is valid by itself. */
export function tokenStates(surfaces: readonly Uint8Array[]): Uint8Array | undefined {
  const states = new Uint8Array(STATES * surfaces.length);
  for (let state = 0; state < STATES; state++)
    surfaces.forEach((surface, id) => (states[state * surfaces.length + id] = surface.reduce(after, state)));
  if (states.subarray(0, surfaces.length).every((state) => state === WHOLE)) return undefined;
  for (let state = 1; state < STATES; state++) for (const id of SILENT) states[state * surfaces.length + id] = REJECTED;
  return states;
}
