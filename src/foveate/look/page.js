// What is done: choosing a sentence, a map, a cell; the pickers; saving. Goes after page-draw.js.

// ---- the parts that change when another map is chosen

function drawHeads() {
  const { layers, columns, hasHeads } = block(), grid = $("heads");
  const across = hasHeads ? Math.max(...layers.map((layer) => layer.heads)) : 0, heads = [...Array(across).keys()];
  const choices = across === 1 ? [mean] : [mean, ...heads]; // one head is its own mean
  $("picker").hidden = choices.length * layers.length === 1;
  const size = Math.max(28, Math.min(60, Math.floor(300 / choices.length) - 4));
  grid.style.gridTemplateColumns = `auto repeat(${choices.length}, ${size}px)`;
  grid.replaceChildren(element("span"), ...choices.map((head) => element("span", head === mean ? "mean" : String(head))));
  layers.forEach((layer, l) => {
    grid.append(element("span", String(l)));
    choices.forEach((head) => {
      const button = element("button", "", { type: "button", onclick: () => choose({ layer: l, head }) });
      const chosen = l === state.layer && head === state.head;
      button.setAttribute("aria-label", `layer ${l}, ${head === mean ? "mean" : "head " + head}`);
      button.setAttribute("aria-pressed", String(chosen));
      button.tabIndex = chosen ? 0 : -1;
      if (head === mean || head < layer.heads) button.append(picture(weights(l, head), columns.length, undefined, 72));
      grid.append(button);
    });
  });
}

function drawLegend() {
  const pen = $("legend").getContext("2d"), { caption, marks } = settings.scales[state.scale];
  for (let i = 0; i < 256; i++) {
    pen.fillStyle = `rgb(${colors.slice(3 * i, 3 * i + 3).join()})`;
    pen.fillRect(i, 0, 1, 1);
  }
  $("marks").replaceChildren(...Object.entries(marks).sort((a, b) => a[0] - b[0]).map(([at, text]) => {
    const mark = element("span", text);
    mark.style.left = 100 * at + "%";
    return mark;
  }));
  $("legend-text").textContent = `${caption}; no colour: exactly 0 (masked)`;
}

function fillTable() {
  if (!$("numbers").open) return;
  const { rows, columns } = block(), map = weights(), head = element("tr");
  const header = (word, scope) => element("th", word, { scope, dir: "auto" });
  head.append(element("td"), ...columns.map((word) => header(word, "col")));
  $("table").replaceChildren(element("caption", describeMap()), head, ...rows.map((word, t) => {
    const line = element("tr");
    line.append(header(word, "row"), ...columns.map((_, s) => element("td", map[t * columns.length + s].toFixed(4))));
    return line;
  }));
}

function radios(field, name, options, chosen, choice) {
  field.replaceChildren(field.querySelector("legend"), ...options.map(([value, text]) => {
    const label = element("label"), input = element("input", "", { type: "radio", name, value, checked: value === chosen });
    input.onchange = () => choose(choice(value));
    label.append(input, text);
    return label;
  }));
  field.hidden = options.length < 2;
}

function fillWords() {
  const { rows, columns, rowMeans } = block();
  $("rows-mean").textContent = rowMeans;
  [["rows", rows, "row"], ["columns", columns, "column"]].forEach(([id, words, side]) => {
    $(id).replaceChildren(...words.map((word, k) => {
      const shown = element("span", word, { className: "word", dir: "auto" });
      shown.onpointerenter = shown.onclick = () => point({ [side]: k, side });
      return shown;
    }));
  });
}

// ---- choosing

function point(change) { // another cell of the same map
  Object.assign(state, change);
  if ("side" in change && change.row === undefined) state.row = most(chosenWeights());
  else if ("side" in change && change.column === undefined) state.column = most(chosenWeights());
  drawMatrix();
  drawLines();
  drawReading();
}

function choose(change) { // another map; what does not exist in it falls back to what does
  Object.assign(state, change);
  const focus = document.activeElement?.closest("#heads, fieldset"); // its parts are made anew
  state.block = Math.min(state.block, blocks().length - 1);
  const { layers, rows, columns } = block(), clamp = (value, count) => Math.max(0, Math.min(value, count - 1));
  state.layer = clamp(state.layer, layers.length);
  if (state.head !== mean) state.head = layers[state.layer].heads > 1 ? clamp(state.head, layers[state.layer].heads) : mean;
  if ("sentence" in change || "block" in change) {
    Object.assign(state, { row: 0, side: "row" });
    state.column = most(chosenWeights());
  }
  Object.assign(state, { row: clamp(state.row, rows.length), column: clamp(state.column, columns.length) });
  $("sentence").value = String(state.sentence);
  radios($("blocks"), "block", blocks().map((b, i) => [String(i), b.name.replaceAll("_", "-").replaceAll(".", " ")]), String(state.block), (i) => ({ block: Number(i) }));
  radios($("scales"), "scale", [["row", "by row"], ["absolute", "absolute"]], state.scale, (scale) => ({ scale }));
  const left = settings.leftOut ? [`${settings.leftOut} more sentences are not in this page`] : [];
  $("notes").textContent = [...sentences[state.sentence].notes, ...left, "numbers are exact to 0.00002"].join(" · ");
  fillWords();
  drawHeads();
  drawLegend();
  fillTable();
  point({});
  focus?.querySelector('[aria-pressed="true"], :checked')?.focus();
}

