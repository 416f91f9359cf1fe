// A page of one drawing, as `foveate look … --out page.html` writes it. Its script is fetched when first needed.
import type { AnyDrawing } from "../core";
import { pageText } from "../embed/text";

export async function pageOf(drawing: AnyDrawing): Promise<string> {
  const { default: script } = await import("../../../src/foveate/draw/embed.js?raw");
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(script)));
  const hash = btoa(String.fromCharCode(...digest));
  const policy = `default-src 'none'; script-src 'sha256-${hash}'; img-src data:; base-uri 'none'; form-action 'none'`;
  const title = drawing.title || "foveate";
  return pageText({ policy, script, page: { title, notes: [], groups: [title], leftOut: 0 }, groups: [{ title, notes: [], drawings: [drawing] }] });
}
