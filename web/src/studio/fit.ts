// How large a drawing is on a slide: as high as the room, then as large as its width allows. Pure functions.

/** Pixels that the middle of a drawing may be high, and how much larger than its own pixels all of it is. */
export interface Fit { tall: number; grow: number }

/** What came of a fit: pixels it is high, and the share of the width that is used; above 1 where something is cut. */
export interface Tried extends Fit { high: number; used: number }

const MOST = 1.6, TURNS = 6, SLACK = 6, LEAST = 60; // of growth; tries; pixels that may stay empty; of a drawing's middle
const SHORT = 0.94; // of growth after a try that was cut
const SMALL = 0.65, NEAR = 0.12; // of growth where type of the usual size leaves no room for all of a drawing; of two tries between which no other pays

/** A fit between the largest in which nothing is cut and the smallest in which something is, for drawings whose lines break anew. */
function between(tries: readonly Tried[], { tall, grow }: Tried, room: number): Fit | undefined {
  const isCut = (each: Tried) => each.high > room / each.grow + 1, whole = tries.filter((each) => each.grow < 1 && !isCut(each)).map((each) => each.grow);
  const most = Math.max(...whole), least = Math.min(...tries.filter(isCut).map((each) => each.grow));
  if (grow >= least) return whole.length ? { tall, grow: most } : undefined;
  return least - grow > NEAR && tries.length < TURNS ? { tall, grow: (least + grow) / 2 } : undefined;
}

/** The fit to try next, of so many lines of drawings in so much room; none where the last is kept. `tries` is what was tried. */
export function better(tries: Tried[], now: Tried, room: number, lines: number): Fit | undefined {
  const before = tries.at(-1), { tall, grow, high, used } = now;
  if (before?.tall === tall && before.grow === grow && before.high === high && before.used === used) return undefined;
  tries.push(now);
  if (tries.length > TURNS) return undefined;
  const free = room / grow - high;
  if (grow < 1) return between(tries, now, room);
  if (grow > 1 && (free < 0 || used > 1)) return { tall, grow: Math.max(1, grow * SHORT) };
  const stretched = { tall: Math.max(LEAST, tall + free / lines), grow };
  const isStiff = free >= 0 && before?.grow === grow && before.tall !== tall && Math.abs(before.high - high) < 1; // another height of the middle changes nothing
  const isOver = free > 0 && tries.some((each) => each.grow === grow && each.tall <= stretched.tall && each.high > room / grow); // rows that grow together
  if (!isStiff && !isOver && (free < 0 || free > SLACK) && Math.abs(stretched.tall - tall) > 1) return stretched;
  if (free < -1 && grow <= 1 && grow > SMALL) return { tall, grow: Math.max(SMALL, (0.98 * room) / high) };
  const larger = Math.min(MOST, 0.98 / used, room / high);
  return grow === 1 && used <= 1 && larger > 1.05 ? { tall: tall / larger, grow: larger } : undefined;
}
