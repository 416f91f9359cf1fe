// The maps of one block of a model, taken apart when they are asked for.
import { smallLevels, type Matrix, type Scale } from "./levels";
import { decode, floats, type Values } from "./numbers";
import type { AttentionDrawing, Block } from "./types";

const KEPT = 4_000_000; // cells of maps as numbers; the bytes that they are made of stay anyway

export class BlockMaps {
  private readonly layers: (Values | undefined)[];
  private readonly kept = new Map<string, Matrix>();
  failure = "";

  /** `arrived` is called for each layer that had to be fetched, when it is there or has failed. */
  constructor(readonly block: Block, arrived: (layer: number) => void) {
    this.layers = block.layers.map((numbers, layer) => {
      const values = decode(numbers);
      if (!(values instanceof Promise)) return values;
      values.then((made) => { this.layers[layer] = made; }, (error: unknown) => { this.failure = String(error); })
        .finally(() => arrived(layer));
      return undefined;
    });
  }

  heads(layer: number): number {
    return this.block.layers[layer]?.shape[0] ?? 0;
  }

  /** One head, or the mean of all where `head` is null; undefined while it is on its way. */
  map(layer: number, head: number | null): Matrix | undefined {
    const values = this.layers[layer];
    if (!values) return undefined;
    const name = `${layer}/${head}`, known = this.kept.get(name);
    if (known) return known;
    const [heads = 0, height = 0, width = 0] = values.shape, size = height * width;
    const made = head === null ? floats(values, 0, size, heads) : floats(values, head * size, size);
    const map = { height, width, values: made };
    this.kept.set(name, map);
    if (this.kept.size > 2 && this.kept.size * size > KEPT) this.kept.delete(this.kept.keys().next().value!);
    return map;
  }

  /** Levels of a map, at most `side` × `side`: thin lines stay, since tiles keep their largest. */
  small(layer: number, head: number | null, scale: Scale, side: number) {
    const values = this.layers[layer], [, height = 0, width = 0] = values?.shape ?? [], tile = Math.ceil(Math.max(height, width) / side);
    if (!values) return undefined;
    if (head === null) return smallLevels(this.map(layer, null)!.values, 0, { height, width, tile, scale, unit: 1 });
    return smallLevels(values.raw, head * height * width, { height, width, tile, scale, unit: values.unit });
  }
}

/** The block of this name or ending; else the one across two texts; else the first. */
export function blockOf(drawing: AttentionDrawing, name: string): number {
  const { blocks } = drawing;
  const found = blocks.findIndex((block) => block.name === name || (name !== "" && block.name.endsWith(`.${name}`)));
  return found >= 0 ? found : Math.max(0, blocks.findIndex((block) => block.name.includes("cross")));
}
