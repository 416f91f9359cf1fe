// Heads that add nothing (Michel et al., 2019), by weights that are 0.
import type { Tensor } from "./compiled";
import type { Packed } from "./packed";

/** A matrix without the numbers of some columns, or a matrix or vector without those of some rows. */
function without(tensor: Tensor, side: "rows" | "columns", from: number, to: number): Tensor {
  const values = tensor.values.slice(), wide = tensor.shape[1] ?? 1;
  if (side === "rows") values.fill(0, from * wide, to * wide);
  else for (let row = 0; row < tensor.shape[0]!; row++) values.fill(0, row * wide + from, row * wide + to);
  return { ...tensor, values };
}

/** The number of the tensor of a part of an attention among the weights of a file; -1 where there is none. */
export function placeOf({ names }: Packed, attention: string, part: string): number {
  const own = `${attention.replace(".layers.", ".")}.${part}`;
  return names.findIndex((name) => name.slice(name.indexOf(".") + 1) === own);
}

/** The weights of a file where a head of an attention (null: each of its `heads`) has values that are 0, or is left out of the output. */
export function silenced(packed: Packed, attention: string, head: number | null, heads: number): Tensor[] {
  const { weights } = packed, at = (part: string) => placeOf(packed, attention, part);
  const value = at("value.weight"), output = at("output.weight"), rows = weights[value]?.shape[0];
  const hasValues = rows !== undefined && rows === (weights[output]?.shape[1] ?? rows); // of its own, which no other head reads
  const chosen = hasValues ? [value, at("value.bias")] : [output], side = hasValues ? "rows" : "columns";
  if (!heads || chosen[0]! < 0) throw new Error(`this page cannot silence ${attention}: its values are not projected`);
  return weights.map((tensor, n) => {
    if (!chosen.includes(n)) return tensor;
    const size = tensor.shape[side === "rows" ? 0 : 1]! / heads;
    return head === null ? without(tensor, side, 0, size * heads) : without(tensor, side, head * size, (head + 1) * size);
  });
}
