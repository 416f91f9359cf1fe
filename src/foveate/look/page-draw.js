"use strict";
// What is seen: weights unpacked, the matrix, the two sentences, the reading. Goes before page.js.

const read = (id) => JSON.parse(document.getElementById(id).textContent);
const $ = (id) => document.getElementById(id);
const settings = read("settings"), sentences = read("data");
const bytes = (base64) => Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
const colors = bytes(settings.colors); // 256 × red, green, blue
const mean = null; // the "head" that is the mean of all heads
const state = { sentence: 0, block: 0, layer: 0, head: mean, scale: "row", row: 0, column: 0, side: "row" };

function element(tag, text = "", attributes = {}) {
  const made = Object.assign(document.createElement(tag), attributes);
  made.textContent = text; // never HTML: words may say anything
  return made;
}

// ---- weights

const blocks = () => sentences[state.sentence].blocks;
const block = () => blocks()[state.block];
const most = (values) => values.reduce((best, value, i) => (value > values[best] ? i : best), 0);

function unpack(block, layer) { // one Float64Array of T·S weights for each head; kept once made
  if (layer.maps) return layer.maps;
  const packed = bytes(layer.weights), size = block.rows.length * block.columns.length;
  const view = new DataView(packed.buffer);
  layer.maps = Array.from({ length: layer.heads }, (_, h) =>
    Float64Array.from({ length: size }, (_, i) => view.getUint16(2 * (h * size + i), true) / settings.steps));
  layer.mean = Float64Array.from({ length: size }, (_, i) => layer.maps.reduce((sum, map) => sum + map[i], 0) / layer.heads);
  return layer.maps;
}

function weights(layer = state.layer, head = state.head) {
  const chosen = block().layers[layer], maps = unpack(block(), chosen);
  return head === mean ? chosen.mean : maps[head];
}

const rowOf = (map, t, width) => map.subarray(t * width, (t + 1) * width);
const chosenWeights = () => state.side === "row"
  ? Array.from(rowOf(weights(), state.row, block().columns.length))
  : block().rows.map((_, t) => weights()[t * block().columns.length + state.column]);

function levels(map, width) { // weights to 0 … 1, as the legend says
  if (state.scale === "absolute") return map;
  const made = new Float64Array(map.length);
  for (let t = 0; t * width < map.length; t++) {
    const row = rowOf(map, t, width), top = row.reduce((a, b) => Math.max(a, b), 0) || 1;
    row.forEach((w, s) => { made[t * width + s] = Math.sqrt(w / top); });
  }
  return made;
}

// ---- drawing

