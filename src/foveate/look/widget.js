// src/core/dom.ts
function e(e, t, n) {
	for (let [n, r] of Object.entries(t)) r !== void 0 && r !== !1 && (typeof r == "function" ? e.addEventListener(n, r) : e.setAttribute(n, r === !0 ? "" : String(r)));
	e.append(...n.filter((e) => e !== void 0 && e !== !1));
}
function t(t, n = {}, ...r) {
	let i = document.createElement(t);
	return e(i, n, r), i;
}
function n(t, n = {}, ...r) {
	let i = document.createElementNS("http://www.w3.org/2000/svg", t);
	return e(i, n, r), i;
}
var r = null;
function i(e, t = 13) {
	return r ??= document.createElement("canvas").getContext("2d"), r.font = `${t}px system-ui, sans-serif`, r.measureText(e).width;
}
var a = (e, t = .75 * innerHeight) => Number(getComputedStyle(e).getPropertyValue("--tall")) || t, o = (e) => e.getBoundingClientRect().width / e.offsetWidth || 1;
function s(e, t, n = 13) {
	if (i(e, n) <= t) return e;
	let r = Array.from(e);
	for (; r.length && i(r.join("") + "…", n) > t;) r.pop();
	return r.join("") + "…";
}
function c(e, n, r, i) {
	let a = `fv-${Math.random().toString(36).slice(2)}`, o = n.map(([e]) => t("input", {
		type: "radio",
		name: a,
		value: e,
		change: () => i(e)
	})), s = n.map(([, e], n) => t("label", {}, o[n], e)), c = t("fieldset", {
		class: "fv-choices",
		"data-unsaved": !0
	}, t("legend", {}, e), t("div", {}, ...s));
	c.hidden = n.length < 2;
	let l = (e) => o.forEach((t) => {
		t.checked = t.value === e;
	});
	return l(r), {
		element: c,
		set: l
	};
}
// src/core/palette.ts
var l = {
	steps: 65535,
	sequential: "ACJNACNPACNQACRSACVUACZVACZXACdZAChbAChcACleACpgACpiACtkACxmACxnAC1pAC5rAC9tAC9vADBwADBwADFwADFwBDJwCDNwCzNwDjRwETVvFDZvFjZvGDdvGjhvHDhuHTluHzpuITtuIjtuJDxuJT1tJz1tKD5tKj9tKz9tLEBtLkFsL0JsMEJsMUNsMkRsNERsNUVsNkZsN0ZsOEdsOUhsOkhrO0lrPUprPktrP0trQExrQU1rQk1rQ05rRE9rRU9rRlBrR1FrSFFrSVJrSlNrS1RsTFRsTVVsTlZsTlZsT1dsUFhsUVhsUllsU1psVFpsVVttVlxtV11tWF1tWV5tWV9tWl9tW2BuXGFuXWFuXmJuX2NuYGRuYWRvYWVvYmZvY2ZvZGdvZWhwZmlwZ2lwaGpwaGtxaWtxamxxa21xbG1ybW5ybm9ybnBzb3BzcHFzcXJzcnN0c3N0dHR1dHV1dXV1dnZ2d3d2eHh2eXh3eXl3enp3e3t3fHt4fXx4fn14f314gH54gX94goB4g4B4hIF4hYJ4hYN4hoN4h4R4iIV4iYZ4ioZ4i4d4jIh4jYl4jol4j4p3kIt3kYx3kox3k413lI53lY93lo93l5B2mJF2mZJ2mpN2m5N2nJR2nZV1npZ1n5Z1oJd1oZh0opl0o5p0pJp0pZtzppxzp51zqJ5zqZ5yqp9yq6ByrKFxraJxrqJxr6NwsKRwsaVwsqZvs6ZvtKdvtahutqlut6ptuKttuattuqxsu61svK5rva9rvrBqv7BqwbFpwrJpw7NoxLRoxbVnxrVnx7ZmyLdlybhlyrlky7pkzLtjzbxizrxiz71h0L5g0r9g08Bf1MFe1cJe1sNd18Nc2MRb2cVa2sZa28dZ3MhY3slX38pW4MtV4cxU4sxT481S5M5R5c9Q5tBP6NFO6dJN6tNM69RL7NVK7dZI7tdH79hG8dlE8tpD89pC9NtA9dw/9t09+N47+d86+uA4++E2/eI0/eMz/eU0/eY2/ec3",
	diverging: "LQBLLgFNMANPMQRSMwZUNAdWNglZNwpbOQxeOg1gPA9iPRBlPxJnQBNqQhVsQxZuRRhxRxpzSBt2Sh14Sx56TSB9TiF/UCOCUSSEUyaGVCiIViuKWC6LWjGMWzSOXTePXzqRYD2SYkCUZEOVZkaWZ0mYaUyZa0+bbVKcblWdcFifclugc16idWGjd2SkeWememqnfG2pfnCqgHOsgXWtg3euhXmwh3uxiX2zi4C0jYK2j4S3kYa5k4i6lYu8l429mY+/m5HAnZPCn5bDoZjFo5rGpZzIp57JqaHLq6PMraXOr6fPsanRsqvStK3Tta/Ut7HVuLPWurXXu7bYvbjZvrrawLzbwb7cw8DdxMLexsPfx8XgycfhysnizMvjzc3kz87l0NDm0tLn09To1dbp1tjq2Nrr2dvr2tzr293s3N7s3t/t3+Dt4OHu4ePu4uTv5OXv5ebw5ufw5+jx6enx6uvy6+zy7O3z7e7z7+/z8PD08fH08vP18/T19fX29vb29/b19/Xz9/Tw9/Pu+PLr+PLo+PHm+fDj+e/h+e7e+e3c+uzZ+uvX+urU+unS++nP++jM++fK/ObH/OXF/OTC/OPA/eK9/eG7/eC4/uC2/d6y/dyv/dus/dmo/dil/dai/dWf/dOb/dGY/dCV/c6S/c2O/cuL/cqI/ciF/caB/cV+/cN7/cJ4/cB0/b9x/b1u/btr/bpn/bhk/LZh+7Re+rJb+bBY965V9qxR9apO9KhL86ZI8qNF8aFC758/7p087Zs57Jk265cy6pUv6ZIs55Ap5o4m5Ywj5Iog44gd4oYa4YQX4IIU3oAT3H4S2n0S2HsR13kR1XgQ03YQ0XQP0HMPznEOzG8Nym4NyWwMx2oMxWkLw2cLwmYKwGQKvmIJvGEJul8IuV0Ht1wHtVoGs1gGsVcGr1YGrVUGq1QGqVIGp1EGpVAGo08GoU4Gn00GnUwGm0oGmUkGl0gHlUcHk0YHkUUHj0QHjUIHi0EHiUAHhz8HhT4Hgz0HgTwHfzsI",
	lines: [
		"#0072b2",
		"#d55e00",
		"#009e73",
		"#cc79a7",
		"#000000",
		"#e69f00",
		"#56b4e9"
	],
	scales: {
		row: {
			caption: "by row: weight / the largest of its row (square root)",
			marks: [
				[0, "0"],
				[.22360679774997896, "5 %"],
				[.5, "25 %"],
				[.7071067811865476, "50 %"],
				[1, "100 %"]
			]
		},
		absolute: {
			caption: "weight, from 0 to 1",
			marks: [
				[0, "0"],
				[.25, "0.25"],
				[.5, "0.5"],
				[.75, "0.75"],
				[1, "1"]
			]
		}
	},
	overlays: {
		row: "weight / the panel's largest (at least 6 even shares)",
		absolute: "weight"
	},
	tint: {
		dark: [
			.72,
			.26,
			0
		],
		light: [
			1,
			.8,
			.42
		]
	},
	even: 6
}, u = Uint8Array.fromBase64;
function d(e) {
	if (u) return u.call(Uint8Array, e);
	let t = atob(e), n = new Uint8Array(t.length);
	for (let e = 0; e < t.length; e++) n[e] = t.charCodeAt(e);
	return n;
}
function f(e) {
	let t = "";
	for (let n = 0; n < e.length; n += 32768) t += String.fromCharCode(...e.subarray(n, n + 32768));
	return btoa(t);
}
function p(e, t, n) {
	let r = t === "u16" ? 2 : 4, i = e.reduce((e, t) => e * t, 1);
	if (n.length !== i * r) throw Error(`${n.length} bytes for an array of ${e.join(" × ")} (${t}): ${i * r} were due`);
	return t === "u16" ? {
		shape: e,
		raw: new Uint16Array(n.buffer, n.byteOffset, i),
		unit: 1 / l.steps
	} : {
		shape: e,
		raw: new Float32Array(n.buffer, n.byteOffset, i),
		unit: 1
	};
}
var m = /* @__PURE__ */ new Map(), h = /* @__PURE__ */ new Map(), g = (e, t) => h.set(e, t);
function _(e) {
	let t = h.get(e.url) ?? (e.url ? void 0 : d(e.data));
	if (t) return p(e.shape, e.codec, t);
	let n = m.get(e.url);
	if (n) return n;
	let r = fetch(e.url).then(async (t) => {
		if (!t.ok) throw Error(`${e.url}: ${t.status} ${t.statusText}`);
		return p(e.shape, e.codec, new Uint8Array(await t.arrayBuffer()));
	});
	return m.set(e.url, r), m.size > 64 && m.delete(m.keys().next().value), r.catch(() => m.delete(e.url)), r;
}
async function v(e) {
	if (!e.url) return e;
	let t = h.get(e.url) ?? new Uint8Array(await (await fetch(e.url)).arrayBuffer());
	return {
		...e,
		url: "",
		data: f(t)
	};
}
function y({ raw: e, unit: t }, n = 0, r = e.length, i = 1) {
	let a = new Float64Array(r);
	for (let t = 0; t < i; t++) for (let i = 0, o = n + t * r; i < r; i++, o++) a[i] += e[o];
	let o = Math.round(1 / t) * i;
	for (let e = 0; e < r; e++) a[e] /= o;
	return a;
}
// src/core/levels.ts
var b = d(l.sequential), x = d(l.diverging), S = (e, t) => e.values.subarray(t * e.width, (t + 1) * e.width), C = (e, t) => Float64Array.from({ length: e.height }, (n, r) => e.values[r * e.width + t]);
function w(e) {
	let t = 0;
	for (let n = 1; n < e.length; n++) e[n] > e[t] && (t = n);
	return t;
}
function T(e) {
	let t = e[w(e)] ?? 0;
	return Array.from(e, (e, t) => t).filter((n) => t > 0 && e[n] >= .999 * t);
}
function E(e, t, n = 0) {
	return Array.from(e, (e, t) => t).filter((t) => e[t] >= n).sort((t, n) => e[n] - e[t]).slice(0, t);
}
function D(e, t) {
	let { values: n } = e, r = new Float64Array(n.length);
	for (let i = 0; i < e.height; i++) {
		let a = i * e.width, o = a + e.width, s = 0;
		for (let e = a; e < o; e++) n[e] > s && (s = n[e]);
		for (let e = a; e < o; e++) {
			let i = n[e];
			r[e] = i > 0 ? t === "row" ? Math.sqrt(i / s) : Math.min(i, 1) : -1;
		}
	}
	return r;
}
function O(e, t, n) {
	let r = new Float64Array(e.length), i = n - t || 1;
	for (let n = 0; n < e.length; n++) {
		let a = e[n];
		r[n] = Number.isFinite(a) ? Math.min(1, Math.max(0, (a - t) / i)) : -1;
	}
	return r;
}
function k(e, t) {
	if (!(e < 0 && t > 0)) return {
		least: e,
		most: t,
		colours: b
	};
	let n = Math.max(t, -e);
	return {
		least: -n,
		most: n,
		colours: x
	};
}
function A(e, t, n, r) {
	if (r <= 1) return {
		levels: e,
		height: t,
		width: n
	};
	let i = Math.ceil(t / r), a = Math.ceil(n / r), o = new Float64Array(i * a).fill(-1), s = Uint32Array.from({ length: n }, (e, t) => t / r);
	for (let i = 0; i < t; i++) {
		let t = Math.floor(i / r) * a, c = i * n;
		for (let r = 0; r < n; r++) {
			let n = t + s[r], i = e[c + r];
			i > o[n] && (o[n] = i);
		}
	}
	return {
		levels: o,
		height: i,
		width: a
	};
}
function j(e, t, { height: n, width: r, tile: i, scale: a, unit: o }) {
	let s = Math.ceil(n / i), c = Math.ceil(r / i), l = new Float64Array(s * c).fill(-1), u = Uint32Array.from({ length: r }, (e, t) => t / i);
	for (let s = 0; s < n; s++) {
		let n = t + s * r, d = Math.floor(s / i) * c, f = 0;
		if (a === "row") for (let t = n; t < n + r; t++) e[t] > f && (f = e[t]);
		let p = a === "row" ? 1 / (f || 1) : o;
		for (let t = 0; t < r; t++) {
			let r = e[n + t] * p, i = d + u[t];
			r > 0 && r > l[i] && (l[i] = r);
		}
	}
	for (let e = 0; e < l.length; e++) l[e] > 0 && (l[e] = a === "row" ? Math.sqrt(l[e]) : Math.min(1, l[e]));
	return {
		levels: l,
		height: s,
		width: c
	};
}
function M(e, t) {
	let n = new Uint8ClampedArray(4 * e.length);
	for (let r = 0; r < e.length; r++) {
		if (e[r] < 0) continue;
		let i = 3 * Math.round(255 * e[r]);
		n[4 * r] = t[i], n[4 * r + 1] = t[i + 1], n[4 * r + 2] = t[i + 2], n[4 * r + 3] = 255;
	}
	return n;
}
function N(e, t, n, r, i, a) {
	let o = Uint32Array.from({ length: a.width }, (e, t) => t * n / a.width);
	for (let s = 0; s < a.height; s++) {
		let c = Math.floor(s * t / a.height) * n, l = (a.y + s) * i + a.x;
		for (let t = 0; t < a.width; t++) r[l + t] = e[c + o[t]];
	}
}
function P(e, t) {
	let n = 3 * Math.round(255 * Math.min(1, Math.max(0, e)));
	return `rgb(${t[n]}, ${t[n + 1]}, ${t[n + 2]})`;
}
function F(e, t) {
	let n = 3 * Math.round(255 * Math.min(1, Math.max(0, e))), r = (e) => e <= .04045 ? e / 12.92 : ((e + .055) / 1.055) ** 2.4;
	return .2126 * r(t[n] / 255) + .7152 * r(t[n + 1] / 255) + .0722 * r(t[n + 2] / 255) > .179;
}
var I = (e) => e < .5 ? .7 * e : .5 + .5 * e;
// src/core/text.ts
function L(e) {
	if (e == null || Number.isNaN(e)) return "–";
	if (!Number.isFinite(e)) return e > 0 ? "∞" : "−∞";
	let t = Math.abs(e), n;
	return n = Number.isInteger(e) && t < 0x38d7ea4c68000 ? t.toLocaleString("en-US") : t >= 1e6 || t < 1e-4 ? t.toExponential(2).replace("e", " e").replace("e+", "e").replace("e-", "e−") : t >= 1e3 ? t.toLocaleString("en-US", { maximumFractionDigits: 1 }) : String(Number(t.toPrecision(4))), (e < 0 ? "−" : "") + n;
}
var R = (e) => e.replaceAll("_", "-").replaceAll(".", " ");
function z(e, t, n = 5) {
	if (!(t > e)) return [e];
	let r = (t - e) / n, i = 10 ** Math.floor(Math.log10(r)), a = i * ([
		1,
		2,
		2.5,
		5,
		10
	].find((e) => e * i >= r) ?? 10), o = [];
	for (let n = Math.ceil(e / a - 1e-9); n * a <= t + a * 1e-9; n++) o.push(Number((n * a).toPrecision(12)));
	return o.length > 1 || n > 8 ? o : z(e, t, n + 1);
}
function ee(e, t) {
	let n = [], r = Math.floor(Math.log10(e)), i = Math.ceil(Math.log10(t)), a = Math.max(1, Math.ceil((i - r) / 7)), o = t / e <= 100 ? [
		1,
		2,
		5
	] : [1];
	for (let s = r; s <= i; s += a) for (let r of o) {
		let i = Number((r * 10 ** s).toPrecision(12));
		i >= e * .999 && i <= t * 1.001 && n.push(i);
	}
	return n.length > 1 ? n : z(e, t);
}
function B(e) {
	let t = Math.abs(e), n = e < 0 ? "−" : "";
	if (t === 0) return "0";
	let r = (e) => String(Number(e.toPrecision(4)));
	if (t >= 1e9 || t < 1e-4) {
		let e = Math.floor(Math.log10(t) + 1e-9), i = r(t / 10 ** e);
		return `${n}${i === "1" ? "" : i + "·"}10${[...String(e)].map((e) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(e)]).join("")}`;
	}
	return t >= 1e6 ? `${n}${r(t / 1e6)}M` : t >= 1e4 ? `${n}${r(t / 1e3)}k` : n + r(t);
}
var te = (e, t = 14) => Math.max(1, Math.ceil(t / e));
function V(e, t, n) {
	let r = t === void 0 ? void 0 : e?.[t], i = (e) => Math.abs(e - t);
	return n.map((e, t) => t).filter((e) => r !== void 0 && n[e] === r).sort((e, t) => i(e) - i(t))[0];
}
function H(e, t) {
	let n = Math.min(e.length, t.length);
	if (n === 0 || Math.max(e.length, t.length) - n > 2) return !1;
	for (let r = 0; r < n; r++) if (e[r] !== t[r]) return !1;
	return !0;
}
// src/core/cells.ts
var ne = 64, U = 9, W = 44;
function re(e, t, n) {
	let r = Math.min(150, t * .3), a = e.texts?.length ? e.texts.flat() : void 0, o = a ? Math.max(W, ...a.map((e) => i(e, 12) + 10)) : W, s = (e) => e.map((e) => Math.min(r, i(e))), c = Math.max(e.rows.length, e.columns.length) <= ne, l = e.down && e.rows.length ? Math.min(r, i(e.down, 12)) : 0, u = e.rows.length ? Math.max(l, ...s(e.rows)) + 8 : e.down ? 20 : 2, d = e.columns.every((n) => i(n) < Math.min((t - u) / e.width, o) - 6), f = d ? 0 : t < 30 * e.width ? -75 : -55, p = Math.cos(f * Math.PI / 180), m = -Math.sin(f * Math.PI / 180), h = a ? 52 : e.rows.length && c ? 12 : 0, g = e.aspect ?? 1, _ = d ? 2 : Math.max(2, ...s(e.columns).map((t, n) => t * p + 8 - (e.width - n - .5) * h)), v = (t - u - _) / e.width, y = e.high && !a ? v : Math.min(v, a ? o : Math.max(h || 4, n / e.height / g), o), b = h ? Math.max(h, Math.floor(y)) : Math.max(y, .2), x = e.columns.length ? d ? 22 : Math.max(...s(e.columns)) * m + 16 : l ? 22 : 2, S = e.high ?? (a ? Math.max(24, Math.min(b, 30)) : h ? Math.max(1, Math.round(b * g)) : b * g);
	return {
		left: u,
		top: x,
		across: b,
		down: S,
		turn: f,
		limit: r,
		width: u + b * e.width + _,
		height: x + S * e.height + (e.across ? 22 : 2)
	};
}
var ie = class e {
	onpoint;
	element;
	canvas = t("canvas");
	over = n("svg", { "aria-hidden": "true" });
	loupe;
	cells;
	lies;
	chosen = [0, 0];
	labels = [];
	marks = [];
	current = [];
	constructor(n, r = "matrix") {
		this.onpoint = n;
		let i = t("div", { class: "fv-cells" }, this.canvas, this.over);
		if (this.element = t("div", { class: "fv-grid" }, t("div", { class: "fv-scroll" }, i)), !n) return;
		let a = {
			tabindex: "0",
			role: "application",
			"aria-roledescription": r
		};
		for (let [e, t] of Object.entries(a)) i.setAttribute(e, t);
		i.addEventListener("pointermove", (e) => e.pointerType === "mouse" && this.pointed(e)), i.addEventListener("click", (e) => this.pointed(e)), this.loupe = new e(), this.loupe.element.classList.add("fv-loupe"), this.element.append(this.loupe.element);
	}
	get box() {
		return this.over.parentElement;
	}
	pointed(e) {
		let { cells: t, lies: n } = this;
		if (!t || !n) return;
		let r = this.box.getBoundingClientRect(), i = o(this.box), a = Math.floor(((e.clientX - r.x) / i - n.left) / n.across), s = Math.floor(((e.clientY - r.y) / i - n.top) / n.down);
		s >= 0 && a >= 0 && s < t.height && a < t.width && this.onpoint?.(s, a);
	}
	step(e) {
		let t = {
			ArrowUp: [-1, 0],
			ArrowDown: [1, 0],
			ArrowLeft: [0, -1],
			ArrowRight: [0, 1],
			Home: [0, -1e9],
			End: [0, 1e9]
		}[e];
		if (!t || !this.cells) return;
		let n = (e, t) => Math.max(0, Math.min(t - 1, e));
		return [n(this.chosen[0] + t[0], this.cells.height), n(this.chosen[1] + t[1], this.cells.width)];
	}
	show(e) {
		this.cells = e, this.layout();
	}
	layout(e = this.element.clientWidth, t = a(this.element)) {
		let { cells: r } = this;
		if (!r || e <= 0) return;
		let i = this.lies = re(r, e - 6, t), { left: o, top: s, across: c, down: l } = i, u = this.box, d = c * r.width, f = l * r.height;
		Object.assign(u.style, {
			width: `${i.width}px`,
			height: `${i.height}px`
		}), Object.assign(u.dataset, {
			left: o,
			top: s,
			across: c,
			down: l
		}), Object.assign(this.canvas.style, {
			left: `${o}px`,
			top: `${s}px`,
			width: `${d}px`,
			height: `${f}px`
		});
		let p = Math.max(1, Math.floor(1 / (Math.min(c, l) * (devicePixelRatio || 1)))), { levels: m, height: h, width: g } = A(r.levels, r.height, r.width, p);
		Object.assign(this.canvas, {
			width: g,
			height: h
		}), g * h && this.canvas.getContext("2d").putImageData(new ImageData(M(m, r.colours), g, h), 0, 0);
		for (let [e, t] of Object.entries({
			width: i.width,
			height: i.height
		})) this.over.setAttribute(e, String(t));
		this.over.replaceChildren(...this.rule(i, r), ...this.write(i, r), ...this.inside(i, r)), this.marks = [
			"fv-band",
			"fv-band",
			"fv-edge",
			"fv-cell"
		].map((e) => n("rect", { class: e })), this.current = [0, 1].map(() => n("text", { class: "fv-chosen" })), this.onpoint && this.over.append(...this.marks, ...this.current), this.loupe && (this.loupe.element.hidden = Math.min(c, l) >= U), this.select(...this.chosen);
	}
	rule({ left: e, top: t, across: r, down: i }, { height: a, width: o }) {
		if (Math.min(r, i) < 8) return [];
		let s = [];
		for (let n = 1; n < o; n++) s.push(`M${e + n * r} ${t}v${i * a}`);
		for (let n = 1; n < a; n++) s.push(`M${e} ${t + n * i}h${r * o}`);
		return [n("path", {
			class: "fv-rule",
			d: s.join("")
		})];
	}
	write(e, { rows: t, columns: r, down: i, across: a, height: o, width: c }) {
		this.labels = [], [[t, e.down], [r, e.across]].forEach(([t, r], i) => t.forEach((t, a) => {
			if (a % te(r)) return;
			let o = n("text", this.at(e, i, a), s(t, e.limit));
			this.labels.push({
				side: i,
				index: a,
				node: o
			});
		}));
		let l = [], u = e.top + e.down * o / 2;
		return i && t.length ? l.push(n("text", {
			class: "fv-quiet",
			x: e.left - 6,
			y: e.top - 7,
			"text-anchor": "end"
		}, s(i, e.limit, 12))) : i && l.push(n("text", {
			class: "fv-quiet",
			transform: `translate(12 ${u}) rotate(-90)`,
			"text-anchor": "middle"
		}, i)), a && l.push(n("text", {
			class: "fv-quiet",
			x: e.left + e.across * c / 2,
			y: e.height - 5,
			"text-anchor": "middle"
		}, a)), [...this.labels.map(({ node: e }) => e), ...l];
	}
	at(e, t, n) {
		if (t === 0) return {
			x: e.left - 6,
			y: e.top + (n + .5) * e.down + 4,
			"text-anchor": "end"
		};
		let r = e.left + (n + .5) * e.across;
		return e.turn === 0 ? {
			x: r,
			y: e.top - 7,
			"text-anchor": "middle"
		} : {
			transform: `translate(${r} ${e.top - 7}) rotate(${e.turn})`,
			y: 4
		};
	}
	inside({ left: e, top: t, across: r, down: i }, { texts: a, dots: o, levels: c, width: l, colours: u }) {
		let d = (n, a) => ({
			x: e + (a + .5) * r,
			y: t + (n + .5) * i
		}), f = (o ?? []).map(([e, t]) => {
			let { x: i, y: a } = d(e, t);
			return n("circle", {
				class: "fv-dot",
				cx: i,
				cy: a,
				r: Math.max(1.5, Math.min(5, r / 5))
			});
		});
		return !a?.length || i < 13 || a.forEach((e, t) => e.forEach((e, i) => {
			let { x: a, y: o } = d(t, i), p = c[t * l + i], m = p < 0 ? "" : F(p, u) ? "fv-on-light" : "fv-on-dark";
			f.push(n("text", {
				x: a,
				y: o + 4,
				"text-anchor": "middle",
				class: `fv-text ${m}`
			}, s(e, r - 4, 12)));
		})), f;
	}
	select(e, t) {
		this.chosen = [e, t];
		let { cells: n, lies: r } = this;
		if (!n || !r || !this.onpoint) return;
		let { left: i, top: a, across: o, down: c } = r, l = i + t * o, u = a + e * c, d = [
			[
				i,
				u,
				o * n.width,
				c
			],
			[
				l,
				a,
				o,
				c * n.height
			],
			[
				l,
				u,
				o,
				c
			],
			[
				l,
				u,
				o,
				c
			]
		];
		this.marks.forEach((e, t) => [
			"x",
			"y",
			"width",
			"height"
		].forEach((n, r) => e.setAttribute(n, String(d[t][r]))));
		for (let { side: e, index: t, node: n } of this.labels) {
			let r = this.chosen[e], i = e === 0 ? c : o;
			n.toggleAttribute("hidden", Math.abs(t - r) < te(i));
		}
		[n.rows, n.columns].forEach((e, t) => {
			let n = this.chosen[t], i = this.current[t];
			i.textContent = e.length ? s(e[n] ?? "", r.limit) : "";
			for (let e of [
				"transform",
				"x",
				"y"
			]) i.removeAttribute(e);
			for (let [e, a] of Object.entries(this.at(r, t, n))) i.setAttribute(e, String(a));
		}), this.loupe && !this.loupe.element.hidden && this.magnify(e, t);
	}
	magnify(e, t) {
		let { cells: n, loupe: r } = this;
		if (!n || !r) return;
		let i = (e, t) => {
			let n = Math.max(0, Math.min(e - 7, t - 15));
			return [n, Math.min(t, n + 15)];
		}, [a, o] = i(e, n.height), [s, c] = i(t, n.width), l = c - s, u = new Float64Array((o - a) * l);
		for (let e = a; e < o; e++) u.set(n.levels.subarray(e * n.width + s, e * n.width + c), (e - a) * l);
		r.cells = {
			height: o - a,
			width: l,
			levels: u,
			colours: n.colours,
			rows: n.rows.slice(a, o),
			columns: n.columns.slice(s, c),
			dots: [[e - a, t - s]]
		}, r.layout(Math.min(this.element.clientWidth, 328), 300);
	}
	colour(e, t) {
		let { cells: n } = this;
		return n ? P(n.levels[e * n.width + t], n.colours) : "";
	}
}, ae = 72, G = 4, oe = 3, K = 18, se = 16, ce = .16, le = (e) => e === null ? "mean" : `head ${e}`;
function ue(e, n) {
	let r = t("canvas", { "aria-hidden": "true" }), i = t("div", { class: "fv-heads-grid" }), o = t("div"), s = t("section", { class: n ? "fv-heads fv-large" : "fv-heads" }, t("h3", {}, "Layers and heads"), o, t("div", { class: "fv-scroll" }, i)), l = [], u = "", d = () => void 0, f = (n, r, i, a, o, s) => {
		let c = i === null ? "" : n.block.kinds[r]?.[i] ?? "", l = `layer ${r}, ${le(i)}${c && `: ${c}`}`, u = a && t("span", {}, c || le(i));
		return {
			layer: r,
			head: i,
			kind: c,
			x: o,
			y: s,
			button: t("button", {
				type: "button",
				"aria-label": l,
				title: l,
				click: () => e(r, i)
			}, u)
		};
	}, p = (e, o) => {
		let { layers: c, hasHeads: u, rows: p, columns: g, kinds: _ } = e.block, v = u ? Math.max(...c.map((t, n) => e.heads(n))) : 0, y = v === 1 ? [null] : [null, ...Array(v).keys()];
		s.hidden = y.length * c.length === 1;
		let b = (s.parentElement?.clientWidth || 300) - K - 10, x = Math.min(3, Math.max(1 / 3, p.length / g.length)), S = a(s, Infinity) / c.length - se - G, C = Math.max(28, Math.min(n ? 112 : 60, Math.floor(b / y.length) - G, Math.floor(S / x))), w = _.length > 0 && C >= 56, T = C - 6, E = Math.round(T * x), D = E + 6 + (w ? se : 0);
		i.style.gridTemplateColumns = `${K}px repeat(${y.length}, ${C}px)`, i.style.gridTemplateRows = `${K}px repeat(${c.length}, ${D}px)`;
		let O = (e, t, n) => n + G + e * (t + G) + oe;
		l = c.flatMap((t, n) => y.flatMap((t, r) => t !== null && t >= e.heads(n) ? [] : [f(e, n, t, w, O(r, C, K), O(n, D, K))]));
		let k = (e) => y.map((n) => l.find((t) => t.layer === e && t.head === n)?.button ?? t("span"));
		i.replaceChildren(t("span"), ...y.map((e) => t("span", {}, e === null ? "mean" : String(e))), ...c.flatMap((e, n) => [t("span", {}, String(n)), ...k(n)]), r), d = () => m(e, o, T, E), d(), h();
	}, m = (e, t, n, i) => {
		let a = devicePixelRatio || 1, o = l.reduce((e, { x: t, y: n }) => ({
			x: Math.max(e.x, t),
			y: Math.max(e.y, n)
		}), {
			x: 0,
			y: 0
		}), s = o.x + n, c = o.y + i, d = (e) => Math.round(e * a);
		Object.assign(r, {
			width: d(s),
			height: d(c)
		}), Object.assign(r.style, {
			width: `${s}px`,
			height: `${c}px`
		});
		let f = r.getContext("2d"), p = new ImageData(r.width, r.height), m = new Uint32Array(p.data.buffer);
		for (let { layer: a, head: o, kind: s, x: c, y: f } of l) {
			let l = e.small(a, o, t, Math.min(ae, d(Math.max(n, i))));
			if (!l) continue;
			let p = u !== "" && s !== u, h = M(l.levels, b);
			if (p) for (let e = 3; e < h.length; e += 4) h[e] *= ce;
			N(new Uint32Array(h.buffer), l.height, l.width, m, r.width, {
				x: d(c),
				y: d(f),
				width: d(n),
				height: d(i)
			});
		}
		f.putImageData(p, 0, 0);
	}, h = () => {
		let e = [...new Set(l.map(({ kind: e }) => e).filter(Boolean))].sort();
		e.includes(u) || (u = "");
		let t = (e) => l.filter(({ kind: t }) => t === e).length, n = (e) => {
			u = e, d();
		};
		o.replaceChildren(...e.length ? [c("Kind of head", [["", "all"], ...e.map((e) => [e, `${e}: ${t(e)} ${t(e) > 1 ? "heads" : "head"}`])], u, n).element] : []);
	};
	return {
		element: s,
		show: p,
		select: (e, t) => {
			let n = i.contains(i.getRootNode().activeElement);
			for (let r of l) {
				let i = r.layer === e && (r.head === t || l.every((e) => e.head === null));
				r.button.setAttribute("aria-pressed", String(i)), r.button.tabIndex = i ? 0 : -1, i && n && r.button.focus();
			}
		}
	};
}
// src/core/legend.ts
function de(e, n, r) {
	let i = t("canvas", {
		width: 256,
		height: 1,
		"aria-hidden": "true"
	}), a = Float64Array.from({ length: 256 }, (e, t) => t / 255);
	return i.getContext("2d").putImageData(new ImageData(M(a, e), 256, 1), 0, 0), t("figure", { class: "fv-legend" }, i, t("div", { class: "fv-marks" }, ...n.map(([e, n]) => {
		let r = t("span", {}, n);
		return r.style.left = `${100 * e}%`, r;
	})), t("figcaption", {}, r));
}
// src/core/looking.ts
var fe = (e, t) => Math.max(0, Math.min(t - 1, e));
function pe(e, t, n) {
	let r = n.layers.length, i = e.layer ?? t.layer, a = fe(i < 0 ? r + i : i, r), o = n.layers[a]?.shape[0] ?? 1, s = e.head === void 0 ? t.head : e.head;
	return {
		layer: a,
		head: s === null || o < 2 ? null : fe(s, o)
	};
}
function me(e, { rows: t, columns: n }, r) {
	let i = (e, t, n) => e && t !== void 0 && H(e, n) && t < n.length ? t : void 0, a = i(e.rows, e.row, t), o = i(e.columns, e.column, n);
	a === void 0 && o === void 0 && (a = i(e.columns, e.column, t), a === void 0 && (o = i(e.rows, e.row, n)), a === void 0 && o === void 0 && e.side === "row" && (a = V(e.rows, e.row, t)));
	let s = a === void 0 && o !== void 0 || e.side === "column" && o !== void 0 ? "column" : "row";
	return s === "column" ? {
		side: s,
		column: o,
		row: a ?? w(C(r, o))
	} : (a ??= 0, {
		side: s,
		row: a,
		column: o ?? w(S(r, a))
	});
}
var he = (e, { side: t, row: n, column: r }) => t === "row" ? S(e, n) : C(e, r);
function ge(e, t, n) {
	if (n < 2) return null;
	let r = ((e === null ? 0 : e + 1) + t + n + 1) % (n + 1);
	return r === 0 ? null : r - 1;
}
// src/core/links.ts
var _e = 24, q = 6;
function ve(e) {
	let r = n("svg", { "aria-hidden": "true" }), a = t("section", { class: "fv-join" }, t("div", {
		class: "fv-joined",
		tabindex: 0,
		role: "application",
		"aria-roledescription": "words joined by lines"
	}, r)), o = n("g", { class: "fv-idle" }), c = n("g", { class: "fv-now" }), l = {
		row: [],
		column: []
	}, u, d = !1, f = {
		row: 0,
		column: 0
	}, p = (e) => 40 + e * _e, m = (e, t) => {
		let n = p(e), r = p(t);
		if (!d) return `M${f.row} ${n}C${(f.row + f.column) / 2} ${n} ${(f.row + f.column) / 2} ${r} ${f.column} ${r}`;
		let i = f.row + (e === t ? 26 : 22 + 11 * Math.min(20, Math.abs(e - t)));
		return e === t ? `M${f.row} ${n - 5}C${i} ${n - 12} ${i} ${n + 12} ${f.row} ${n + 5}` : `M${f.row} ${n}C${i} ${n} ${i} ${r} ${f.row} ${r}`;
	}, h = (e, t, r) => n("path", {
		d: m(e, t),
		"stroke-width": .8 + 4.5 * r,
		opacity: .15 + .8 * r
	}), g = (t, r, i, a, o) => (l[t] = r.map((r, c) => {
		let l = () => e(t, c);
		return n("g", {
			pointerenter: l,
			click: l
		}, n("rect", {
			x: i === "end" ? a - o : a,
			y: p(c) - _e / 2,
			width: o,
			height: _e,
			rx: 4
		}), n("text", {
			x: i === "end" ? a - q : a + q,
			y: p(c) + 5,
			"text-anchor": i
		}, s(r, o - 10, 15)));
	}), l[t]);
	return {
		element: a,
		show: (e, t, s, m) => {
			if (u = m, a.hidden = Math.max(e.length, t.length) > 64, a.hidden) return;
			d = H(e, t) && e.length === t.length;
			let _ = Math.min(a.clientWidth || 600, 720), v = (_ - 90) / 2, y = d ? `${s} · looks at` : s, b = "looks at", x = (e, t) => Math.max(i(t, 12) + 12, Math.min(v, Math.max(...e.map((e) => i(e, 15))) + 34)), C = x(e, y), w = d ? 0 : x(t, b), E = d ? 260 : Math.max(90, Math.min(320, _ - C - w));
			f = {
				row: C + 4,
				column: C + E - 4
			}, l = {
				row: [],
				column: []
			};
			let D = [n("text", {
				class: "fv-quiet",
				x: C - q,
				y: 16,
				"text-anchor": "end"
			}, y), ...d ? [] : [n("text", {
				class: "fv-quiet",
				x: C + E + q,
				y: 16
			}, b)]];
			o.replaceChildren(...Array.from({ length: m.height }, (e, t) => {
				let n = S(m, t);
				return T(n).map((e) => h(t, e, n[e]));
			}).flat()), r.replaceChildren(...D, o, c, ...g("row", e, "end", C, C), ...d ? [] : g("column", t, "start", C + E, w));
			let O = Math.min(_, C + E + w + 8), k = p(Math.max(e.length, t.length));
			for (let [e, t] of Object.entries({
				width: O,
				height: k,
				viewBox: `0 0 ${O} ${k}`
			})) r.setAttribute(e, String(t));
		},
		select: (e) => {
			if (!u || a.hidden) return;
			let { side: t, row: r, column: i } = e, o = he(u, e), s = Math.max(...o) || 1, m = t === "row" ? "column" : "row", g = d ? l.row : l[m], _ = d ? l.row : l[t], v = t === "row" ? r : i;
			for (let e of [...l.row, ...l.column]) e.removeAttribute("class"), e.style.removeProperty("--level");
			g.forEach((e, t) => e.style.setProperty("--level", I(o[t] / s).toFixed(3))), g.forEach((e, t) => e.classList.toggle("fv-lit", o[t] / s >= .5)), _[v]?.classList.add("fv-chosen");
			let y = E(o, 6, .01);
			c.replaceChildren(...y.flatMap((e) => {
				let [a, s] = t === "row" ? [r, e] : [e, i], c = t === "row" ? e : a, l = d ? {
					x: f.row + 6,
					"text-anchor": "start"
				} : m === "column" ? {
					x: f.column - 4,
					"text-anchor": "end"
				} : {
					x: f.row + 4,
					"text-anchor": "start"
				};
				return [h(a, s, o[e]), n("text", {
					...l,
					y: p(c) - 4
				}, o[e].toFixed(2))];
			}));
		}
	};
}
// src/core/maps.ts
var ye = 4e6, be = class {
	block;
	layers;
	kept = /* @__PURE__ */ new Map();
	failure = "";
	constructor(e, t) {
		this.block = e, this.layers = e.layers.map((e, n) => {
			let r = _(e);
			if (!(r instanceof Promise)) return r;
			r.then((e) => {
				this.layers[n] = e;
			}, (e) => {
				this.failure = String(e);
			}).finally(() => t(n));
		});
	}
	heads(e) {
		return this.block.layers[e]?.shape[0] ?? 0;
	}
	map(e, t) {
		let n = this.layers[e];
		if (!n) return;
		let r = `${e}/${t}`, i = this.kept.get(r);
		if (i) return i;
		let [a = 0, o = 0, s = 0] = n.shape, c = o * s, l = {
			height: o,
			width: s,
			values: t === null ? y(n, 0, c, a) : y(n, t * c, c)
		};
		return this.kept.set(r, l), this.kept.size > 2 && this.kept.size * c > ye && this.kept.delete(this.kept.keys().next().value), l;
	}
	small(e, t, n, r) {
		let i = this.layers[e], [, a = 0, o = 0] = i?.shape ?? [], s = Math.ceil(Math.max(a, o) / r);
		if (i) return t === null ? j(this.map(e, null).values, 0, {
			height: a,
			width: o,
			tile: s,
			scale: n,
			unit: 1
		}) : j(i.raw, t * a * o, {
			height: a,
			width: o,
			tile: s,
			scale: n,
			unit: i.unit
		});
	}
};
function xe(e, t) {
	let { blocks: n } = e, r = n.findIndex((e) => e.name === t || t !== "" && e.name.endsWith(`.${t}`));
	return r >= 0 ? r : Math.max(0, n.findIndex((e) => e.name.includes("cross")));
}
// src/core/sentences.ts
var Se = .03, Ce = 6;
function we(e) {
	let r = n("svg", { class: "fv-links" }), i = (e) => {
		let n = t("span", { class: "fv-mean" }), r = t("p", { "data-side": e });
		return {
			side: e,
			mean: n,
			words: r,
			box: t("div", { class: "fv-line" }, n, r)
		};
	}, a = i("column"), o = i("row");
	a.mean.textContent = "looks at";
	let s = t("section", {
		class: "fv-sentences",
		"aria-hidden": "true"
	}, r, a.box, o.box), c = ({ side: n, words: r }, i) => r.replaceChildren(...i.map((r, i) => {
		let a = () => e(n, i);
		return t("span", {
			class: "fv-word",
			dir: "auto",
			pointerenter: a,
			click: a
		}, r);
	}));
	return {
		element: s,
		show: (e, t, n) => {
			o.mean.textContent = n, c(o, e), c(a, t);
		},
		select: (e, t, i) => {
			let [c, l] = e === "row" ? [o, a] : [a, o], u = Array.from(i).reduce((e, t) => Math.max(e, t), 0) || 1;
			for (let e of [c, l]) for (let [n, r] of [...e.words.children].entries()) {
				let a = e === l ? i[n] / u : 0;
				r.className = e === c && n === t ? "fv-word fv-chosen" : a >= .5 ? "fv-word fv-lit" : "fv-word", r.style.setProperty("--level", I(a).toFixed(3));
			}
			let d = s.getBoundingClientRect(), f = c.words.children[t]?.getBoundingClientRect();
			if (!f) return r.replaceChildren();
			r.replaceChildren(...E(i, Ce, Se).map((t) => {
				let r = l.words.children[t].getBoundingClientRect(), [a, o] = e === "column" ? [f, r] : [r, f], s = a.x + a.width / 2 - d.x, c = a.bottom - d.y + 3, p = o.x + o.width / 2 - d.x, m = o.top - d.y - 3, h = (c + m) / 2;
				return n("path", {
					d: `M${s} ${c} C${s} ${h} ${p} ${h} ${p} ${m}`,
					"stroke-width": 1 + 5 * i[t],
					opacity: .25 + .7 * (i[t] / u)
				});
			}));
		}
	};
}
// src/core/attention.ts
var Te = {
	matrix: [
		"sentences",
		"matrix",
		"blocks",
		"heads",
		"scale"
	],
	links: [
		"links",
		"blocks",
		"heads",
		"scale"
	],
	heads: [
		"heads",
		"matrix",
		"blocks",
		"scale"
	]
}, Ee = 2e4;
function De({ name: e, layers: t, hasHeads: n }, r, i) {
	let a = [R(e)];
	return t.length > 1 && a.push(`layer ${r}`), (!n || (t[r]?.shape[0] ?? 1) > 1) && a.push(i === null ? "mean of the heads" : `head ${i}`), a.join(", ");
}
function Oe(e, { rows: t, columns: n }, r) {
	let i = (e) => e.toFixed(4);
	if (e.values.length <= Ee) return {
		caption: r,
		columns: ["", ...n],
		rows: t.map((t, n) => [t, ...Array.from(S(e, n), i)])
	};
	let a = (t) => E(S(e, t), 8, 1e-4).map((r) => `${n[r]} ${i(S(e, t)[r])}`);
	return {
		caption: `${r}: the strongest of each row`,
		columns: ["", "looks at"],
		rows: t.map((e, t) => [e, a(t).join(", ")])
	};
}
function ke(e, n) {
	let { body: r, selection: i, options: a, memory: o } = e, s = new Set(a.parts ?? Te[n.form]), u = () => xe(n, i.now.block ?? n.block), d = o.get("scale") ?? n.scale, f = -1, p, m, h, g = {
		row: 0,
		column: 0,
		side: "row"
	}, _ = (e) => i.set(e), v = () => ({
		rows: m.rows,
		columns: m.columns
	}), y = (e, t) => _(e === "row" ? {
		...v(),
		side: e,
		row: t,
		column: void 0
	} : {
		...v(),
		side: e,
		column: t,
		row: void 0
	}), x = (e, t) => _({
		...v(),
		side: "row",
		row: e,
		column: t
	}), C = new ie(x, "matrix of attention"), w = we(y), T = ve(y), O = ue((e, t) => _({
		layer: e,
		head: t
	}), n.form === "heads" && !a.parts), k = t("output", {
		class: "fv-reading",
		"aria-live": "polite"
	}), A = t("p", { class: "fv-others" }), j = t("p", {
		class: "fv-keys",
		"data-unsaved": !0
	}, ...[
		"←",
		"↑",
		"↓",
		"→"
	].map((e) => t("kbd", {}, e)), " cell · ", t("kbd", {}, "["), t("kbd", {}, "]"), " layer · ", t("kbd", {}, ","), t("kbd", {}, "."), " head"), M = c("Attention of", n.blocks.map((e) => [e.name, R(e.name)]), n.blocks[u()]?.name ?? "", (e) => _({ block: e })), N = c("Colours", [["absolute", "absolute"], ["row", "by row"]], d, (e) => {
		o.set("scale", d = e), W();
	}), P = t("div"), F = t("p", {
		class: "fv-wrong",
		hidden: !0
	}), I = s.has("matrix") || s.has("links") || s.has("sentences"), L = (e, ...t) => s.has(e) ? t : [], z = t("div", { class: "fv-main" }, ...n.form === "heads" && !a.parts ? [O.element] : [], ...I ? [k, A] : [], ...L("links", T.element), ...L("matrix", C.element, ...a.frame === !1 ? [] : [j]), F), ee = I && (s.has("blocks") || s.has("heads") || s.has("scale")), B = t("div", { class: "fv-aside" }, ...ee ? L("matrix", C.loupe.element) : [], ...L("blocks", M.element), ...n.form === "heads" && !a.parts ? [] : L("heads", O.element), ...L("scale", N.element, P));
	r.append(...L("sentences", w.element), t("div", { class: ee ? "fv-two" : "" }, z, B)), z.hidden = !z.childElementCount;
	function te(e, t) {
		if (h && !h.values.some((e) => e > 0)) return "Silenced: all weights are 0. ";
		let n = (t === null ? m.kinds[e] ?? [] : []).flatMap((e, t) => e === "silenced" ? [`head ${t}`] : []);
		return n.length ? `Silenced: ${n.join(", ")}. ` : "";
	}
	let V = () => Math.max(m.rows.length, m.columns.length) > 64, H = () => pe(i.now, n, m);
	function ne() {
		if (!h) return;
		g = me(i.now, m, h);
		let { row: e, column: n, side: r } = g, a = he(h, g), { layer: o, head: c } = H(), l = De(m, o, c);
		if (s.has("matrix") && C.select(e, n), s.has("sentences") && !w.element.hidden && w.select(r, r === "row" ? e : n, a), s.has("links") && T.select(g), !I) return;
		let u = h.values[e * h.width + n], d = r === "row" ? m.columns : m.rows;
		k.replaceChildren(`${m.rowMeans} « `, t("bdi", {}, m.rows[e]), " »: ", t("bdi", {}, m.columns[n]), " ", t("b", {}, u.toFixed(4))), A.replaceChildren(te(o, c), `${l} · most: `, ...E(a, 3, .005).flatMap((e, n) => [
			n ? ", " : "",
			t("bdi", {}, d[e]),
			` ${a[e].toFixed(2)}`
		]));
		for (let e of [C.box, T.element.firstElementChild]) e.setAttribute("aria-label", `${l}: ${k.textContent}`);
	}
	function U() {
		let { layer: t, head: r } = H();
		if (h = p.map(t, r), F.hidden = !(F.textContent = h ? "" : p.failure ? `The weights could not be had: ${p.failure}` : "The weights are on their way …"), s.has("heads") && O.select(t, r), !h) return;
		let { rows: i, columns: a } = m;
		s.has("matrix") && C.show({
			height: h.height,
			width: h.width,
			levels: D(h, d),
			colours: b,
			rows: i,
			columns: a,
			down: m.rowMeans,
			dots: f === xe(n, n.block) ? n.gold : []
		}), s.has("links") && T.show(i, a, m.rowMeans, h), ne(), e.changed();
	}
	function W() {
		let e = u();
		f !== e && (f = e, m = n.blocks[e], p = new be(m, () => {
			f === e && W();
		}), w.element.hidden = V(), s.has("sentences") && !V() && w.show(m.rows, m.columns, m.rowMeans), M.set(m.name)), s.has("heads") && O.show(p, d);
		let t = l.scales[d];
		s.has("scale") && P.replaceChildren(de(b, t.marks, `${t.caption}; no colour: exactly 0 (masked)`)), U();
	}
	let re = i.on((e, t) => {
		"block" in t ? W() : "layer" in t || "head" in t ? U() : ne();
	});
	W();
	let ae = (e) => {
		let { layer: t, head: n } = H(), r = (e) => Math.max(0, Math.min(m.layers.length - 1, e)), i = (e) => _({ head: ge(n, e, p.heads(t)) }), a = {
			"[": () => _({ layer: r(t - 1) }),
			"]": () => _({ layer: r(t + 1) }),
			",": () => i(-1),
			".": () => i(1)
		}, o = e.target;
		O.element.contains(o) && Object.assign(a, {
			ArrowUp: a["["],
			ArrowDown: a["]"],
			ArrowLeft: a[","],
			ArrowRight: a["."]
		});
		let s = T.element.contains(o), c = g[g.side];
		s && Object.assign(a, {
			ArrowUp: () => y(g.side, Math.max(0, c - 1)),
			ArrowDown: () => y(g.side, Math.min(m[`${g.side}s`].length - 1, c + 1)),
			ArrowLeft: () => y("row", g.row),
			ArrowRight: () => y("column", g.column)
		});
		let l = C.box === o ? C.step(e.key) : void 0, u = a[e.key];
		return l ? x(...l) : u?.(), l !== void 0 || u !== void 0;
	}, G = () => De(m, H().layer, H().head);
	return {
		key: ae,
		resize: () => {
			s.has("heads") && O.show(p, d), U();
		},
		twin: () => h ? Oe(h, m, G()) : {
			caption: G(),
			columns: [],
			rows: []
		},
		json: () => h && {
			map: G(),
			rows: m.rows,
			columns: m.columns,
			weights: m.rows.map((e, t) => Array.from(S(h, t)))
		},
		redraw: (e) => {
			n = e, f = -1, W();
		},
		destroy: re
	};
}
// src/core/axes.ts
function J({ least: e, most: t, log: n }, r, i) {
	let a = n ? Math.log10 : (e) => e, o = a(e), s = a(t) - o || 1;
	return (e) => r + (a(e) - o) / s * (i - r);
}
var Ae = (e, t) => e.log ? ee(e.least, e.most) : z(e.least, e.most, t);
function je(e, t, n = .04) {
	let r = Infinity, i = -Infinity;
	for (let n of e) n === null || !Number.isFinite(n) || t && n <= 0 || (r = Math.min(r, n), i = Math.max(i, n));
	return r > i && ([r, i] = t ? [1, 10] : [0, 1]), r === i && ([r, i] = t ? [r / 2, i * 2] : [r - (Math.abs(r) * .1 || .5), i + (Math.abs(i) * .1 || .5)]), t ? {
		least: r / (i / r) ** n,
		most: i * (i / r) ** n,
		log: t
	} : {
		least: r - n * (i - r),
		most: i + n * (i - r),
		log: t
	};
}
function Me(e, t, n, r, a, o = 0) {
	let s = Ae(n, 5).map(B);
	return {
		left: Math.max(...s.map((e) => i(e, 12))) + 12 + (r ? 18 : 0),
		right: e - 12,
		top: 10,
		bottom: t - 22 - o - (a ? 20 : 0)
	};
}
function Ne(e, t, r) {
	let i = J(t, e.bottom, e.top), a = (e.top + e.bottom) / 2;
	return [...Ae(t, 5).flatMap((t) => [n("path", {
		class: "fv-rule-line",
		d: `M${e.left} ${i(t)}H${e.right}`
	}), n("text", {
		class: "fv-quiet",
		x: e.left - 6,
		y: i(t) + 4,
		"text-anchor": "end"
	}, B(t))]), ...r ? [n("text", {
		class: "fv-quiet",
		transform: `translate(12 ${a}) rotate(-90)`,
		"text-anchor": "middle"
	}, s(r, e.bottom - e.top, 12))] : []];
}
function Pe(e, t, r, a) {
	let o = -Infinity, s = [...t].sort((e, t) => e[0] - t[0]).filter(([e, t]) => {
		let n = i(t, 12) / 2;
		return e - n < o ? !1 : (o = e + n + 10, !0);
	});
	return [
		n("path", {
			class: "fv-axis",
			d: `M${e.left} ${e.bottom}H${e.right}`
		}),
		...s.flatMap(([t, r]) => {
			let a = i(r, 12) / 2, o = Math.min(e.right + 10 - a, t);
			return [n("path", {
				class: "fv-axis",
				d: `M${t} ${e.bottom}v4`
			}), n("text", {
				class: "fv-quiet",
				x: o,
				y: e.bottom + 17,
				"text-anchor": "middle"
			}, r)];
		}),
		...r ? [n("text", {
			class: "fv-quiet",
			x: (e.left + e.right) / 2,
			y: a - 5,
			"text-anchor": "middle"
		}, r)] : []
	];
}
// src/core/keys.ts
var Fe = {
	ArrowLeft: -1,
	ArrowRight: 1,
	Home: -1e9,
	End: 1e9
}, Ie = (e, t) => (n) => {
	let r = n.target === e ? Fe[n.key] : void 0;
	return r !== void 0 && t(r), r !== void 0;
}, Le = 2e3;
function Re({ caption: e, columns: n, rows: r }, i = Le) {
	let a = (e) => typeof e == "string" ? t("td", { dir: "auto" }, e) : t("td", { class: "fv-number" }, L(e)), o = r.slice(0, i).map(([e, ...n]) => t("tr", {}, t("th", {
		scope: "row",
		dir: "auto"
	}, typeof e == "string" ? e : L(e)), ...n.map(a))), s = r.length - o.length;
	return t("table", {}, t("caption", {}, s > 0 ? `${e} (${s} more rows are not listed)` : e), t("thead", {}, t("tr", {}, ...n.map((e) => e ? t("th", {
		scope: "col",
		dir: "auto"
	}, e) : t("td")))), t("tbody", {}, ...o));
}
function ze(e, t, n) {
	return {
		caption: [e.title, e.up].filter(Boolean).join(": "),
		columns: [e.across, ...n.flatMap(({ name: e, low: t }) => t.length ? [
			e,
			`${e}, low`,
			`${e}, high`
		] : [e])],
		rows: t.map((e, t) => [e, ...n.flatMap(({ values: e, low: n, high: r }) => (n.length ? [
			e,
			n,
			r
		] : [e]).map((e) => e[t] ?? null))])
	};
}
function Be(e) {
	let n = t("div", {
		class: "fv-scroll",
		tabindex: 0,
		role: "region",
		"aria-label": "table of the numbers"
	}), r = () => {
		let t = i.open ? e() : void 0;
		t && n.replaceChildren(Re(t));
	}, i = t("details", {
		class: "fv-twin",
		toggle: r
	}, t("summary", {}, "Table"), n);
	return {
		element: i,
		refresh: r
	};
}
// src/core/bars.ts
var Ve = 280, He = ({ body: e, selection: r }, a) => {
	let { labels: o, series: c } = a, l = n("svg", {
		class: "fv-plot",
		role: "img",
		"aria-label": a.title || "bars"
	}), u = t("div", {
		class: "fv-chart fv-scroll",
		tabindex: 0,
		role: "application",
		"aria-roledescription": "bars",
		"aria-label": a.title || "bars"
	}, l), d = t("output", { class: "fv-reading fv-small" }), f = t("div", {
		class: "fv-keys-row",
		hidden: c.length < 2
	}, ...c.map(({ name: e }, r) => t("span", { class: "fv-key" }, n("svg", {
		width: 12,
		height: 12,
		"aria-hidden": "true"
	}, n("rect", {
		class: `fv-bar fv-line-${r % 7}`,
		width: 12,
		height: 12,
		rx: 2
	})), e)));
	e.append(f, u, d);
	let p = [], m = 0, h = () => {
		p.forEach((e, t) => e.classList.toggle("fv-chosen", t === m)), o.length && d.replaceChildren(t("bdi", {}, o[m]), ...c.flatMap(({ name: e, values: n, low: r, high: i }) => [
			" · ",
			...c.length > 1 || e ? [t("bdi", {}, e), " "] : [],
			t("b", {}, L(n[m])),
			...r.length ? [` (${L(r[m])} … ${L(i[m])})`] : []
		]));
	}, g = (e) => {
		m = Math.max(0, Math.min(o.length - 1, e)), r.point(o, m), h();
	};
	function _() {
		let t = Math.min(Math.max(e.clientWidth - 6, 280), 960), r = Math.min(120, Math.max(0, ...o.map((e) => i(e, 12)))), u = je([
			0,
			a.at,
			...c.flatMap((e) => [
				...e.values,
				...e.low,
				...e.high
			])
		], !1, 0);
		u.most > 0 && (u.most += .06 * (u.most - u.least));
		let d = Math.max(18, 12 * c.length + 4), f = Me(t, Ve, u, a.up, a.across), m = Math.min(90, Math.max(d, (f.right - f.left) / Math.max(1, o.length))), _ = r > m - 6, v = _ ? Math.round(r * .85) : 0, y = Ve + v, b = Me(t, y, u, a.up, a.across, v);
		b.right = b.left + m * o.length;
		let x = b.right + (_ ? 40 : 12), S = J(u, b.bottom, b.top), C = Math.min(40, m * .76 / c.length);
		p = o.map((e, t) => {
			let r = b.left + (t + .5) * m, i = () => g(t), a = c.flatMap(({ values: e, low: i, high: a }, o) => {
				let s = e[t];
				if (s == null) return [];
				let l = r + (o - c.length / 2) * C, u = Math.min(S(s), S(0)), d = l + C / 2;
				return [n("rect", {
					class: `fv-bar fv-line-${o % 7}`,
					x: l + 1,
					y: u,
					width: C - 2,
					height: Math.max(1, Math.abs(S(s) - S(0))),
					rx: 2
				}), ...Number.isFinite(i[t] ?? NaN) && Number.isFinite(a[t] ?? NaN) ? [n("path", {
					class: "fv-whisker",
					d: `M${d} ${S(i[t])}V${S(a[t])}M${d - 4} ${S(i[t])}h8M${d - 4} ${S(a[t])}h8`
				})] : []];
			}), o = s(e, _ ? 120 : m - 4, 12);
			return n("g", {
				pointerenter: i,
				click: i
			}, n("rect", {
				class: "fv-hit",
				x: r - m / 2,
				y: b.top,
				width: m,
				height: b.bottom - b.top
			}), ...a, _ ? n("text", { transform: `translate(${r - 2} ${b.bottom + 12}) rotate(50)` }, o) : n("text", {
				x: r,
				y: b.bottom + 17,
				"text-anchor": "middle"
			}, o));
		}), l.replaceChildren(...Ne(b, u, a.up), n("path", {
			class: "fv-axis",
			d: `M${b.left} ${S(0)}H${b.right}`
		}), ...p, ...a.at === null ? [] : [n("path", {
			class: "fv-mark",
			d: `M${b.left} ${S(a.at)}H${b.right}`
		})], ...a.across ? [n("text", {
			class: "fv-quiet",
			x: (b.left + b.right) / 2,
			y: y - 5,
			"text-anchor": "middle"
		}, a.across)] : []);
		for (let [e, t] of Object.entries({
			width: x,
			height: y,
			viewBox: `0 0 ${x} ${y}`
		})) l.setAttribute(e, String(t));
		h();
	}
	let v = r.on(() => {
		m = r.placeOf(o) ?? m, h();
	});
	return _(), {
		resize: _,
		destroy: v,
		key: Ie(u, (e) => g(m + e)),
		twin: () => ze(a, o, c)
	};
}, Ue = 12e3, We = 60, Ge = ({ step: e, loss: t, validation: n }) => [
	`step ${e.toLocaleString("en-US")}`,
	...t === null ? [] : [`loss ${t.toFixed(2)}`],
	...n === null ? [] : [`validation ${n.toFixed(2)}`]
].join(" · ");
function Ke(e) {
	let t = e.map(({ loss: e }) => e ?? NaN), n = t.filter(Number.isFinite), r = Math.max(...n), i = Math.min(0, ...n), a = (e) => 100 * e / Math.max(1, t.length - 1), o = (e) => 29 - 28 * (e - i) / (r - i || 1);
	return t.flatMap((e, t) => Number.isFinite(e) ? [`${a(t).toFixed(2)},${o(e).toFixed(2)}`] : []).join(" ");
}
var qe = (e, r) => {
	let { block: i, layer: a, head: o } = r, s = r.frames, c = s.length - 1, l = c, u, d = () => ({
		kind: "attention",
		title: r.title,
		caption: "",
		notes: [],
		blocks: s[l].blocks,
		form: "matrix",
		block: i,
		layer: a,
		head: o,
		scale: "absolute",
		gold: []
	}), f = t("button", {
		type: "button",
		"data-testid": "play-film",
		click: () => {
			w();
		}
	}, "▶ play"), p = (e, n, r) => t("button", {
		type: "button",
		"aria-label": n,
		click: () => {
			x(), S(l + r);
		}
	}, e), m = t("input", {
		type: "range",
		min: 0,
		"aria-label": "snapshot",
		"data-testid": "film-scrub",
		input: () => {
			x(), S(Number(m.value));
		}
	}), h = n("polyline"), g = n("line", {
		class: "fv-film-now",
		y1: 0,
		y2: 30
	}), _ = n("svg", {
		class: "fv-film-loss",
		viewBox: "0 0 100 30",
		preserveAspectRatio: "none",
		"aria-hidden": "true"
	}, h, g), v = t("output", { class: "fv-film-label" }), y = t("div");
	e.body.append(t("div", { class: "fv-walk" }, f, p("‹", "snapshot before", -1), p("›", "next snapshot", 1), t("div", { class: "fv-film-time" }, _, m)), v, y);
	let b = ke({
		...e,
		body: y
	}, d()), x = () => {
		clearInterval(u), u = void 0, f.textContent = "▶ play", y.removeAttribute("aria-busy");
	}, S = (e) => {
		l = Math.max(0, Math.min(c, e)), m.value = String(l), m.setAttribute("aria-valuetext", v.textContent = Ge(s[l]));
		for (let e of ["x1", "x2"]) g.setAttribute(e, String(100 * l / Math.max(1, c)));
		b.redraw(d());
	}, C = (e) => {
		let t = l === c && !u;
		s = e.frames, c = s.length - 1, m.max = String(c), h.setAttribute("points", Ke(s)), S(t ? c : l);
	}, w = () => {
		if (u) return x();
		l === c && S(0), f.textContent = "❚❚ pause", y.setAttribute("aria-busy", "true"), u = setInterval(() => {
			l < c ? S(l + 1) : x();
		}, Math.max(We, Ue / s.length));
	};
	return C(r), {
		grow: (e) => {
			e.kind === "film" && C(e);
		},
		twin: () => ({
			...b.twin(),
			caption: `${Ge(s[l])}: ${b.twin().caption}`
		}),
		key: (t) => {
			if (b.key?.(t)) return !0;
			if (!(t.target instanceof Element) || !e.body.contains(t.target)) return !1;
			let n = {
				ArrowRight: 1,
				ArrowLeft: -1
			}[t.key], r = t.key === " " && !t.target.closest("button, input");
			return n ? (x(), S(l + n)) : r && w(), n !== void 0 || r;
		},
		resize: () => b.resize?.(),
		destroy: () => {
			x(), b.destroy?.();
		}
	};
}, Je = 34, Ye = 26, Xe = 24;
function Ze(e, t) {
	let n = [], r = /* @__PURE__ */ new Set();
	for (let i = e.get(t); i && !r.has(i.id); i = i.parent === null ? void 0 : e.get(i.parent)) r.add(i.id), n.unshift(i);
	return n;
}
var Qe = (e) => e.reduce((e, { text: t }) => e + (/^<.*>$/.test(t) ? ` ${t}` : t.replace("␣", " ")), "").trim(), $e = ({ body: e, selection: r }, a) => {
	let { steps: o } = a, c = new Map(o.flat().map((e) => [e.id, e])), l = new Set(a.best), u = o.flat().filter(({ id: e }) => l.has(e)).map(({ text: e }) => e.trim() || e), d = Math.min(132, Math.max(56, ...o.flat().map(({ text: e }) => i(e) + 22))), f = d + 34, p = Math.max(1, ...o.map((e) => e.length)), m = f * o.length + 4, h = Xe + Je * p + 4, g = /* @__PURE__ */ new Map();
	o.forEach((e, t) => e.forEach(({ id: e }, n) => g.set(e, [t * f + 2, Xe + n * Je])));
	let _ = n("svg", {
		class: "fv-plot",
		"aria-hidden": "true",
		width: m,
		height: h,
		viewBox: `0 0 ${m} ${h}`
	}), v = t("div", {
		class: "fv-scroll fv-lanes",
		tabindex: 0,
		role: "application",
		"aria-roledescription": "beam"
	}, _), y = t("output", {
		class: "fv-reading fv-small",
		"aria-live": "polite"
	});
	e.append(y, v, t("p", { class: "fv-quiet" }, "thick: the answer · dashed: cut off"), t("p", {
		class: "fv-keys",
		"data-unsaved": !0
	}, t("kbd", {}, "←"), " ", t("kbd", {}, "→"), " step · ", t("kbd", {}, "↑"), " ", t("kbd", {}, "↓"), " rank"));
	let b = /* @__PURE__ */ new Map(), x = /* @__PURE__ */ new Map(), S = (e) => `fv-${e.state}${l.has(e.id) ? " fv-best" : ""}`, C, w = (e) => {
		C = e;
		let n = Ze(c, e.id), r = new Set(n.map(({ id: e }) => e));
		for (let [e, t] of x) t.classList.toggle("fv-on", r.has(e));
		for (let [e, t] of b) t.classList.toggle("fv-on", r.has(e));
		x.forEach((t, n) => t.classList.toggle("fv-chosen", n === e.id)), y.replaceChildren(t("bdi", {}, Qe(n)), " · log p ", t("b", {}, L(e.logP)), " · score ", t("b", {}, L(e.score)), e.state === "pruned" ? " · cut off" : e.state === "done" ? " · finished" : ""), v.setAttribute("aria-label", y.textContent ?? "");
	}, T = (e) => {
		w(e), l.has(e.id) && r.point(u, u.length ? [...c.values()].filter(({ id: e }) => l.has(e)).indexOf(e) : 0);
	};
	for (let e of c.values()) {
		let [t, r] = g.get(e.id), i = e.parent === null ? void 0 : g.get(e.parent);
		if (i) {
			let a = i[0] + d, o = i[1] + Ye / 2, s = r + Ye / 2, c = (a + t) / 2;
			b.set(e.id, n("path", {
				class: `fv-edge-line ${S(e)}`,
				d: `M${a} ${o}C${c} ${o} ${c} ${s} ${t} ${s}`
			}));
		}
		x.set(e.id, n("g", {
			class: `fv-node ${S(e)}`,
			pointerenter: () => T(e),
			click: () => T(e)
		}, n("rect", {
			x: t,
			y: r,
			width: d,
			height: Ye,
			rx: 6
		}), n("text", {
			x: t + d / 2,
			y: r + 17,
			"text-anchor": "middle"
		}, s(e.text.trim() || e.text, d - 12))));
	}
	_.append(...o.map((e, t) => n("text", {
		class: "fv-quiet",
		x: t * f + 2 + d / 2,
		y: 14,
		"text-anchor": "middle"
	}, String(t + 1))), ...b.values(), ...x.values());
	let E = [...c.values()].filter(({ id: e }) => l.has(e)).at(-1) ?? o.at(-1)?.[0];
	E && w(E);
	let D = r.on(() => {
		let e = u.length ? r.placeOf(u) : void 0, t = e === void 0 ? void 0 : [...c.values()].filter(({ id: e }) => l.has(e))[e];
		t && t !== C && w(t);
	}), O = (e, t) => {
		let n = o.findIndex((e) => C !== void 0 && e.includes(C));
		if (n < 0) return !1;
		let r = o[Math.max(0, Math.min(o.length - 1, n + e))], i = o[n].indexOf(C) + t, a = r[Math.max(0, Math.min(r.length - 1, i))];
		return a && T(a), x.get(a?.id ?? -1)?.scrollIntoView({
			block: "nearest",
			inline: "nearest"
		}), !0;
	};
	return {
		destroy: D,
		key: (e) => {
			let t = e.target === v ? {
				ArrowLeft: [-1, 0],
				ArrowRight: [1, 0],
				ArrowUp: [0, -1],
				ArrowDown: [0, 1]
			}[e.key] : void 0;
			return t !== void 0 && O(...t);
		},
		twin: () => ({
			caption: a.title || "beam",
			columns: [
				"step",
				"rank",
				"text",
				"log p",
				"score",
				"state"
			],
			rows: o.flatMap((e, t) => e.map((e, n) => [
				String(t + 1),
				n + 1,
				Qe(Ze(c, e.id)),
				e.logP,
				e.score,
				l.has(e.id) ? `${e.state}, answer` : e.state
			]))
		})
	};
}, et = [
	"",
	"7 4",
	"2 3",
	"9 3 2 3",
	"12 5",
	"4 2 1 2",
	"1 3"
], tt = 300, nt = 3, rt = 24;
function it(e, t, n, r, i) {
	let a = e.map((e, i) => {
		let a = t[i], [o, s] = a == null ? [NaN, NaN] : [n(e), r(a)];
		return Number.isFinite(o) && Number.isFinite(s) ? [o, s] : null;
	}), o = "", s = !1;
	for (let e of a.length > 4 * i ? at(a) : a) e && (o += `${s ? "L" : "M"}${e[0].toFixed(1)} ${e[1].toFixed(1)}`), s = e !== null;
	return o;
}
function at(e) {
	let t = [], n = [], r = () => {
		let e = [...n].sort((e, t) => e[1] - t[1]), r = /* @__PURE__ */ new Set([
			n[0],
			e[0],
			e.at(-1),
			n.at(-1)
		]);
		t.push(...n.filter((e) => r.has(e))), n = [];
	};
	for (let i of e) n.length && (!i || Math.floor(i[0]) !== Math.floor(n[0][0])) && r(), i ? n.push(i) : t.push(null);
	return n.length && r(), t;
}
function ot(e, { low: t, high: n }, r, i) {
	let a = e.map((e, t) => t).filter((e) => Number.isFinite(t[e] ?? NaN) && Number.isFinite(n[e] ?? NaN));
	if (!a.length) return "";
	let o = (t, n) => `${r(e[t]).toFixed(1)} ${i(n).toFixed(1)}`;
	return `M${a.map((e) => o(e, n[e])).join("L")}L${a.reverse().map((e) => o(e, t[e])).join("L")}Z`;
}
var Y = (e) => e == null, st = (e, t) => !Y(e[t]) && (e.length <= rt || Y(e[t - 1]) && Y(e[t + 1]));
function ct(e) {
	let t = e.map(({ hue: e }, t) => e ?? t), n = t.filter((t, n) => !e[n].faint), r = /* @__PURE__ */ new Map(), i = new Set(n).size < n.length;
	return e.map(({ faint: e }, n) => {
		let a = t[n], o = r.get(a) ?? 0;
		return e || r.set(a, o + 1), [a, e ? 0 : i ? o : a];
	});
}
function lt(e, t) {
	let n = 0;
	for (let r = 1; r < e.length; r++) Math.abs(e[r] - t) < Math.abs(e[n] - t) && (n = r);
	return n;
}
var ut = ({ body: e, memory: r, selection: i }, s) => {
	let { x: c, curves: l, labels: u, marks: d } = s, f = r.get("hidden") ?? /* @__PURE__ */ new Set();
	r.set("hidden", f);
	let p = c.length - 1, m = (e) => e, h = n("svg", {
		class: "fv-plot",
		role: "img",
		"aria-label": s.title || "lines"
	}), g = n("path", { class: "fv-cross" }), _ = t("output", { class: "fv-reading fv-small" }), v = t("div", {
		class: "fv-chart",
		tabindex: 0,
		role: "application",
		"aria-roledescription": "lines",
		"aria-label": s.title || "lines"
	}, h), y = ct(l), b = (e) => s.joined ? et[y[e][1] % 7] : "", x = (e) => `fv-line-${y[e][0] % 7}${l[e].faint ? " fv-faint" : ""}`, S = t("div", { class: "fv-keys-row" }, ...l.map((e, r) => {
		let i = n("svg", {
			width: 26,
			height: 10,
			"aria-hidden": "true"
		}, n("path", {
			class: `fv-curve ${x(r)}`,
			d: s.joined ? "M1 5H25" : "M11 5H15",
			"stroke-dasharray": b(r)
		})), a = t("button", {
			type: "button",
			class: "fv-key",
			"aria-pressed": String(!f.has(e.name)),
			click: () => {
				f.has(e.name) ? f.delete(e.name) : f.add(e.name), a.setAttribute("aria-pressed", String(!f.has(e.name))), T();
			}
		}, i, e.name);
		return a;
	}));
	e.append(S, v, _);
	let C = (e) => u[e] ?? `${s.across || "x"} ${L(c[e])}`, w = () => {
		if (!c.length) return;
		let e = l.filter(({ name: e }) => !f.has(e)).flatMap((e) => [
			" · ",
			t("bdi", {}, e.name),
			" ",
			t("b", {}, L(e.y[p]))
		]);
		_.replaceChildren(t("bdi", {}, C(p)), ...e), g.setAttribute("d", `M${m(c[p]).toFixed(1)} 10V${g.dataset.bottom ?? 0}`);
	};
	function T() {
		let t = Math.min(Math.max(e.clientWidth, 280), 960), r = Math.min(tt, a(e)), i = l.filter(({ name: e }) => !f.has(e)), o = s.log.includes("y"), p = s.log.includes("x"), _ = je(i.flatMap((e) => [
			...e.y,
			...e.low,
			...e.high
		]), o), v = je([
			...c,
			...d.map((e) => e.x),
			...s.ends ?? []
		], p, s.joined ? 0 : .25), y = Me(t, r, _, s.up, s.across), S = J(_, y.bottom, y.top);
		m = J(v, y.left, y.right);
		let C = Math.max(2, Math.floor(t / 90)), T = u.length ? c.map((e, t) => [m(e), u[t] ?? ""]).filter((e, t) => t % Math.ceil(c.length / C) === 0) : Ae(v, C).map((e) => [m(e), B(e)]), E = s.joined ? 0 : 8, D = ({ low: e, high: t }) => c.flatMap((n, r) => Y(e[r]) || Y(t[r]) ? [] : [`M${m(n)} ${S(e[r])}V${S(t[r])}`]).join(""), O = `fv-clip-${Math.random().toString(36).slice(2)}`;
		g.dataset.bottom = String(y.bottom), h.replaceChildren(n("clipPath", { id: O }, n("rect", {
			x: y.left - nt,
			y: 0,
			width: y.right - y.left + 6,
			height: y.bottom + nt
		})), ...Ne(y, _, s.up), ...Pe(y, T, s.across, r), ...d.flatMap(({ x: e, label: r }) => [n("path", {
			class: "fv-mark",
			d: `M${m(e)} ${y.top}V${y.bottom}`
		}), n("text", {
			class: "fv-quiet",
			...m(e) > t * .7 ? {
				x: m(e) - 5,
				"text-anchor": "end"
			} : { x: m(e) + 5 },
			y: y.top + 10
		}, r)]), n("g", { "clip-path": `url(#${O})` }, ...l.map((e, r) => n("g", { transform: `translate(${E * r} 0)` }, ...f.has(e.name) ? [] : [
			...e.low.length && s.joined ? [n("path", {
				class: `fv-area ${x(r)}`,
				d: ot(c, e, m, S)
			})] : [],
			n("path", {
				class: `fv-curve ${x(r)}`,
				d: s.joined ? it(c, e.y, m, S, t) : D(e),
				"stroke-dasharray": b(r)
			}),
			...c.flatMap((t, i) => st(e.y, i) && Number.isFinite(S(e.y[i])) ? [n("circle", {
				class: `fv-point ${x(r)}`,
				cx: m(t),
				cy: S(e.y[i]),
				r: nt
			})] : [])
		]))), g);
		for (let [e, n] of Object.entries({
			width: t,
			height: r,
			viewBox: `0 0 ${t} ${r}`
		})) h.setAttribute(e, String(n));
		w();
	}
	let E = (e, t = !0) => {
		p = Math.max(0, Math.min(c.length - 1, e)), t && u.length && i.point(u, p), w();
	};
	v.addEventListener("pointermove", (e) => {
		if (!c.length) return;
		let t = (e.clientX - h.getBoundingClientRect().x) / o(v);
		E(lt(c.map(m), t));
	});
	let D = i.on(() => {
		let e = u.length ? i.placeOf(u) : void 0;
		e !== void 0 && E(e, !1);
	});
	return T(), {
		resize: T,
		destroy: D,
		key: Ie(v, (e) => E(p + e)),
		twin: () => ze(s, c.map((e, t) => u[t] ?? L(e)), l.map(({ y: e, ...t }) => ({
			values: e,
			...t
		})))
	};
}, dt = 110, ft = 96, X = 40, pt = 16, mt = 60, Z = 34, ht = 3, Q = (e) => e.toLocaleString("en-US"), gt = ({ parameters: e, shared: t }) => e + t, _t = ({ parameters: e, shared: t }) => Q(e) + (t ? ` + ${Q(t)} shared` : ""), vt = ({ widths: e }) => e.filter((t, n) => t !== e[n - 1]).map(Q).join(" → "), yt = ({ label: e, reads: t }) => e + (t.length ? ` ← ${t.join(", ")}` : ""), bt = ({ output: e, calls: t, steps: n }) => e + (t > 1 && !n.length ? `, ${t} times` : ""), $ = ({ hue: e }) => e === null ? "var(--quiet)" : l.lines[e % l.lines.length], xt = (e) => e.reduce((e, { parameters: t }) => e + t, 0);
function St(e) {
	let t = [], n = (e) => JSON.stringify(e.map((e) => [
		e.does,
		e.widths,
		gt(e)
	])), r = [];
	for (let n of e) n.layer === r[0]?.layer && r.length || t.push([r = []]), r.push(n);
	return t.reduce((e, [t]) => {
		let r = e.at(-1);
		return r && t[0].layer !== null && n(r[0]) === n(t) ? r.push(t) : e.push([t]), e;
	}, []);
}
var Ct = ({ body: e, options: r, memory: i }, { title: a, parts: o }) => {
	let s = o.flatMap((e) => e.blocks), c = /* @__PURE__ */ new Map(), l = dt / Math.sqrt(Math.max(1, ...s.flatMap(({ widths: e }) => e))), u = ft / Math.sqrt(Math.max(1, ...s.map(gt))), d = ({ widths: e }) => e.map((e) => l * Math.sqrt(e)), f = t("div", {
		class: "fv-details",
		"aria-live": "polite",
		"data-testid": "block-details"
	}), p, m = !1, h = ({ walk: e }) => {
		e && r.onwalk?.(String(e[0]), Number(e[1]));
	}, g = (e) => {
		if (p === e) return;
		for (let [t, n] of c) n.tabIndex = t === e ? 0 : -1, n.classList.toggle("fv-chosen", t === e);
		p = e, i.set("block", e.name);
		let n = (e, n) => n ? t("span", {}, t("span", { class: "fv-quiet" }, `${e} `), n) : void 0;
		f.replaceChildren(t("div", {}, t("b", {}, e.name), ` ${e.does} `, t("code", {}, e.place)), t("div", { class: "fv-formula" }, e.equation), t("div", { class: "fv-facts" }, n("sizes", vt(e)), n("gives", bt(e)), n("parameters", _t(e)), n("of which", e.weights.join(", ")), n("reads", e.reads.join(", ")), e.walk && r.onwalk ? t("button", {
			type: "button",
			click: () => {
				h(e);
			}
		}, "Step by step ›") : void 0));
	}, _ = (r) => {
		let i = r.blocks.filter(({ branch: e }) => e !== null), a = r.blocks.filter(({ branch: e }) => e === null), o = Math.max(12, ...a.flatMap(d)) / 2, s = Math.max(0, ...i.flatMap(d)), l = o + Math.max(0, ...i.map((e) => d(e).at(-1) ?? 0)) / 2 + pt, f = Math.ceil(Math.max(2 * o, i.length ? l + s : 0)) + 4, _ = 0, v = (e, t) => n("rect", {
			class: "fv-stream",
			x: o - _ / 2,
			y: e,
			width: _,
			height: Math.max(0, t - e)
		}), y = (e, ...t) => n("svg", {
			width: f,
			height: e,
			"aria-hidden": "true"
		}, ...t), b = (e, t, r) => {
			let i = d(e), a = i.length && Math.max(3, u * Math.sqrt(gt(e))), c = Math.ceil(Math.max(X + (e.steps.length ? 62 : 0), a + 8)), f = (c - a) / 2, p = [];
			if (e.branch === null) _ ||= i[0] ?? 0, p.push(v(0, f)), _ = i.at(-1) ?? _, p.push(v(f + a, c));
			else {
				let e = l + s / 2, i = c - 5;
				p.push(v(0, c), n("path", {
					class: "fv-wire",
					d: `M${t ? `${o + _ / 2} 5H${e}` : `${e} 0`}V${r ? `${i}H${o}` : c}`
				})), r && p.push(n("path", {
					class: "fv-plus",
					d: `M${o - 5} ${i}a5 5 0 1 0 10 0a5 5 0 1 0 -10 0h10m-5 -5v10`
				}));
			}
			let m = e.branch === null ? o : l + s / 2, h = i.map((e, t) => f + a * t / (i.length - 1));
			if (i.length) {
				let t = i.map((e, t) => `${m - e / 2} ${h[t]}`), r = i.map((e, t) => `${m + e / 2} ${h[t]}`).reverse();
				p.push(n("path", {
					d: `M${[...t, ...r].join("L")}Z`,
					fill: e.parameters ? $(e) : "var(--paper)",
					stroke: $(e)
				}));
			}
			return y(c, ...p);
		}, x = (n, i) => {
			let a = r.blocks.indexOf(n), o = (e) => r.blocks[a + e]?.branch ?? null, s = t("button", {
				type: "button",
				class: "fv-block",
				tabindex: -1,
				"data-block": n.name,
				pointerenter: (e) => {
					e.pointerType === "mouse" && g(n);
				},
				pointerdown: (e) => {
					m = e.pointerType !== "mouse" && p !== n;
				},
				focus: () => {
					g(n);
				},
				click: () => {
					m || h(n), m = !1, g(n);
				}
			}, b(n, o(-1) !== n.branch, o(1) !== n.branch), t("span", {}, t("b", {}, yt(n)), t("span", { class: "fv-quiet" }, [bt(n), _t(n)].filter(Boolean).join(" · ")), n.steps.length ? wt(n, e.clientWidth < 600 ? 1 : ht) : void 0));
			return s.dataset.row = String(i), c.set(n, s), s;
		}, S = St(r.blocks).flatMap((e) => {
			let n = e.map((e) => e.map(x));
			if (e.length < 4 || e[0][0].layer === null) return n.flat();
			let [r, i, a] = [
				0,
				1,
				e.length - 2
			].map((t) => e[t][0].layer), o = `layers ${i} … ${a}: as layer ${r}, ${Q(xt(e[1]))} each`;
			return [
				...n[0],
				t("details", { class: "fv-alike" }, t("summary", { class: "fv-quiet" }, y(X, v(0, X)), t("span", {}, o)), ...n.slice(1, -1).flat()),
				...n.at(-1)
			];
		});
		return t("section", { "aria-label": r.name }, t("h3", {}, `${r.name} · ${r.does} · ${Q(xt(r.blocks))}`), ...S);
	}, v = [...new Map(s.filter(({ hue: e }) => e !== null).map((e) => [e.family, $(e)]))].map(([e, r]) => t("span", { class: "fv-key" }, n("svg", {
		width: 12,
		height: 12,
		"aria-hidden": "true"
	}, n("rect", {
		width: 12,
		height: 12,
		fill: r
	})), e));
	e.append(t("div", { class: "fv-keys-row" }, ...v, t("span", { class: "fv-key" }, "outlined: shares its parameters with an earlier block")), t("div", { class: "fv-model" }, t("div", { class: "fv-parts" }, ...o.map(_)), f));
	let y = s.find(({ name: e }) => e === i.get("block")) ?? s[0];
	return y && g(y), {
		key: ({ key: e, target: t }) => {
			let n = {
				ArrowDown: 1,
				ArrowUp: -1
			}[e], r = [...c.values()].filter((e) => e.checkVisibility());
			return !n || !(t instanceof HTMLButtonElement) || !t.classList.contains("fv-block") ? !1 : (r[r.indexOf(t) + n]?.focus(), !0);
		},
		twin: () => ({
			caption: a || "model",
			columns: [
				"block",
				"class",
				"place",
				"computes",
				"sizes",
				"output",
				"parameters",
				"shared"
			],
			rows: s.map((e) => [
				e.name,
				e.does,
				e.place,
				e.equation,
				vt(e),
				e.output,
				e.parameters,
				e.shared
			])
		})
	};
};
function wt(e, t) {
	let r = e.steps.length <= t + 2 ? e.steps : [
		...e.steps.slice(0, t),
		null,
		e.steps.at(-1)
	], i = r.flatMap((t, i) => {
		let a = 2 + i * mt, o = e.backwards ? `M${a + mt} 25h-23m5 -4l-5 4l5 4` : `M${a + Z} 25h23m-5 -4l5 4l-5 4`;
		return [...t === null ? [n("text", {
			x: a + Z / 2,
			y: 29,
			"text-anchor": "middle"
		}, "…")] : [
			n("rect", {
				x: a,
				y: 14,
				width: Z,
				height: 22,
				rx: 3,
				fill: "none",
				stroke: $(e),
				"stroke-width": 1.5
			}),
			n("text", {
				class: "fv-quiet",
				x: a + Z / 2,
				y: 29,
				"text-anchor": "middle"
			}, "cell"),
			n("text", {
				class: "fv-quiet",
				x: a + Z / 2,
				y: 52,
				"text-anchor": "middle"
			}, s(t, 52, 12)),
			n("path", {
				class: "fv-wire",
				d: `M${a + Z / 2} 41v-5`
			})
		], ...i < r.length - 1 ? [n("path", {
			class: "fv-wire",
			d: o
		}), n("text", {
			class: "fv-quiet",
			x: a + 47,
			y: 12,
			"text-anchor": "middle"
		}, e.states)] : []];
	}), a = mt * r.length;
	return n("svg", {
		class: "fv-unrolled",
		viewBox: `0 0 ${a} 58`,
		width: a,
		height: 58,
		"aria-hidden": "true"
	}, ...i);
}
// src/core/picture.ts
function Tt(e, t) {
	if (t === "absolute") return e;
	let n = Math.max(e.reduce((e, t) => Math.max(e, t), 0), Math.min(1, l.even / Math.max(1, e.length)));
	return e.map((e) => e / n);
}
function Et(e, t, n, r, i) {
	let a = new Uint8ClampedArray(e.length), o = r.length / i, { dark: s, light: c } = l.tint;
	for (let l = 0; l < n; l++) for (let u = 0; u < t; u++) {
		let d = 4 * (l * t + u), f = (e[d] + e[d + 1] + e[d + 2]) / 765, p = r[Math.floor(l * o / n) * i + Math.floor(u * i / t)];
		for (let e = 0; e < 3; e++) a[d + e] = 255 * ((1 - p) * f + p * (s[e] + f * (c[e] - s[e])));
		a[d + 3] = 255;
	}
	return a;
}
var Dt = (e, n) => {
	let { body: r, selection: i } = e, { width: a, height: o, overlays: s, path: c } = n, u = s.map(({ title: e }) => e), d = Math.max(a, o) <= 64 ? "fv-sharp" : "", f = t("img", {
		src: n.image,
		alt: n.title || "the picture",
		width: a,
		height: o,
		class: d
	}), p = t("canvas", {
		width: a,
		height: o,
		class: d,
		"aria-hidden": "true"
	}), m = t("output", {
		class: "fv-reading fv-small",
		"aria-live": "polite"
	}), h = Math.max(1, Math.min(360 / Math.max(a, o), 12)), g = t("div", { class: "fv-picture" }, f, p);
	Object.assign(g.style, {
		aspectRatio: `${a} / ${o}`,
		width: `${a * h}px`
	});
	let v = -1, b = [], x = [], S = s.map((e, n) => {
		let r = t("canvas", {
			width: a,
			height: o,
			class: d,
			"aria-hidden": "true"
		}), i = () => D(n);
		return {
			canvas: r,
			button: t("button", {
				type: "button",
				"aria-pressed": "false",
				click: i,
				pointerenter: i,
				focus: i
			}, r, t("span", { dir: "auto" }, e.title))
		};
	}), C = t("div", { class: "fv-panels" }, ...S.map(({ button: e }) => e)), w = t("input", {
		type: "range",
		min: 0,
		max: 100,
		value: 100,
		input: () => {
			p.style.opacity = String(Number(w.value) / 100);
		}
	}), T = t("div", { class: "fv-beside" }, m, C);
	r.append(t("div", { class: "fv-pictures" }, t("div", {}, g, t("label", {
		class: "fv-range",
		hidden: !s.length,
		"data-unsaved": !0
	}, "overlay ", w)), T));
	let D = (e) => {
		v !== e && i.point(u, e), O(e);
	}, O = (e) => {
		v = e, S.forEach(({ button: t }, n) => t.setAttribute("aria-pressed", String(n === e)));
		let n = s[e], r = x[e];
		if (!n || !r) return;
		p.getContext("2d").drawImage(S[e].canvas, 0, 0);
		let i = n.weights.shape[1], a = E(r, 3, 1e-9);
		m.replaceChildren(t("bdi", {}, n.title), " · most: ", ...a.flatMap((e, n) => [
			n ? ", " : "",
			`row ${Math.floor(e / i)}, column ${e % i} `,
			t("b", {}, L(r[e]))
		]), n.note ? ` · ${n.note}` : "");
	}, k = () => {
		if (!f.naturalWidth || !b.length) return;
		let e = p.getContext("2d", { willReadFrequently: !0 });
		e.drawImage(f, 0, 0, a, o);
		let t = e.getImageData(0, 0, a, o).data;
		S.forEach(({ canvas: e }, n) => e.getContext("2d").putImageData(new ImageData(Et(t, a, o, b[n], s[n].weights.shape[1]), a, o), 0, 0)), O(Math.max(0, i.placeOf(u) ?? Math.max(0, v)));
	};
	return s.length ? (f.addEventListener("load", k), Promise.all(s.map(({ weights: e }) => _(e))).then((t) => {
		x = t.map((e) => y(e)), b = x.map((e) => Tt(e, n.scale)), k(), e.changed();
	}, (e) => {
		m.textContent = `The weights could not be had: ${String(e)}`;
	}), T.append(t("p", { class: "fv-quiet" }, `tint: ${l.overlays[n.scale]}`))) : c.length && (g.append(Ot(n)), m.replaceChildren(`${c.length} glimpses in order, dark to bright; each sees ${n.sides.join(", ")} pixels across`)), {
		destroy: i.on(() => {
			let e = i.placeOf(u);
			e !== void 0 && e !== v && O(e);
		}),
		twin: () => c.length ? {
			caption: n.title,
			columns: [
				"glimpse",
				"x",
				"y"
			],
			rows: c.map(([e, t], n) => [
				String(n + 1),
				e,
				t
			])
		} : {
			caption: `${n.title}: the cells looked at most`,
			columns: [
				"",
				"looks at",
				"note"
			],
			rows: s.map(({ title: e, note: t, weights: n }, r) => [
				e,
				E(x[r] ?? [], 5, 1e-9).map((e) => `row ${Math.floor(e / n.shape[1])}, column ${e % n.shape[1]}: ${L(x[r][e])}`).join("; "),
				t
			])
		}
	};
};
function Ot({ width: e, height: t, path: r, sides: i }) {
	let a = i[0] ?? 8, o = Math.max(e, t) / 100, s = r.flatMap(([e, t], i) => {
		let s = .43 + .57 * i / Math.max(1, r.length - 1), c = P(s, b), l = n("text", {
			x: e,
			y: t + o * 1.7,
			"text-anchor": "middle"
		}, String(i + 1));
		Object.assign(l.style, {
			fontSize: `${o * 5}px`,
			fill: F(s, b) ? "#000" : "#fff"
		});
		let u = {
			x: e - a / 2,
			y: t - a / 2,
			width: a,
			height: a,
			fill: "none"
		};
		return [
			n("rect", {
				...u,
				stroke: "#000",
				"stroke-width": o * 1.4
			}),
			n("rect", {
				...u,
				stroke: c,
				"stroke-width": o * .7
			}),
			n("circle", {
				cx: e,
				cy: t,
				r: o * 3.6,
				fill: c,
				stroke: "#000",
				"stroke-width": o * .4
			}),
			l
		];
	}), c = `M${r.map(([e, t]) => `${e} ${t}`).join("L")}`;
	return n("svg", {
		viewBox: `0 0 ${e} ${t}`,
		"aria-hidden": "true"
	}, n("path", {
		d: c,
		fill: "none",
		stroke: "#000",
		"stroke-width": o * 1.2
	}), n("path", {
		d: c,
		fill: "none",
		stroke: "#ccc",
		"stroke-width": o * .6
	}), ...s);
}
// src/core/save.ts
var kt = [
	"fill",
	"stroke",
	"stroke-width",
	"stroke-dasharray",
	"stroke-linecap",
	"stroke-linejoin",
	"paint-order",
	"opacity",
	"fill-opacity",
	"font-size",
	"font-weight",
	"font-family",
	"text-anchor"
], At = 3;
function jt(e, n) {
	let r = t("a", {
		href: URL.createObjectURL(e),
		download: n
	});
	r.click(), setTimeout(() => URL.revokeObjectURL(r.href), 1e4);
}
var Mt = (e, t) => `${e.normalize("NFKC").replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "").slice(0, 60) || "drawing"}.${t}`;
function Nt(e) {
	let t = e.getBoundingClientRect(), r = getComputedStyle(e), i = Math.ceil(t.width) + 16, a = Math.ceil(t.height) + 16, o = n("svg", {
		width: i,
		height: a,
		viewBox: `0 0 ${i} ${a}`,
		"font-family": "system-ui, sans-serif"
	});
	o.append(n("rect", {
		width: i,
		height: a,
		fill: r.backgroundColor
	}));
	let s = (e) => e - t.x + 8, c = (e) => e - t.y + 8, l = (t) => {
		let r = getComputedStyle(t), i = t.getBoundingClientRect();
		if (t.dataset.unsaved !== void 0 || r.display === "none" || r.visibility === "hidden" || !i.width) return;
		let a = {
			x: s(i.x),
			y: c(i.y),
			width: i.width,
			height: i.height
		};
		if (t instanceof SVGSVGElement) return void o.append(Ft(t, a));
		let u = r.backgroundColor, d = parseFloat(r.borderTopWidth);
		(u !== "rgba(0, 0, 0, 0)" || d > 0) && t !== e && o.append(n("rect", {
			...a,
			rx: parseFloat(r.borderTopLeftRadius) || 0,
			fill: u === "rgba(0, 0, 0, 0)" ? "none" : u,
			...d > 0 ? {
				stroke: r.borderTopColor,
				"stroke-width": d
			} : {}
		}));
		let f = t instanceof HTMLCanvasElement ? t.toDataURL() : t instanceof HTMLImageElement ? t.src : "";
		if (f) {
			let e = n("image", {
				...a,
				href: f,
				preserveAspectRatio: "none",
				opacity: r.opacity
			});
			e.style.imageRendering = r.imageRendering, o.append(e);
		} else for (let e of t.childNodes) e instanceof Element ? l(e) : e instanceof Text && e.data.trim() && o.append(...Pt(e, r, s, c));
	};
	return l(e), o;
}
function Pt(e, t, r, i) {
	let a = document.createRange(), o = [];
	for (let { segment: t, index: n } of new Intl.Segmenter().segment(e.data)) {
		a.setStart(e, n), a.setEnd(e, n + t.length);
		let [r] = a.getClientRects(), i = o.at(-1);
		if (!r?.width) continue;
		let s = r.y + r.height / 2;
		!i || Math.abs(i.middle - s) > r.height / 2 ? o.push({
			text: t,
			left: r.x,
			right: r.right,
			middle: s
		}) : Object.assign(i, {
			text: i.text + t,
			left: Math.min(i.left, r.x),
			right: Math.max(i.right, r.right)
		});
	}
	let s = parseFloat(t.fontSize), c = t.direction === "rtl";
	return o.map((e) => n("text", {
		x: r(c ? e.right : e.left),
		y: i(e.middle) + s * .35,
		fill: t.color,
		"font-size": s,
		"font-weight": t.fontWeight,
		"xml:space": "preserve",
		direction: c && "rtl"
	}, e.text.replace(/\s/g, " ")));
}
function Ft(e, t) {
	let n = e.cloneNode(!0), r = [e, ...e.querySelectorAll("*")], i = [n, ...n.querySelectorAll("*")];
	r.forEach((e, t) => {
		let n = getComputedStyle(e), r = i[t];
		if (n.display === "none") return r.remove();
		for (let e of kt) {
			let t = n.getPropertyValue(e);
			t && r.setAttribute(e, t);
		}
		for (let e of ["class", "style"]) r.removeAttribute(e);
	});
	for (let [e, r] of Object.entries(t)) n.setAttribute(e, String(r));
	return n;
}
var It = (e) => new XMLSerializer().serializeToString(Nt(e));
async function Lt(e) {
	let n = Nt(e), r = Number(n.getAttribute("width")), i = Number(n.getAttribute("height")), a = t("img", { src: `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(n))}` });
	await a.decode();
	let o = Math.min(At, 8e3 / r, 8e3 / i), s = t("canvas", {
		width: Math.round(r * o),
		height: Math.round(i * o)
	}), c = s.getContext("2d");
	return c.imageSmoothingEnabled = !1, c.drawImage(a, 0, 0, s.width, s.height), new Promise((e, t) => s.toBlob((n) => n ? e(n) : t(/* @__PURE__ */ Error("no picture came of it")), "image/png"));
}
async function Rt(e) {
	let t = async (e) => Array.isArray(e) ? Promise.all(e.map(t)) : typeof e != "object" || !e ? e : "codec" in e ? v(e) : Object.fromEntries(await Promise.all(Object.entries(e).map(async ([e, n]) => [e, await t(n)])));
	return await t(e);
}
function zt(e, n, r, i) {
	let a = (e) => Mt(n().title || n().kind, e), o = (e, n) => {
		let r = t("button", {
			type: "button",
			click: () => void n().then((t) => jt(t, a(e.toLowerCase())), (e) => {
				r.title = String(e), r.setAttribute("aria-invalid", "true");
			})
		}, e);
		return r;
	}, s = (e, t) => Promise.resolve(new Blob([e], { type: t }));
	return t("div", { class: "fv-save" }, "Save as ", o("PNG", () => Lt(e)), " ", o("SVG", () => s(It(e), "image/svg+xml")), " ", o("JSON", () => s(JSON.stringify(r()), "application/json")), ...i ? [" ", o("HTML", async () => s(await i(await Rt(n())), "text/html"))] : []);
}
// src/core/selection.ts
var Bt = class {
	chosen;
	listeners = /* @__PURE__ */ new Set();
	constructor(e = {}) {
		this.chosen = { ...e };
	}
	get now() {
		return this.chosen;
	}
	set(e) {
		let t = Object.keys(e).filter((t) => e[t] !== this.chosen[t]);
		if (!t.length) return;
		let n = Object.fromEntries(t.map((t) => [t, e[t]]));
		this.chosen = {
			...this.chosen,
			...n
		};
		for (let e of [...this.listeners]) e(this.chosen, n);
	}
	on(e) {
		return this.listeners.add(e), () => this.listeners.delete(e);
	}
	placeOf(e) {
		let { side: t, row: n, column: r, rows: i, columns: a } = this.chosen, o = i !== void 0 && H(i, e), s = a !== void 0 && H(a, e), c = o && !(s && t === "column") ? n : s ? r : void 0;
		return c === void 0 ? t === "row" && !s ? V(i, n, e) : void 0 : c < e.length ? c : void 0;
	}
	point(e, t) {
		let { rows: n, columns: r } = this.chosen;
		r && H(r, e) && !(n && H(n, e)) ? this.set({
			column: t,
			side: "column"
		}) : n && H(n, e) ? this.set({
			row: t,
			side: "row"
		}) : this.set({
			rows: e,
			row: t,
			side: "row",
			columns: void 0,
			column: void 0
		});
	}
}, Vt = 2e4, Ht = (e, n) => {
	let { body: r, selection: i } = e, { rows: a, columns: o } = n, [s = 0, c = 0] = n.values.shape, l = k(n.least, n.most), u, d = [0, 0], f = t("output", {
		class: "fv-reading fv-small",
		"aria-live": "polite"
	}), p = (e, t) => {
		d = [e, t], (a.length || o.length) && i.set({
			...a.length ? {
				rows: a,
				row: e,
				side: "row"
			} : {},
			...o.length ? {
				columns: o,
				column: t
			} : {}
		}), g();
	}, m = new ie(p, "sheet of numbers"), h = (e, n, r) => e.length ? t("bdi", {}, e[r]) : `${n || "place"} ${r}`, g = () => {
		if (!u) return;
		let [e, r] = d, i = n.cells[e]?.[r];
		m.select(e, r), f.replaceChildren(h(a, n.down || "row", e), " · ", h(o, n.across || "column", r), ": ", ...i ? [t("bdi", {}, i), " "] : [], t("b", {}, L(u[e * c + r]))), m.box.setAttribute("aria-label", `${n.title}: ${f.textContent}`);
	}, v = l.least < 0 && l.most > 0 ? [[.5, "0"]] : [], b = [
		[0, B(l.least)],
		...v,
		[1, B(l.most)]
	];
	r.append(f, m.element, de(l.colours, b, n.told));
	let x = (t) => {
		u = y(t), m.show({
			height: s,
			width: c,
			levels: O(u, l.least, l.most),
			colours: l.colours,
			rows: a,
			columns: o,
			aspect: n.aspect,
			texts: n.cells,
			down: n.down,
			across: n.across
		}), g(), e.changed();
	}, S = _(n.values);
	return S instanceof Promise ? S.then(x, (e) => {
		f.textContent = `The numbers could not be had: ${String(e)}`;
	}) : x(S), {
		twin: () => {
			let e = s * c > Vt, t = e ? Math.max(1, Math.floor(Vt / c)) : s, r = (e) => Array.from({ length: c }, (t, n) => u ? u[e * c + n] : null);
			return {
				caption: `${n.title}${e ? ` (the first ${t} of ${s} rows)` : ""}`,
				columns: ["", ...o.length ? o : Array.from({ length: c }, (e, t) => String(t))],
				rows: Array.from({ length: Math.min(t, s) }, (e, t) => [a[t] ?? String(t), ...r(t)])
			};
		},
		json: () => u && {
			title: n.title,
			rows: a,
			columns: o,
			values: Array.from({ length: s }, (e, t) => Array.from(u.subarray(t * c, (t + 1) * c), (e) => Number.isFinite(e) ? e : null))
		},
		key: (e) => {
			let t = e.target === m.box ? m.step(e.key) : void 0;
			return t && p(...t), t !== void 0;
		},
		resize: () => {
			m.layout();
		},
		destroy: i.on(() => {
			let e = a.length ? i.placeOf(a) : void 0, t = o.length ? i.placeOf(o) : void 0;
			(e !== void 0 || t !== void 0) && (d = [e ?? d[0], t ?? d[1]], g());
		})
	};
}, Ut = 1200, Wt = 30, Gt = ({ stage: e }) => e.rows.length ? e.rows : e.columns, Kt = (e, n) => {
	let { frames: r, stages: i } = n, a = i.length - 1, o = e.selection.now, s = o.rows?.[o.row ?? -1], c = (e) => Math.abs(e / r.length - (o.row ?? 0) / (o.rows?.length ?? 1)), l = r.map((e, t) => t).filter((e) => s?.startsWith(r[e].replace(/^[▁Ġ ]+/, "") || " ")).sort((e, t) => c(e) - c(t))[0], u = e.memory.get("steps") ?? {
		frame: n.frame ?? l ?? 0,
		at: a
	}, d = Math.min(u.frame, r.length - 1), f = Math.min(u.at, a), p, m = t("output", {
		class: "fv-equation",
		"aria-live": "polite"
	}), h = t("output", { class: "fv-reading fv-small" }), g = i.map((e, n) => {
		let r = e.columns.length > 0, [, i = 0, a = 0] = e.values.shape, [o, s] = r ? [a, i] : [i, a], c = {
			stage: e,
			turned: r,
			height: o,
			width: s,
			element: t("figure", { class: "fv-step" }),
			grid: void 0
		};
		return c.grid = new ie((e, t) => {
			T(c, e, t);
		}, e.title), c.grid.loupe?.element.remove(), c.element.append(t("figcaption", { click: () => {
			N(), R(d, n);
		} }, t("b", {}, e.title), t("span", {}, e.equation)), c.grid.element), c.element.dataset.size = s === 1 ? "number" : r || e.rows.length ? "vectors" : "vector", c;
	}), v = g.findIndex(({ stage: e }) => e.rows.length > 0 || e.columns.length > 0), b = g.findLastIndex(({ element: e }) => e.dataset.size !== "vector") + 1, x = v < 0 ? [] : Gt(g[v]).map((e) => t("bdi", {}, e)), [S, C, w] = [
		g.slice(0, Math.max(v, 0)),
		g.slice(Math.max(v, 0), b),
		g.slice(b)
	].map((e, n) => t("div", { class: n === 1 ? "fv-steps fv-scroll" : "fv-steps" }, n === 1 && x.length ? t("div", { class: "fv-step-keys" }, ...x) : void 0, ...e.map(({ element: e }) => e))), T = (e, n, r) => {
		let i = e.values?.[n * e.width + r], a = Gt(e)[n];
		e.grid.select(n, r), h.replaceChildren(`${e.stage.title} `, a === void 0 ? "" : t("bdi", {}, `${a} `), e.width > 1 ? `[${r}] ` : "", t("b", {}, i === -Infinity ? "−∞" : L(i)));
	}, E = t("button", {
		type: "button",
		"data-testid": "play",
		click: () => {
			F();
		}
	}, "▶ play"), D = (e, n, r) => t("button", {
		type: "button",
		"aria-label": n,
		click: () => {
			N(), P(r);
		}
	}, e), A = t("input", {
		type: "range",
		min: 0,
		max: a,
		"aria-label": "stage",
		input: () => {
			N(), R(d, Number(A.value));
		}
	}), j = t("select", {
		"aria-label": "query",
		change: () => {
			R(Number(j.value), f);
		}
	}, ...r.map((e, n) => t("option", { value: n }, `${n} ${e}`))), M = t("div", { class: "fv-walk" }, t("label", {}, "of ", j), D("‹", "stage before", -1), E, D("›", "next stage", 1), A);
	e.body.append(M, m, S, C, w, h);
	let N = () => {
		clearInterval(p), p = void 0, E.textContent = "▶ play";
	}, P = (e) => {
		let t = f + e;
		t >= 0 && t <= a ? R(d, t) : t > a && d < r.length - 1 ? R(d + 1, 0) : t < 0 && d > 0 ? R(d - 1, a) : N();
	}, F = () => {
		p ? N() : (f === a && R(d, 0), E.textContent = "❚❚ pause", p = setInterval(() => {
			P(1);
		}, Ut));
	}, I = (t, n) => {
		let { height: r, width: i } = t, a = y(n), o = r * i, s = n.shape[0] === 1 ? 0 : d * o, c = t.values = a.slice(s, s + o), { colours: l, least: u, most: f } = k(t.stage.least, t.stage.most), p = i === 1 ? Array.from(c, (e) => [e === -Infinity ? "−∞" : e.toFixed(2)]) : [];
		t.grid.show({
			height: r,
			width: i,
			levels: O(c, u, f),
			colours: l,
			rows: [],
			columns: [],
			texts: p,
			high: Wt
		}), e.changed();
	}, R = (n, r) => {
		[d, f] = [n, r], e.memory.set("steps", {
			frame: d,
			at: f
		}), j.value = String(d), A.value = String(f);
		let { title: a, equation: o, origin: s, shape: c } = i[f];
		m.replaceChildren(t("b", {}, `${f + 1}. ${a}`), t("span", { class: "fv-formula" }, o), t("span", { class: "fv-quiet" }, `${s} · ${c.join(" × ")}`)), g.forEach((e, t) => {
			e.element.classList.toggle("fv-later", t > f), e.element.classList.toggle("fv-now", t === f);
			let n = _(e.stage.values);
			n instanceof Promise ? n.then((t) => {
				I(e, t);
			}, (e) => {
				h.textContent = `The numbers could not be had: ${String(e)}`;
			}) : I(e, n);
		});
	};
	return R(d, f), {
		twin: () => ({
			caption: `${n.title}: ${r[d] ?? ""}`,
			columns: [
				"stage",
				"equation",
				"",
				"numbers"
			],
			rows: g.flatMap((e) => Array.from({ length: e.height }, (t, n) => [
				n ? "" : e.stage.title,
				n ? "" : e.stage.equation,
				Gt(e)[n] ?? "",
				Array.from(e.values?.subarray(n * e.width, (n + 1) * e.width) ?? [], L).join("  ")
			]))
		}),
		key: ({ key: t, target: n }) => {
			if (!(n instanceof Element) || !e.body.contains(n)) return !1;
			let r = {
				ArrowRight: 1,
				ArrowLeft: -1
			}[t], i = t === " " && !n.closest("button");
			return r ? (N(), P(r)) : i && F(), r !== void 0 || i;
		},
		resize: () => {
			R(d, f);
		},
		destroy: N
	};
}, qt = ".fv{--paper:light-dark(#fff,#14161b);--panel:light-dark(#f4f5f7,#1e212a);--ink:light-dark(#1b1d22,#e9eaee);--quiet:light-dark(#565b67,#a9aebb);--line:light-dark(#d5d8de,#3a3f4b);--accent:light-dark(#00509e,#fde047);--blank:light-dark(#eceef1,#2b2f38);--mark:#fde047;--wrong:light-dark(#a4262c,#ff9d9d);background:var(--paper);color:var(--ink);text-align:left;font:15px/1.45 system-ui,sans-serif;container-type:inline-size}.fv *,.fv :before{box-sizing:border-box}.fv [hidden]{display:none!important}.fv-title{overflow-wrap:anywhere;margin:0 0 8px;font-size:16px;font-weight:650}.fv h3,.fv legend{color:var(--quiet);margin:0 0 6px;padding:0;font-size:13px;font-weight:600}.fv-caption,.fv-notes,.fv-keys,.fv-quiet,.fv-others,.fv figcaption{color:var(--quiet);margin:6px 0;font-size:13px}.fv-caption{max-width:75ch}.fv-wrong{color:var(--wrong)}.fv button,.fv select{font:inherit;color:inherit;background:var(--panel);border:1px solid var(--line);cursor:pointer;border-radius:6px;min-width:30px;min-height:30px;padding:2px 10px}.fv button:hover{border-color:var(--quiet)}.fv :focus-visible{outline:2px solid var(--accent);outline-offset:2px}.fv kbd{border:1px solid var(--line);border-radius:4px;padding:0 5px;font:12px ui-monospace,monospace}@media (pointer:coarse){.fv-keys{display:none}}.fv-scroll{max-width:100%;margin:-3px;padding:3px;overflow-x:auto}.fv svg{display:block;overflow:visible}.fv svg text{fill:var(--ink);unicode-bidi:plaintext;font:13px system-ui,sans-serif}.fv svg text.fv-quiet{fill:var(--quiet);margin:0;font-size:12px}.fv-reading{overflow-wrap:anywhere;min-height:1.5em;font-size:18px;display:block}.fv-reading.fv-small{margin:6px 0;font-size:15px}.fv-reading b,.fv-alternatives b{font-variant-numeric:tabular-nums;color:var(--accent)}.fv-others{font-variant-numeric:tabular-nums;min-height:1.5em}.fv-foot{color:var(--quiet);flex-wrap:wrap;justify-content:space-between;align-items:start;gap:4px 20px;margin-top:10px;font-size:13px;display:flex}.fv-foot button{min-height:28px;color:var(--ink);padding:2px 8px}.fv-twin{min-width:0;max-width:100%;color:var(--ink)}.fv-twin[open]{flex:1 0 100%}.fv-twin>.fv-scroll{max-height:420px;overflow:auto}.fv summary{cursor:pointer;min-height:28px;padding:3px 0}.fv-twin>summary{color:var(--quiet)}.fv table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:13px}.fv caption{text-align:left;color:var(--quiet);padding:4px 8px}.fv th,.fv td{text-align:right;border-bottom:1px solid var(--line);white-space:nowrap;padding:3px 8px;font-weight:400}.fv thead th,.fv tbody th{font-weight:600}.fv td.fv-words,.fv th.fv-words,.fv tbody th{text-align:left}.fv td.fv-words{white-space:normal;overflow-wrap:anywhere;min-width:12ch;max-width:60ch}.fv thead th button{background:0 0;border:0;min-height:26px;padding:0;font-weight:600}.fv-walk{flex-wrap:wrap;align-items:center;gap:8px;display:flex}.fv-walk input{accent-color:var(--accent);flex:160px}.fv-walk select{max-width:16em}.fv-film-time{flex:200px;display:grid}.fv .fv-film-loss{width:calc(100% - 16px);height:30px;margin:0 8px}.fv-film-loss polyline,.fv-film-now{fill:none;stroke:var(--quiet);stroke-width:1.5px;vector-effect:non-scaling-stroke}.fv .fv-film-now{stroke:var(--accent);stroke-width:2px}.fv-film-label{font-variant-numeric:tabular-nums;margin:8px 0 4px;font-size:18px;display:block}.fv-equation{flex-wrap:wrap;align-items:baseline;gap:4px 16px;min-height:2em;margin:10px 0;display:flex}.fv-formula{color:var(--accent);font:20px/1.3 ui-serif,Georgia,serif}.fv-steps{align-items:end;gap:6px;display:flex}.fv-steps:not(.fv-scroll){flex-wrap:wrap}.fv-steps.fv-scroll{padding-bottom:8px}.fv-step-keys{flex:none;grid-auto-rows:30px;place-items:center end;max-width:min(150px,34vw);padding-bottom:6px;display:grid}.fv-step-keys bdi{text-overflow:ellipsis;white-space:nowrap;max-width:100%;overflow:hidden}.fv-step{border:1px solid #0000;border-radius:6px;min-width:0;margin:0;padding:4px;transition:opacity .2s}.fv-step figcaption{cursor:pointer;overflow-wrap:anywhere;flex-direction:column;margin:0 0 4px;font-size:12px;display:flex}.fv-step figcaption b{color:var(--ink);font-size:13px}.fv-step[data-size=vectors]{flex:1 0 170px;max-width:380px}.fv-step[data-size=vector]{flex:100%;max-width:760px}.fv-step[data-size=number]{flex:0 0 84px}.fv-step.fv-later{opacity:.15}.fv-step.fv-now{border-color:var(--accent)}.fv-two{grid-template-columns:minmax(0,1fr);gap:16px 32px;display:grid}.fv-main,.fv-aside,.fv-body{min-width:0}.fv-aside{grid-template-columns:minmax(0,1fr);align-content:start;gap:18px;display:grid}.fv-aside:empty{display:none}@container (width>=820px){.fv-two{grid-template-columns:minmax(0,1fr) 340px}}.fv-choices{border:0;min-width:0;margin:0;padding:0}.fv-choices>div{flex-wrap:wrap;gap:6px;display:flex}.fv-choices label{border:1px solid var(--line);background:var(--panel);cursor:pointer;border-radius:6px;align-items:center;gap:6px;min-height:30px;padding:2px 10px;display:inline-flex}.fv-choices label:has(:checked){border-color:var(--accent);box-shadow:inset 0 0 0 1px var(--accent)}.fv-choices input{accent-color:var(--accent);margin:0}.fv-grid{flex-wrap:wrap;align-items:start;gap:16px 24px;display:flex}.fv-cells{border-radius:4px;position:relative}.fv-cells[tabindex]{cursor:crosshair;touch-action:pan-x pan-y}.fv-cells canvas{background:var(--blank);image-rendering:pixelated;position:absolute}.fv-cells svg{pointer-events:none;position:relative}.fv-cells .fv-rule{stroke:var(--paper);stroke-width:1px;fill:none}.fv-cells .fv-chosen{fill:var(--accent);paint-order:stroke;stroke:var(--paper);stroke-width:4px;stroke-linejoin:round;font-weight:700}.fv-cells rect{fill:none}.fv-cells .fv-band{stroke:var(--mark);stroke-width:1.5px}.fv-cells .fv-edge{stroke:#000;stroke-width:4px}.fv-cells .fv-cell{stroke:#fff;stroke-width:2px}.fv-cells .fv-dot{fill:#fff;stroke:#000;stroke-width:1.2px}.fv svg .fv-text{font-size:12px}.fv svg .fv-on-light,.fv-on-light{fill:#000;color:#000}.fv svg .fv-on-dark,.fv-on-dark{fill:#fff;color:#fff}.fv-loupe{border:1px solid var(--line);border-radius:8px;width:340px;max-width:100%;padding:8px}.fv-sentences{isolation:isolate;gap:40px;margin-bottom:18px;display:grid;position:relative}.fv-line{align-items:baseline;gap:12px;display:flex}.fv-line p{flex-wrap:wrap;gap:4px;min-width:0;max-height:30vh;margin:-3px;padding:3px;display:flex;overflow-y:auto}.fv-mean{text-align:right;color:var(--quiet);flex:0 0 76px;font-size:13px}.fv-word{cursor:default;overflow-wrap:anywhere;unicode-bidi:isolate;border-radius:5px;padding:2px 6px;font-size:16px}.fv-word.fv-chosen{box-shadow:0 0 0 2px var(--accent)}.fv-line .fv-word{background:rgb(253 224 71/var(--level,0))}.fv-line .fv-word.fv-lit{color:#1b1d22}.fv-line .fv-word{position:relative}.fv-line .fv-word:before{content:\"\";z-index:-1;background:var(--paper);border-radius:5px;position:absolute;inset:0}.fv-links{z-index:-1;pointer-events:none;width:100%;height:100%;position:absolute;inset:0}.fv-links path,.fv-join path{fill:none;stroke:var(--accent);stroke-linecap:round}@container (width<=600px){.fv-line{flex-direction:column;gap:4px}.fv-line:last-child{flex-direction:column-reverse}.fv-mean{flex:none;padding:0 4px}.fv-line .fv-word{padding:1px 4px}}.fv-join{margin:-3px;padding:3px;overflow-x:auto}.fv-joined{border-radius:6px;width:max-content;max-width:100%}.fv svg .fv-idle{opacity:.55;transition:opacity .15s}.fv-joined:hover .fv-idle,.fv-joined:focus .fv-idle{opacity:.16}.fv-joined g[style] rect,.fv-joined rect{fill:rgb(253 224 71/var(--level,0))}.fv-joined text{font-size:15px!important}.fv-joined .fv-quiet,.fv-joined .fv-now text{font-size:12px!important}.fv-joined .fv-now text{fill:var(--accent);paint-order:stroke;stroke:var(--paper);stroke-width:4px;font-variant-numeric:tabular-nums;font-weight:650}.fv-joined .fv-lit text{fill:#1b1d22}.fv-joined .fv-chosen rect{stroke:var(--accent);stroke-width:2px}.fv-joined .fv-chosen text{font-weight:650}.fv-heads-grid{width:max-content;color:var(--quiet);text-align:center;align-items:center;gap:4px;font-size:12px;display:grid;position:relative}.fv-heads .fv-choices{margin-bottom:8px}.fv-heads-grid canvas{pointer-events:none;position:absolute;top:0;left:0}.fv .fv-heads-grid button{background:var(--blank);border-radius:4px;align-items:end;min-width:0;height:100%;min-height:0;padding:0;display:flex}.fv .fv-heads-grid button[aria-pressed=true]{border-color:var(--accent);box-shadow:0 0 0 2px var(--accent)}.fv-heads-grid button span{min-width:0;color:var(--ink);text-overflow:ellipsis;white-space:nowrap;flex:1;font-size:11px;line-height:16px;overflow:hidden}.fv-heads.fv-large{margin-bottom:18px}.fv-legend{max-width:340px;margin:8px 0 0}.fv-legend canvas{border-radius:3px;width:100%;height:12px;display:block}.fv-marks{height:18px;color:var(--quiet);font-size:12px;position:relative}.fv-marks span{white-space:nowrap;position:absolute;transform:translate(-50%)}.fv-marks span:first-child{transform:none}.fv-marks span:last-child{transform:translate(-100%)}.fv-chart{border-radius:6px}.fv-keys-row{flex-wrap:wrap;gap:6px;margin-bottom:6px;display:flex}.fv-key{align-items:center;gap:6px;min-height:28px;font-size:13px;display:inline-flex}.fv button.fv-key{background:0 0;padding:2px 8px}.fv button.fv-key[aria-pressed=false]{color:var(--quiet);text-decoration:line-through}.fv button.fv-key[aria-pressed=false] svg{opacity:.3}.fv-rule-line{stroke:var(--line);stroke-width:1px;opacity:.6}.fv-axis{stroke:var(--quiet);stroke-width:1px;fill:none}.fv-curve{fill:none;stroke-width:2px;stroke-linejoin:round}.fv-curve.fv-faint{stroke-width:1.2px;opacity:.4}.fv-area{stroke:none;opacity:.18}.fv-point{stroke:var(--paper);stroke-width:1.5px}.fv-cross{stroke:var(--quiet);stroke-width:1px;stroke-dasharray:3 3;fill:none}.fv-mark{stroke:var(--quiet);stroke-width:1px;stroke-dasharray:5 4}.fv-whisker{stroke:var(--ink);stroke-width:1.3px;fill:none}.fv-hit{fill:#0000}.fv g.fv-chosen>.fv-hit{fill:#fde04740}.fv .fv-chart g.fv-chosen>text{fill:var(--accent);font-weight:650}.fv .fv-chart g>text{font-size:12px}.fv-text-line{border-radius:6px;max-width:90ch;margin:0;font-size:17px;line-height:2}.fv-text-line .fv-word{padding:2px 4px;font-size:17px}.fv-alternatives{max-width:460px;color:var(--ink);gap:3px;margin:6px 0;padding:0;list-style:none;display:grid}.fv-alternatives li{grid-template-columns:minmax(0,1fr) minmax(60px,40%) 5em;align-items:center;gap:10px;display:grid}.fv-alternatives .fv-taken{font-weight:650}.fv-other{overflow-wrap:anywhere}.fv-alternatives b{text-align:right}.fv-bar-room{background:var(--blank);border-radius:4px;height:8px;display:inline-block;overflow:hidden}.fv-share{background:var(--accent);border-radius:4px;height:100%;display:block}.fv-lanes svg{margin:2px 0}.fv-node{cursor:default}.fv-node rect{fill:var(--panel);stroke:var(--line);stroke-width:1.2px}.fv-node.fv-best rect{stroke:var(--accent);stroke-width:2px}.fv-node.fv-pruned rect{stroke-dasharray:4 3;fill:none}.fv .fv-node.fv-pruned text{fill:var(--quiet)}.fv-node.fv-done rect{rx:13px}.fv-node.fv-on rect{fill:light-dark(#fff3b0,#4d4513)}.fv-node.fv-chosen rect{stroke:var(--accent);stroke-width:3px}.fv-edge-line{fill:none;stroke:light-dark(#9aa1ae,#6d7482);stroke-width:1.4px}.fv-edge-line.fv-pruned{stroke-dasharray:4 3}.fv-edge-line.fv-best{stroke:var(--accent);stroke-width:2.5px}.fv-edge-line.fv-on{stroke:light-dark(#b08900,#fde047);stroke-width:2.5px}.fv-pictures{flex-wrap:wrap;align-items:start;gap:16px 24px;display:flex}.fv-picture{border-radius:6px;max-width:100%;position:relative;overflow:hidden}.fv-picture>*{width:100%;height:100%;position:absolute;inset:0}.fv-sharp{image-rendering:pixelated}.fv-range{color:var(--quiet);align-items:center;gap:8px;margin-top:8px;font-size:13px;display:flex}.fv-range input{accent-color:var(--accent)}.fv-beside{flex:300px;min-width:0}.fv-panels{grid-template-columns:repeat(auto-fill,minmax(84px,1fr));gap:8px;display:grid}.fv .fv-panels button{overflow-wrap:anywhere;padding:4px;font-size:13px;line-height:1.2}.fv .fv-panels button[aria-pressed=true]{border-color:var(--accent);box-shadow:0 0 0 2px var(--accent)}.fv-panels canvas{border-radius:3px;width:100%;margin-bottom:3px;display:block}.fv-parts{grid-template-columns:repeat(auto-fit,minmax(min(100%,300px),1fr));gap:24px;display:grid}.fv-parts section{min-width:0}.fv button.fv-block{text-align:left;background:0 0;border:0;border-radius:0;align-items:center;gap:10px;width:100%;padding:0;line-height:1.25;display:flex}.fv button.fv-block.fv-chosen{background:var(--panel)}.fv-block>svg,.fv-alike>summary>svg{flex:none}.fv-block>span{flex:1;min-width:0;display:grid}.fv-block>span>*{text-overflow:ellipsis;white-space:nowrap;margin:0;overflow:hidden}.fv-block .fv-unrolled{max-width:100%;margin-top:4px}.fv .fv-alike>summary{align-items:center;gap:10px;margin:0;padding:0;display:flex}.fv-alike>summary>span{text-overflow:ellipsis;white-space:nowrap;min-width:0;overflow:hidden}.fv-alike>summary>span:before{content:\"▸ \"}.fv-alike[open]>summary>span:before{content:\"▾ \"}.fv-stream{fill:var(--line)}.fv-wire,.fv-plus{stroke:var(--quiet);stroke-width:1.3px;fill:none}.fv-plus{fill:var(--paper);stroke:var(--ink)}.fv-details{z-index:1;background:var(--paper);border-top:1px solid var(--line);overflow-wrap:anywhere;min-height:96px;margin-top:16px;padding:8px 0;position:sticky;bottom:0}.fv-details .fv-formula{font-size:17px}.fv-details .fv-quiet{margin:0}.fv-facts{font-variant-numeric:tabular-nums;flex-wrap:wrap;align-items:center;gap:2px 16px;font-size:13px;display:flex}.fv-parts code,.fv-details code{font:12.5px ui-monospace,monospace}", Jt = l.lines.map((e, t) => {
	let n = `light-dark(${e}, ${e === "#000000" ? "#ffffff" : e})`;
	return `.fv-curve.fv-line-${t}{stroke:${n}}:is(.fv-area,.fv-bar,.fv-point).fv-line-${t}{fill:${n}}`;
}).join(""), Yt = /* @__PURE__ */ new WeakSet();
function Xt(e) {
	if (Yt.has(e)) return;
	let t = new CSSStyleSheet();
	t.replaceSync(qt + Jt), e.adoptedStyleSheets = [...e.adoptedStyleSheets, t], Yt.add(e);
}
// src/core/table.ts
var Zt = 200;
function Qt(e, t, n) {
	return e === null || t === null ? Number(e === null) - Number(t === null) : typeof e == "number" && typeof t == "number" ? n * (e - t) : n * String(e).localeCompare(String(t), void 0, { numeric: !0 });
}
// src/core/mount.ts
var $t = {
	attention: ke,
	film: qe,
	sheet: Ht,
	steps: Kt,
	lines: ut,
	bars: He,
	words: ({ body: e, selection: n, options: r }, i) => {
		let { words: a } = i, o = a.map((e) => e.text), s = k(i.least, i.most), c = a.some((e) => e.value !== null), l = (e) => (e - s.least) / (s.most - s.least || 1), u, d = t("div", {
			class: "fv-others",
			"aria-live": "polite"
		}), f = a.map((e, r) => {
			let i = () => n.point(o, r), a = t("span", {
				class: "fv-word",
				dir: "auto",
				pointerenter: i,
				click: i
			}, e.text);
			return e.value !== null && Number.isFinite(e.value) && (a.style.backgroundColor = P(l(e.value), s.colours), a.classList.add(F(l(e.value), s.colours) ? "fv-on-light" : "fv-on-dark")), a;
		}), p = t("p", {
			class: "fv-text-line",
			tabindex: 0,
			role: "application",
			"aria-roledescription": "words"
		}, ...f.flatMap((e, t) => a[t].space && t ? [" ", e] : [e]));
		if (e.append(p, d), c) {
			let t = s.least < 0 && s.most > 0 ? [[.5, "0"]] : [];
			e.append(de(s.colours, [
				[0, B(s.least)],
				...t,
				[1, B(s.most)]
			], i.told));
		}
		let m = () => {
			f.forEach((e, t) => e.classList.toggle("fv-chosen", t === u));
			let e = u === void 0 ? void 0 : a[u];
			if (!e) return;
			let n = Math.max(...e.alternatives.map(({ p: e }) => e), 1e-9), i = u, o = [e.value === null ? "" : L(e.value), e.note].filter(Boolean).join(" · "), s = e.alternatives.map(({ text: a, p: o }, s) => {
				let c = t("span", { class: "fv-share" });
				c.style.width = `${100 * o / n}%`;
				let l = t("bdi", { class: "fv-other" }, a), u = r.onforce ? t("button", {
					type: "button",
					title: "put this here and go on",
					click: () => r.onforce?.(i, s)
				}, l) : l;
				return t("li", { class: a === e.text ? "fv-taken" : "" }, u, t("span", { class: "fv-bar-room" }, c), t("b", {}, L(o)));
			});
			d.replaceChildren(t("p", {}, t("bdi", {}, `« ${e.text} »`), o && ` ${o}`), ...s.length ? [t("ol", { class: "fv-alternatives" }, ...s)] : []), p.setAttribute("aria-label", `${e.text}: ${o}`);
		}, h = n.on(() => {
			let e = n.placeOf(o);
			e !== void 0 && e !== u && (u = e, m());
		});
		return u = n.placeOf(o) ?? (a.some((e) => e.alternatives.length) ? 0 : void 0), m(), {
			destroy: h,
			key: Ie(p, (e) => n.point(o, Math.max(0, Math.min(a.length - 1, (u ?? 0) + e)))),
			twin: () => ({
				caption: [i.title, i.told].filter(Boolean).join(": "),
				columns: [
					"word",
					...c ? ["value"] : [],
					"note",
					"alternatives"
				],
				rows: a.map((e) => [
					e.text,
					...c ? [e.value] : [],
					e.note,
					e.alternatives.map(({ text: e, p: t }) => `${e} ${L(t)}`).join(", ")
				])
			})
		};
	},
	lanes: $e,
	picture: Dt,
	model: Ct,
	table: ({ body: e, memory: n }, r) => {
		let { columns: i } = r, [a, o] = n.get("order") ?? [-1, 1], s = Zt, c = i.map((e, t) => r.rows.every((e) => typeof e[t] != "string")), l = t("tr"), u = t("tbody"), d = t("button", {
			type: "button",
			"data-unsaved": !0,
			click: () => {
				s *= 4, f();
			}
		});
		e.append(t("div", {
			class: "fv-scroll",
			tabindex: 0,
			role: "region",
			"aria-label": r.title || "table"
		}, t("table", {}, t("thead", {}, l), u)), d);
		function f() {
			n.set("order", [a, o]);
			let e = a < 0 ? r.rows : [...r.rows].sort((e, t) => Qt(e[a] ?? null, t[a] ?? null, o));
			l.replaceChildren(...i.map((e, n) => {
				let r = () => {
					[a, o] = [n, a === n ? -o : c[n] ? -1 : 1], f(), l.children[n].firstElementChild.focus();
				}, i = a === n ? o > 0 ? "ascending" : "descending" : "none";
				return t("th", {
					scope: "col",
					"aria-sort": i,
					class: c[n] ? "fv-number" : "fv-words"
				}, t("button", {
					type: "button",
					click: r
				}, e, t("span", { "aria-hidden": "true" }, i === "none" ? "" : o > 0 ? " ▲" : " ▼")));
			})), u.replaceChildren(...e.slice(0, s).map((e) => t("tr", {}, ...i.map((n, r) => {
				let i = e[r] ?? null;
				return typeof i == "string" ? t("td", {
					class: "fv-words",
					dir: "auto"
				}, i) : t("td", { class: "fv-number" }, L(i));
			})))), d.hidden = e.length <= s, d.textContent = `show more (${e.length - s} left)`;
		}
		return f(), { twin: () => ({
			caption: r.title,
			columns: i,
			rows: r.rows
		}) };
	}
}, en = (e) => e.ctrlKey || e.metaKey || e.altKey || e.target instanceof Element && e.target.closest("input:not([type=radio]):not([type=checkbox]), select, textarea") !== null;
function tn(e, n, r = {}) {
	let i = e.getRootNode();
	Xt(i instanceof ShadowRoot ? i : document);
	let a = r.selection ?? new Bt(), o = r.onselect ? a.on(r.onselect) : () => void 0, s = t("h2", {
		class: "fv-title",
		dir: "auto"
	}), c = t("div", { class: "fv-body" }), l = t("p", {
		class: "fv-caption",
		dir: "auto"
	}), u = t("p", { class: "fv-notes" }), d = Be(() => m?.twin()), f = t("section", { class: "fv" }, s, c, l, u), p = n, m;
	r.frame === !1 ? s.hidden = l.hidden = u.hidden = !0 : f.append(t("div", {
		class: "fv-foot",
		"data-unsaved": !0
	}, d.element, zt(f, () => p, () => m?.json?.() ?? p, r.page)));
	let h = {
		body: c,
		selection: a,
		options: r,
		memory: /* @__PURE__ */ new Map(),
		changed: () => d.refresh()
	}, g = (e) => {
		let t = e.kind === p.kind ? m?.grow : void 0;
		t || (m?.destroy?.(), m = void 0), p = e, f.dataset.kind = e.kind, r.frame !== !1 && (s.hidden = !(s.textContent = e.title), l.hidden = !(l.textContent = e.caption), u.hidden = !(u.textContent = e.notes.join(" · "))), t ? t(e) : c.replaceChildren(), m ??= $t[e.kind](h, e), d.refresh();
	}, _ = (e) => !en(e) && (m?.key?.(e) ?? !1);
	f.addEventListener("keydown", (e) => {
		!e.defaultPrevented && _(e) && e.preventDefault();
	}), e.append(f);
	let v = f.clientWidth;
	g(n);
	let y = new ResizeObserver(() => {
		f.clientWidth !== v && (v = f.clientWidth, m?.resize?.());
	});
	return y.observe(f), {
		element: f,
		update: g,
		key: _,
		destroy: () => {
			y.disconnect(), o(), m?.destroy?.(), f.remove();
		}
	};
}
// src/widget/main.ts
function nn() {
	let { dataset: e, classList: t } = document.body;
	return e.jpThemeLight === void 0 ? e.vscodeThemeKind === void 0 ? t.contains("dark") || document.documentElement.dataset.theme === "dark" ? !0 : matchMedia("(prefers-color-scheme: dark)").matches : e.vscodeThemeKind.includes("dark") : e.jpThemeLight === "false";
}
function rn({ model: e, el: t }) {
	let n = t.attachShadow({ mode: "open" }), r = document.createElement("div");
	n.append(r);
	let i = () => {
		r.style.cssText = `color-scheme: ${nn() ? "dark" : "light"}; padding: 8px; background: ${nn() ? "#14161b" : "#fff"}`;
	};
	i();
	let a = new MutationObserver(i);
	a.observe(document.body, { attributes: !0 });
	let o = new Bt(e.get("selection")), s = o.on((t) => {
		let { block: n, layer: r, head: i, row: a, column: o, side: s } = t;
		e.set("selection", Object.fromEntries(Object.entries({
			block: n,
			layer: r,
			head: i,
			row: a,
			column: o,
			side: s
		}).filter(([, e]) => e !== void 0))), e.save_changes();
	}), c = () => o.set(e.get("selection")), l = [], u = () => {
		let t = crypto.randomUUID?.() ?? String(Math.random());
		e.get("arrays").forEach((e, n) => {
			let r = new Uint8Array(e.byteLength);
			r.set(new Uint8Array(e.buffer, e.byteOffset, e.byteLength)), g(`${t}/${n}`, r);
		});
		let n = e.get("drawings").replaceAll("\"url\":\"array:", `"url":"${t}/`);
		for (let e of l) e.destroy();
		l = JSON.parse(n).map((e) => tn(r, e, { selection: o }));
	};
	u();
	let d = document.querySelector(`[data-foveate="${String(e.get("mark"))}"]`), f = d?.closest(".jp-OutputArea-child, .output_area") ?? d;
	return f && (f.style.display = "none"), e.on("change:drawings", u), e.on("change:selection", c), () => {
		f && (f.style.display = ""), a.disconnect(), s(), e.off("change:drawings", u), e.off("change:selection", c);
		for (let e of l) e.destroy();
	};
}
var an = { render: rn };
export { an as default };
