"use strict";
// What every page is built of (elements: dom.js; style: tokens.css, base.css). Hue is sign: "for", "against", "share" (no sign).
//   formats     percent(0.19) "19 %"  signedPercent(-0.039) "−3.9 %"  probability(0.9993) "99.9 %"  points(-0.17) "−17 points"
//               gapText(1e-5) "0.001 %"  rawNumber(-1.9)  counted(1234)  listed(["a", "b"]) "a and b"  numberWord(3) "three"
//   theme       themeOf() "light" | "dark"   themeSwitch(redraw)   tokenColor("for") [11, 107, 168]   hueOf(score, signed)
//   structure   section({ title, lead, id }, ...children)   fold(title, note, build, { open })   aside(title, build)
//               note(state, ...text)   check(state, title, detail)   icon(state)   facts([[name, value]])   scrollBox(label, child)
//   controls    choices(legend, [[value, text]], value, onchange)   switchBox(text, on, onchange)   picked(name, options, onchange)
//   pictures    tinted(element, share of the largest, hue)   strip(words, options)   legend(options)   bars(rows, options)   balance(parts)
//               table(heads, rows, options)   readout(text)   lightWords(root, told): one data-k lights everywhere

const THIN = "\u202f";
const MINUS = "\u2212";
const HUES = ["for", "against", "share"];

// --- formats -----------------------------------------------------------------------------------------------------------------

/** A share as a reader wants it: under 10 one decimal, from 10 none; never 0.0 for what is not 0. (The same as wording.py.) */
function percent(share, { sign = false } = {}) {
  const size = Math.abs(share);
  const mark = share < 0 ? MINUS : sign && share > 0 ? "+" : String();
  if (size > 0 && size < 0.0005) return `${sign ? mark : String()}<0.1${THIN}%`;
  return `${mark}${(100 * size).toFixed(size > 0 && Number((100 * size).toFixed(1)) < 10 ? 1 : 0)}${THIN}%`;
}

/** A share with its sign. */
function signedPercent(share) {
  return percent(share, { sign: true });
}

/** A probability: one decimal; what would round to nothing or to certainty says so. */
function probability(value) {
  if (value > 0 && value < 0.0005) return `<0.1${THIN}%`;
  if (value >= 0.9995 && value < 1) return `>99.9${THIN}%`;
  return `${(100 * value).toFixed(value > 0 && value < 1 ? 1 : 0)}${THIN}%`;
}

/** A change of a probability. */
function points(change) {
  const size = Math.abs(100 * change);
  if (size > 0 && size < 0.05) return "<0.1 points";
  const number = size >= 9.95 ? size.toFixed(0) : size >= 0.05 || size === 0 ? size.toFixed(1) : "<0.1";
  const sign = change < 0 ? MINUS : change > 0 ? "+" : String();
  return `${sign}${number.replace(/\.0$/, String())} ${number === "1.0" ? "point" : "points"}`;
}

/** How far sums are from what they should be: one digit that counts. */
function gapText(gap) {
  if (gap === 0) return `0${THIN}%`;
  if (gap < 1e-8) return `<0.000001${THIN}%`;
  return `${(100 * gap).toFixed(Math.max(0, Math.min(6, -Math.floor(Math.log10(100 * gap)))))}${THIN}%`;
}

/** A raw number: four digits, sign written. */
function rawNumber(value) {
  const size = Math.abs(value);
  const text = size === 0 ? "0" : size >= 1e-4 && size < 1e6 ? String(Number(size.toPrecision(4))) : size.toExponential(2);
  return value < 0 ? `${MINUS}${text}` : text;
}

function counted(count) {
  return count.toLocaleString("en");
}

/** Names or elements one after the other: a, b and c. */
function listed(parts) {
  return parts.flatMap((part, i) => (i === 0 ? [part] : [i === parts.length - 1 ? " and " : ", ", part]));
}

const SMALL_NUMBERS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];

function numberWord(count) {
  return SMALL_NUMBERS[count] || counted(count);
}

// --- theme -------------------------------------------------------------------------------------------------------------------