function picture(map, width, canvas = document.createElement("canvas"), limit = Infinity) {
  // One pixel for each cell; above the limit, the largest weight of a tile, so that thin lines stay.
  const height = map.length / width, tile = Math.max(1, Math.ceil(Math.max(width, height) / limit));
  const level = levels(map, width);
  canvas.width = Math.ceil(width / tile);
  canvas.height = Math.ceil(height / tile);
  const tiles = new Float64Array(canvas.width * canvas.height).fill(-1);
  map.forEach((w, i) => {
    const at = Math.floor(i / width / tile) * canvas.width + Math.floor((i % width) / tile);
    if (w > 0) tiles[at] = Math.max(tiles[at], level[i]);
  });
  const image = new ImageData(canvas.width, canvas.height);
  tiles.forEach((value, i) => {
    if (value < 0) return; // exactly 0: masked; stays clear
    const color = 3 * Math.round(255 * value);
    image.data.set([colors[color], colors[color + 1], colors[color + 2], 255], 4 * i);
  });
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let place = {}; // where the cells lie: left, top, cell (pixels); turn: of the words above them
let painted = { of: null }; // the cells of the map last drawn, so that pointing stays quick

function layout(pen, available) {
  const { rows, columns } = block(), limit = Math.min(150, available * 0.3);
  const widths = (words) => words.map((word) => Math.min(limit, pen.measureText(word).width));
  const long = Math.max(rows.length, columns.length) > 64, turn = available < 30 * columns.length ? -75 : -55;
  const across = Math.cos((turn * Math.PI) / 180), upward = -Math.sin((turn * Math.PI) / 180);
  const left = Math.max(...widths(rows)) + 8, least = long ? 4 : 12;
  const right = Math.max(2, ...widths(columns).map((w, s) => w * across + 8 - (columns.length - s - 0.5) * least));
  const fit = Math.min((available - left - right) / columns.length, (0.75 * innerHeight) / rows.length, 44);
  const cell = Math.max(least, Math.floor(fit)), top = Math.max(...widths(columns)) * upward + 16;
  return { left, top, cell, limit, turn, width: left + cell * columns.length + right, height: top + cell * rows.length + 2 };
}

function clip(pen, word, limit) {
  if (pen.measureText(word).width <= limit) return word;
  const letters = Array.from(word);
  while (letters.length && pen.measureText(letters.join("") + "…").width > limit) letters.pop();
  return letters.join("") + "…";
}

function drawMatrix() {
  const canvas = $("matrix"), pen = canvas.getContext("2d"), ratio = window.devicePixelRatio || 1;
  const font = "13px system-ui, sans-serif", { rows, columns } = block();
  pen.font = font;
  place = layout(pen, $("frame").clientWidth - 6);
  const { left, top, cell, limit, turn } = place, of = [block().name, state.sentence, state.layer, state.head, state.scale].join();
  if (painted.of !== of) painted = { of, cells: picture(weights(), columns.length) };
  Object.assign(canvas, { width: place.width * ratio, height: place.height * ratio });
  Object.assign(canvas.style, { width: place.width + "px", height: place.height + "px" });
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.font = font;
  pen.fillStyle = css("--paper");
  pen.fillRect(0, 0, place.width, place.height);
  pen.fillStyle = css("--blank");
  pen.fillRect(left, top, cell * columns.length, cell * rows.length);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(painted.cells, left, top, cell * columns.length, cell * rows.length);
  pen.fillStyle = css("--paper"); // the grid, where cells are large enough to be told apart
  for (let s = 1; cell >= 8 && s < columns.length; s++) pen.fillRect(left + s * cell - 0.5, top, 1, cell * rows.length);
  for (let t = 1; cell >= 8 && t < rows.length; t++) pen.fillRect(left, top + t * cell - 0.5, cell * columns.length, 1);
  const every = Math.ceil(13 / cell); // words that would cover each other are left out, the chosen never
  const shown = (k, chosen) => k === chosen || (k % every === 0 && Math.abs(k - chosen) >= every);
  const write = (word, chosen, x, y, angle) => {
    pen.save();
    pen.translate(x, y);
    pen.rotate((angle * Math.PI) / 180);
    pen.font = (chosen ? "bold " : "") + font;
    pen.fillStyle = css(chosen ? "--accent" : "--ink");
    pen.fillText(clip(pen, word, limit), 0, 0);
    pen.restore();
  };
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  rows.forEach((word, t) => shown(t, state.row) && write(word, t === state.row, left - 6, top + (t + 0.5) * cell, 0));
  pen.textAlign = "left";
  columns.forEach((word, s) => shown(s, state.column) && write(word, s === state.column, left + (s + 0.5) * cell, top - 7, turn));
  pen.strokeStyle = `rgb(${css("--mark")})`;
  pen.lineWidth = 1.5;
  pen.strokeRect(left, top + state.row * cell, cell * columns.length, cell);
  pen.strokeRect(left + state.column * cell, top, cell, cell * rows.length);
  for (const [color, size] of [["#000", 4], ["#fff", 2]]) {
    Object.assign(pen, { strokeStyle: color, lineWidth: size });
    pen.strokeRect(left + state.column * cell, top + state.row * cell, cell, cell);
  }
}

function drawLines() {
  $("lines").hidden = Math.max(block().rows.length, block().columns.length) > 64; // beyond, no line would be told from another
  if ($("lines").hidden) return;
  const chosen = chosenWeights(), top = Math.max(...chosen) || 1;
  const from = state.side === "row" ? "rows" : "columns", to = from === "rows" ? "columns" : "rows";
  [...$(from).children].forEach((word, k) => {
    word.className = k === state[state.side] ? "word chosen" : "word";
    Object.assign(word.style, { backgroundColor: "", color: "" });
  });
  [...$(to).children].forEach((word, k) => {
    const strength = chosen[k] / top;
    word.className = "word";
    word.style.backgroundColor = `rgba(${css("--mark")}, ${strength.toFixed(3)})`;
    word.style.color = strength > 0.42 ? "#1b1d22" : "";
  });
  const box = $("lines").getBoundingClientRect(), links = $("links");
  links.replaceChildren();
  const start = $(from).children[state[state.side]].getBoundingClientRect();
  const strongest = chosen.map((w, k) => k).filter((k) => chosen[k] >= 0.03).sort((a, b) => chosen[b] - chosen[a]);
  for (const k of strongest.slice(0, 6)) {
    const end = $(to).children[k].getBoundingClientRect();
    const [upper, lower] = from === "columns" ? [start, end] : [end, start];
    const x1 = upper.x + upper.width / 2 - box.x, y1 = upper.bottom - box.y + 3;
    const x2 = lower.x + lower.width / 2 - box.x, y2 = lower.top - box.y - 3, middle = (y1 + y2) / 2;
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", `M${x1} ${y1} C${x1} ${middle} ${x2} ${middle} ${x2} ${y2}`);
    path.setAttribute("stroke-width", String(1 + 5 * chosen[k]));
    path.setAttribute("opacity", String(0.25 + 0.7 * (chosen[k] / top)));
    links.append(path);
  }
}

function describeMap() {
  const { name, layers, hasHeads } = block(), parts = [name.replaceAll("_", "-").replaceAll(".", " ")];
  if (layers.length > 1) parts.push(`layer ${state.layer}`);
  if (!hasHeads || layers[state.layer].heads > 1) parts.push(state.head === mean ? "mean of the heads" : `head ${state.head}`);
  return parts.join(", ");
}

function drawReading() {
  const { rows, columns, rowMeans } = block(), chosen = chosenWeights();
  const value = weights()[state.row * columns.length + state.column];
  $("reading").replaceChildren(`${rowMeans} « `, element("bdi", rows[state.row]), " »: ",
    element("bdi", columns[state.column]), " ", element("b", value.toFixed(4)));
  const names = state.side === "row" ? columns : rows;
  const order = chosen.map((w, k) => k).filter((k) => chosen[k] >= 0.005).sort((a, b) => chosen[b] - chosen[a]).slice(0, 3);
  $("others").textContent = `${describeMap()} · most: ` + order.map((k) => `${names[k]} ${chosen[k].toFixed(2)}`).join(", ");
  $("matrix").setAttribute("aria-label", `${describeMap()}: ${$("reading").textContent}`);
}
