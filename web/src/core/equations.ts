// Equations of attention, positions and recurrence, as Python computes them. Pure functions.

type Vector = ArrayLike<number>;

export const range = (count: number): number[] => Array.from({ length: count }, (_, k) => k);
export const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0);
export const dot = (a: Vector, b: Vector): number => sum(range(a.length).map((k) => a[k]! * b[k]!));
export const norm = (a: Vector): number => Math.sqrt(dot(a, a));
/** M v of a matrix whose rows lie one after the other. */
export const times = (matrix: Vector, v: Vector): number[] =>
  range(matrix.length / v.length).map((row) => sum(range(v.length).map((k) => matrix[row * v.length + k]! * v[k]!)));

/** exp(e_i / τ) / Σ_j exp(e_j / τ). */
export function softmax(scores: readonly number[], temperature = 1): number[] {
  const top = Math.max(...scores), powers = scores.map((e) => Math.exp((e - top) / temperature)), total = sum(powers);
  return powers.map((power) => power / total);
}

/** cos(q, k). */
export const cosine = (q: Vector, k: Vector): number => dot(q, k) / (Math.max(norm(q), 1e-12) * Math.max(norm(k), 1e-12));
export const scaledDot = (q: Vector, k: Vector): number => dot(q, k) / Math.sqrt(q.length);
/** vᵀ tanh(q + k). */
export const additive = (v: Vector, q: Vector, k: Vector): number => dot(v, range(q.length).map((i) => Math.tanh(q[i]! + k[i]!)));
/** qᵀ W k. */
export const general = (weight: Vector, q: Vector, k: Vector): number => dot(q, times(weight, k));

/** exp(−(s − p)² / 2σ²). */
export const gaussian = (distance: number, deviation: number): number => Math.exp(-(distance ** 2) / (2 * deviation ** 2));
