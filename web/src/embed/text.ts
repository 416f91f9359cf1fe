// A page as text. `src/foveate/look/page.py` writes the same form.
import type { AnyDrawing } from "../core";

export interface Group { title: string; notes: string[]; drawings: AnyDrawing[] }
export interface Page { title: string; notes: string[]; groups: string[]; leftOut: number }

/** JSON that may stand inside a script element: nothing in it can end the element. */
export const safe = (value: unknown): string =>
  JSON.stringify(value).replaceAll("<", "\\u003c").replaceAll("\u2028", "\\u2028").replaceAll("\u2029", "\\u2029");

const escaped = (text: string): string =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");

export function pageText({ policy, script, page, groups }: { policy: string; script: string; page: Page; groups: Group[] }): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${escaped(policy)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escaped(page.title)} · foveate</title>
</head>
<body>
<noscript>This page draws with JavaScript, which is switched off here.</noscript>
<script id="page" type="application/json">${safe(page)}</script>
${groups.map((group) => `<script class="group" type="application/json">${safe(group)}</script>`).join("\n")}
<script>${script}</script>
</body>
</html>
`;
}