/** Light or dark: what the reader chose, else what the system says; paper is light. */
function themeOf() {
  if (matchMedia("print").matches) return "light";
  const chosen = document.documentElement.dataset.theme;
  if (chosen) return chosen;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/** Auto, Light, Dark in the head of the page; `redraw` whenever what is shown changes (pictures by colour tokens need none). */
function themeSwitch(redraw = () => {}) {
  for (const input of document.querySelectorAll('#theme input[type="radio"]')) {
    input.addEventListener("change", () => {
      if (input.value === "auto") delete document.documentElement.dataset.theme;
      else document.documentElement.dataset.theme = input.value;
      redraw();
    });
  }
  for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", () => redraw());
}

/** A colour token as [red, green, blue], for pictures that are drawn pixel by pixel. */
function tokenColor(name, root = document.documentElement) {
  const text = getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  return [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
}

function hueOf(score, signed) {
  if (!signed) return "share";
  return score < 0 ? "against" : "for";
}

// --- structure ---------------------------------------------------------------------------------------------------------------

function section({ title, lead = null, id = null, className = null }, ...children) {
  const label = id || freshId("section");
  const head = make("div", { class: "head" }, make("h2", { id: label }, title), lead ? make("p", { class: "lead" }, lead) : null);
  return make("section", { "aria-labelledby": label, class: className }, head, ...children);
}

/** What is made when it is first opened (at once for paper). `build` gives an element or a list of them. */
function opening(box, build) {
  const inside = make("div", { class: "inside" });
  const fill = () => { if (!inside.hasChildNodes()) inside.append(...[build()].flat()); };
  box.addEventListener("toggle", () => { if (box.open) fill(); });
  if (box.open) fill();
  box.append(inside);
  return box;
}

/** A folded part of the page, with a heading and a line that says what is in it. */
function fold(title, said, build, { open = false, print = false, id = null } = {}) {
  const box = make("details", { class: "fold", open, id }, make("summary", {}, make("h2", {}, title), said ? make("span", {}, said) : null));
  if (print) {
    addEventListener("beforeprint", () => { box.dataset.was = box.open; box.open = true; });
    addEventListener("afterprint", () => { if (box.dataset.was === "false") box.open = false; });
  }
  return opening(box, build);
}

/** A small fold beside a picture: every number of it. */
function aside(title, build) {
  return opening(make("details", { class: "aside" }, make("summary", {}, title)), build);
}

const ICONS = {
  ok: ["M9 1a8 8 0 1 1 0 16a8 8 0 0 1 0-16z", "M5.2 9.3l2.5 2.5 5-5.4"],
  caution: ["M9 1.8L17 16H1z", "M9 7v4.2M9 13.3v.4"],
  fail: ["M5.7 1h6.6L17 5.7v6.6L12.3 17H5.7L1 12.3V5.7z", "M9 5v5M9 12.6v.5"],
  info: ["M9 1a8 8 0 1 1 0 16a8 8 0 0 1 0-16z", "M9 8v5M9 5v.5"],
};
const SPOKEN = { ok: "Passed: ", caution: "Caution: ", fail: "Failed: ", info: "Note: " };

/** Tick, triangle, octagon or i; its word is there for who hears the page. */
function icon(state) {
  const lines = ICONS[state].map((d, i) => draw("path", {
    d, fill: "none", stroke: "currentColor", "stroke-width": i ? 1.8 : 1.6, "stroke-linecap": "round", "stroke-linejoin": "round",
  }));
  return draw("svg", { class: "icon", viewBox: "0 0 18 18", "aria-hidden": "true" }, ...lines);
}

/** Something that must be known before the numbers. `state`: caution or fail. */
function note(state, ...text) {
  return make("div", { class: `note ${state}`, role: state === "fail" ? "alert" : "note" }, icon(state), make("div", {}, ...text));
}

function check(state, title, ...detail) {
  return make("div", { class: `check ${state}` }, icon(state), make("div", {}, make("span", { class: "heard" }, SPOKEN[state]), make("b", {}, title), detail.length ? " " : null, ...detail));
}

function facts(rows) {
  return make("dl", { class: "facts" }, ...rows.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value instanceof Node ? value : String(value))]));
}

/** A picture that may be wider than the screen: reached by the keyboard, and it says so where it is. */
function scrollBox(label, child) {
  const box = make("div", { class: "scroll", role: "group", "aria-label": label }, child);
  const hint = make("p", { class: "scroll-hint" }, "Wider than the screen: scroll sideways.");
  const look = () => {
    const wider = box.scrollWidth > box.clientWidth + 1;
    hint.classList.toggle("needed", wider);
    if (wider || box.scrollHeight > box.clientHeight + 1) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  };
  new ResizeObserver(look).observe(box);
  new ResizeObserver(look).observe(child);
  return make("div", { class: "scroll-frame" }, hint, box);
}

// --- controls ----------------------------------------------------------------------------------------------------------------

/** A group of which one holds, side by side. */
function choices(legendText, options, value, onchange) {
  const name = freshId("choice");
  const inputs = {};
  const labels = options.map(([key, text]) => {
    inputs[key] = make("input", { type: "radio", name, value: key, checked: key === value, onchange: () => onchange(key) });
    return make("label", {}, inputs[key], text);
  });
  return { element: make("fieldset", { class: "choices" }, make("legend", {}, legendText), ...labels), inputs };
}

