// Pages of drawings, as `foveate look … --out page.html` writes them. Their script is fetched when first needed.
import type { AnyDrawing } from "../core";
import { whole } from "../core/save";
import { pageText, type Group } from "../embed/text";
import type { Lecture, LectureStep } from "./api";
import { said } from "./client";
import { language, t } from "./language";

async function pageWith(title: string, groups: Group[], notes: string[] = []): Promise<string> {
  const { default: script } = await import("../../../src/foveate/look/draw/embed.js?raw");
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(script)));
  const hash = btoa(String.fromCharCode(...digest));
  const policy = `default-src 'none'; script-src 'sha256-${hash}'; img-src data:; base-uri 'none'; form-action 'none'`;
  return pageText({ policy, script, lang: language(), page: { title, notes, groups: groups.map(({ title }) => title) }, groups });
}

export const pageOf = (drawing: AnyDrawing): Promise<string> => {
  const title = drawing.title || "foveate";
  return pageWith(title, [{ title, notes: [], drawings: [drawing] }]);
};

/** A lecture, a step at a time; a step that cannot be drawn says why, one drawn with other runs which. With the places of these, from 1. */
export async function lecturePage(
  { title, after, steps }: Lecture, draw: (step: LectureStep, k: number) => Promise<{ drawings: AnyDrawing[]; stands: string }>,
): Promise<{ text: string; failed: number[] }> {
  const groups: Group[] = [], failed: number[] = [];
  for (const [k, step] of steps.entries()) {
    const { title, equation, command, notes, slip } = step, texts = [notes.trim(), slip && `${t("Corrected:")} ${slip}`];
    let drawings: AnyDrawing[] = [];
    try {
      const drawn = await draw(step, k);
      drawings = await Promise.all(drawn.drawings.map(whole));
      texts.push(drawn.stands);
    } catch (error) {
      failed.push(k + 1);
      texts.push(t("This step could not be drawn: {why}", { why: said(error) }));
    }
    groups.push({ title, notes: texts.filter(Boolean), drawings, equation, command });
  }
  return { text: await pageWith(title, groups, after ? [t("After {whose}", { whose: after })] : []), failed };
}
