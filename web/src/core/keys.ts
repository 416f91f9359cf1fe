// Keys that go along a row of things: arrows by one, Home and End to its ends.
const STEPS: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 };

/** What listens to keys on an element, moves by so many, and says whether the key was one of these. */
export const alongOf = (element: Element, move: (by: number) => void) => (event: KeyboardEvent): boolean => {
  const by = event.target === element ? STEPS[event.key] : undefined;
  if (by !== undefined) move(by);
  return by !== undefined;
};