function switchBox(text, on, onchange) {
  const input = make("input", { type: "checkbox", checked: on, onchange: () => onchange(input.checked) });
  return make("label", { class: "switch" }, input, text);
}

/** A labelled list to pick from; options are [value, text]. */
function picked(name, options, onchange) {
  const id = freshId("field");
  const select = make("select", { id, onchange: () => onchange(select.value) });
  const fill = (next) => select.replaceChildren(...next.map(([value, text]) => make("option", { value }, text)));
  fill(options);
  return { element: make("div", { class: "field" }, make("label", { for: id }, name), select), select, fill };
}

// --- pictures ----------------------------------------------------------------------------------------------------------------

/** The tint of a hue behind an element: `strength` is the share of the scale's end, 0 to 1. */
function tinted(element, strength, hue) {
  element.classList.remove(...HUES.map((one) => `t-${one}`));
  element.classList.add(`t-${hue}`);
  element.style.setProperty("--w", Math.min(1, Math.abs(strength)).toFixed(3));
  return element;
}

const MARKED = 0.03; // of the evidence: under it a word is plain
const LONG = 60; // words: above it the text is set smaller, without values
const MOST_TINTED = 20; // words of a long text

/** Which words of a text are tinted. */
function tintedWords(words) {
  const order = words.map((_, k) => k).filter((k) => !words[k].special && Math.abs(words[k].share) >= MARKED);
  if (words.length <= LONG) return new Set(order);
  const all = words.map((_, k) => k).filter((k) => !words[k].special && words[k].share !== 0);
  return new Set(all.sort((a, b) => Math.abs(words[b].share) - Math.abs(words[a].share)).slice(0, MOST_TINTED));
}

/**
 * A text as it was written, its words tinted by their share. words: { text, before, share, special }. Arrow keys go from word to
 * word. `special`: whether special tokens are shown; `most`: the share at the end of the scale; `segment`: this one alone;
 * `always(word)`: shown although it is special.
 */
function strip(words, { signed = true, special = false, most = null, label, segment = null, long = words.length > LONG, always = () => false }) {
  const marked = tintedWords(words);
  const largest = most || words.reduce((so, one) => (one.special ? so : Math.max(so, Math.abs(one.share))), 1e-30);
  const places = words.map((_, k) => k).filter((k) => (special || !words[k].special || always(words[k])) && (segment === null || words[k].segment === segment));
  const box = make("div", { class: long ? "strip long" : "strip", role: "group", "aria-label": label, dir: directionOf(places.map((k) => words[k].text).join(" ")) });
  const elements = places.map((k, i) => {
    const one = words[k];
    const hue = hueOf(one.share, signed);
    const body = make("b", {}, word(one.text));
    const shown = marked.has(k);
    if (shown) tinted(body, one.share / largest, hue);
    const value = shown && !long ? make("i", {}, signed ? signedPercent(one.share) : percent(one.share)) : null;
    const kind = ["w", shown ? hue : null, one.special ? "special" : null].filter(Boolean).join(" ");
    const element = make("span", { class: kind, "data-k": k, tabindex: i === 0 ? 0 : -1 }, body, value);
    box.append(...gapBefore(i === 0 ? String() : one.before === undefined ? " " : one.before), element);
    return element;
  });
  roving(box, elements);
  return box;
}

/** The characters between two words: a line break stays one. */
function gapBefore(text) {
  if (!text) return [];
  const breaks = (text.match(/\n/g) || []).length;
  return breaks ? Array.from({ length: Math.min(2, breaks) }, () => make("br")) : [text];
}

/** One stop of the Tab key for many elements; arrow keys, Home and End go through them. */
function roving(box, elements, { reached = () => {} } = {}) {
  box.addEventListener("keydown", (event) => {
    const at = elements.indexOf(event.target.closest("[tabindex]"));
    const left = box.dir === "rtl" ? 1 : -1;
    const step = { ArrowRight: -left, ArrowDown: 1, ArrowLeft: left, ArrowUp: -1 }[event.key];
    const end = { Home: 0, End: elements.length - 1 }[event.key];
    if (at < 0 || (step === undefined && end === undefined)) return;
    event.preventDefault();
    const next = end === undefined ? Math.max(0, Math.min(elements.length - 1, at + step)) : end;
    elements[at].tabIndex = -1;
    elements[next].tabIndex = 0;
    elements[next].focus();
    reached(next);
  });
}

/**
 * The legend under a picture. Signed: both sides in words and the same number at both ends; else one side. `unit` is a sentence.
 * `most`: the share at the end of the scale (a number) or its text; `fill`: cells without a number in them.
 */