function cellAt(event) {
  const box = $("matrix").getBoundingClientRect();
  const column = Math.floor((event.clientX - box.x - place.left) / place.cell);
  const row = Math.floor((event.clientY - box.y - place.top) / place.cell);
  const inside = row >= 0 && column >= 0 && row < block().rows.length && column < block().columns.length;
  if (inside && (row !== state.row || column !== state.column || state.side !== "row")) point({ row, column, side: "row" });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const { layers, rows, columns } = block(), heads = layers[state.layer].heads;
  const move = (row, column) => point({ side: "row",
    row: Math.max(0, Math.min(rows.length - 1, state.row + row)),
    column: Math.max(0, Math.min(columns.length - 1, state.column + column)) });
  const step = (by) => { // heads in a ring, with the mean between the last and the first
    const next = ((state.head === mean ? 0 : state.head + 1) + by + heads + 1) % (heads + 1);
    choose({ head: next === 0 ? mean : next - 1 });
  };
  const everywhere = { "[": () => choose({ layer: state.layer - 1 }), "]": () => choose({ layer: state.layer + 1 }), ",": () => step(-1), ".": () => step(1) };
  const inMatrix = { ArrowUp: () => move(-1, 0), ArrowDown: () => move(1, 0), ArrowLeft: () => move(0, -1), ArrowRight: () => move(0, 1) };
  const act = everywhere[event.key] || (event.target === $("matrix") && inMatrix[event.key]);
  if (act) { event.preventDefault(); act(); }
});

// ---- saving

function save(content, ending) {
  const link = element("a", "", { href: URL.createObjectURL(content), download: "attention." + ending });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function svg() {
  const { rows, columns } = block(), { left, top, cell, turn, width, height } = place, name = "http://www.w3.org/2000/svg";
  const sheet = document.implementation.createDocument(name, "svg"); // apart from the page: nothing in it is loaded
  const set = (node, attributes) => Object.entries(attributes).forEach(([key, value]) => node.setAttribute(key, value));
  const add = (tag, attributes, text = "") => {
    const made = sheet.createElementNS(name, tag);
    set(made, attributes);
    made.textContent = text;
    sheet.documentElement.append(made);
  };
  set(sheet.documentElement, { width, height, "font-family": "system-ui, sans-serif", "font-size": 13 });
  add("image", { x: left, y: top, width: cell * columns.length, height: cell * rows.length, preserveAspectRatio: "none",
    "image-rendering": "pixelated", href: picture(weights(), columns.length).toDataURL() });
  rows.forEach((word, t) => add("text", { x: left - 6, y: top + (t + 0.5) * cell + 4, "text-anchor": "end" }, word));
  columns.forEach((word, s) => add("text", { transform: `translate(${left + (s + 0.5) * cell} ${top - 7}) rotate(${turn})`, y: 4 }, word));
  return new XMLSerializer().serializeToString(sheet);
}

$("png").onclick = () => $("matrix").toBlob((blob) => save(blob, "png"));
$("svg").onclick = () => save(new Blob([svg()], { type: "image/svg+xml" }), "svg");
$("json").onclick = () => {
  const { rows, columns } = block(), map = weights();
  const table = rows.map((_, t) => Array.from(rowOf(map, t, columns.length)));
  save(new Blob([JSON.stringify({ map: describeMap(), rows, columns, weights: table })], { type: "application/json" }), "json");
};

// ---- beginning

function theme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  $("theme").textContent = dark ? "Light" : "Dark";
}
const wishes = matchMedia("(prefers-color-scheme: dark)");
theme(wishes.matches);
wishes.onchange = () => { theme(wishes.matches); point({}); };
$("theme").onclick = () => { theme(document.documentElement.dataset.theme === "light"); point({}); };
$("matrix").onpointermove = (event) => event.pointerType === "mouse" && cellAt(event);
$("matrix").onclick = cellAt;
$("numbers").ontoggle = fillTable;
sentences.forEach((sentence, i) => $("sentence").append(element("option", `${i + 1} · ${sentence.title}`, { value: String(i) })));
$("sentence").onchange = () => choose({ sentence: Number($("sentence").value) });
const turnPage = (by) => choose({ sentence: (state.sentence + by + sentences.length) % sentences.length });
$("previous").onclick = () => turnPage(-1);
$("next").onclick = () => turnPage(1);
$("previous").hidden = $("next").hidden = $("sentence").hidden = sentences.length < 2;
$("title").hidden = sentences.length > 1;
$("title").textContent = sentences[0].title;
const first = settings.start, named = blocks().findIndex((b) => b.name === first.block);
const cross = blocks().findIndex((b) => b.name.includes("cross"));
const opened = named >= 0 ? named : Math.max(0, cross);
choose({ sentence: 0, block: opened, layer: first.layer ?? Infinity, head: first.head ?? mean, scale: first.scale ?? "row" });
new ResizeObserver(() => point({})).observe($("frame"));