function legend({ signed = true, sides = ["against", "for"], most, unit, fill = false }) {
  const end = typeof most === "number" ? percent(most) : most;
  const plus = typeof most === "number" ? signedPercent(most) : most;
  const minus = typeof most === "number" ? signedPercent(-most) : `${MINUS}${most}`;
  const key = (hue, text) => make("span", { class: "key" }, make("span", { class: `swatch ${hue}` }), text);
  const ramp = make("span", { class: `ramp ${signed ? "signed" : "share"}${fill ? " fill" : String()}` });
  const ticks = (signed ? [minus, "0", plus] : ["0", end]).map((text) => make("span", {}, text));
  const scale = make("span", { class: "scale" }, ramp, make("span", { class: "ticks" }, ...ticks));
  const parts = signed ? [key("against", sides[0]), scale, key("for", sides[1])] : [key("share", sides[sides.length - 1]), scale];
  return make("div", { class: "legend" }, ...parts, unit ? make("span", {}, unit) : null);
}

/**
 * Bars, in the order given. rows: { k, name, share, title, which }. Zero stands where the numbers put it; the value is at the bar's end.
 * `doubt`: the numbers did not add up, so bars are hatched grey.
 */
function bars(rows, { signed = true, label, doubt = false }) {
  const most = rows.reduce((so, row) => Math.max(so, row.share), 0);
  const least = rows.reduce((so, row) => Math.min(so, row.share), 0);
  const span = Math.max(most - least, 1e-30);
  const zero = (-least / span) * 100;
  const list = rows.map((row) => {
    const hue = hueOf(row.share, signed);
    const width = (Math.abs(row.share) / span) * 100;
    const from = row.share < 0 ? zero - width : zero;
    const bar = make("span", { class: `bar ${doubt ? "doubt" : hue}`, style: { left: `${from}%`, width: `${width}%` } });
    const end = row.share < 0 ? { right: `${100 - from}%` } : { left: `${from + width}%` };
    const value = make("span", { class: `value ${doubt ? String() : hue}`, style: end }, signed ? signedPercent(row.share) : percent(row.share));
    const track = make("span", { class: "track", style: { "--at": `${zero}%` } }, bar, value);
    return make("div", { class: "bar-row", "data-k": row.k, title: row.title, tabindex: 0 }, make("span", { class: "name" }, word(row.name), row.which ? make("small", {}, ` ${row.which}`) : null), track);
  });
  return make("div", { class: signed ? "bars" : "bars unsigned", role: "group", "aria-label": label }, ...list);
}

/** For and against as one bar. parts: [[hue, share, text]]. */
function balance(parts, label) {
  const shown = parts.filter(([, share]) => share > 0);
  return [
    make("div", { class: "balance", role: "img", "aria-label": label }, ...shown.map(([hue, share]) => make("span", { class: `bar ${hue}`, style: { width: `${share * 100}%` } }))),
    make("div", { class: "balance-names" }, ...shown.map(([hue, share, text]) => make("span", { class: `value ${hue}` }, make("b", {}, percent(share)), ` ${text}`))),
  ];
}

/** A table; the first cell of a row names it. `numbers`: which columns are numbers; `said`: the model's own words stand first. */
function table(heads, rows, { caption = null, numbers = [], said = false } = {}) {
  const cell = (value, i) => make(i ? "td" : "th", { scope: i ? null : "row", class: i ? (numbers.includes(i) ? "number" : null) : said ? "said" : null }, value);
  return make(
    "table", {}, caption ? make("caption", {}, caption) : null,
    make("thead", {}, make("tr", {}, ...heads.map((head, i) => make("th", { scope: "col", class: numbers.includes(i) ? "number" : null }, head)))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map(cell)))),
  );
}

/** A line that says what is pointed at; `text` is there while nothing is. */
function readout(text) {
  const line = make("p", { class: "readout", "aria-live": "polite" }, text);
  return { element: line, say: (...parts) => line.replaceChildren(...(parts.length ? parts : [text])) };
}

/** Pointing at, or reaching, anything with a data-k lights everything with the same; `told(k or null)` says so. */
function lightWords(root, told = () => {}) {
  let lit = null;
  const light = (k) => {
    if (k === lit) return;
    for (const one of root.querySelectorAll(".hit")) one.classList.remove("hit");
    if (k !== null) for (const one of root.querySelectorAll(`[data-k="${k}"]`)) one.classList.add("hit");
    lit = k;
    told(k === null ? null : Number(k));
  };
  const of = (event) => {
    const found = event.target.closest ? event.target.closest("[data-k]") : null;
    return found && root.contains(found) ? found.dataset.k : null;
  };
  for (const name of ["mouseover", "focusin", "click"]) root.addEventListener(name, (event) => light(of(event)));
  root.addEventListener("mouseleave", () => light(null));
}
