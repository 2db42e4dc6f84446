"use strict";
// Pictures of numbers that can be gone through: a strip of tokens, a map, bars, a flow. Shares of the row are shown, raw numbers on hover.

/**
 * The text, one token after the other, tinted by its share. Arrow keys go through it.
 * `choose(unit)` is called for the token that is clicked or reached; `point(unit or null)` for the one under the pointer.
 */
function stripView(labels, { name, choose, point }) {
  const tokens = labels.map((label, unit) => make("span", { role: "option", class: "token", "data-unit": unit }, word(label)));
  const list = make("div", { role: "listbox", class: labels.length > 60 ? "tokens long" : "tokens", "aria-label": name, "aria-orientation": "horizontal" }, ...tokens);
  let chosen = 0;
  const unitAt = (event) => {
    const token = event.target.closest(".token");
    return token ? Number(token.dataset.unit) : null;
  };
  list.addEventListener("click", (event) => {
    const unit = unitAt(event);
    if (unit !== null) choose(unit);
  });
  list.addEventListener("keydown", (event) => {
    const open = tokens.map((_, i) => i).filter((i) => !tokens[i].hidden);
    const at = Math.max(0, open.indexOf(chosen));
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const end = { Home: 0, End: open.length - 1 }[event.key];
    if (step === undefined && end === undefined) return;
    event.preventDefault();
    const next = open[end === undefined ? Math.max(0, Math.min(open.length - 1, at + step)) : end];
    choose(next);
    tokens[next].focus();
  });
  if (point) {
    list.addEventListener("mouseover", (event) => point(unitAt(event)));
    list.addEventListener("mouseleave", () => point(null));
  }
  return {
    element: list,
    /** `shares` of the row, `signed` or not, the unit that is chosen, which are special and whether these are hidden. */
    update({ scores, shares, signed, unit, special = [], hidden = false }) {
      const most = shares.reduce((so, share, i) => (hidden && special[i] ? so : Math.max(so, Math.abs(share))), 1e-30);
      chosen = hidden && special[unit] ? Math.max(0, tokens.findIndex((_, i) => !special[i])) : unit;
      tokens.forEach((token, i) => {
        const told = signed ? signedPercent(shares[i]) : percent(shares[i]);
        const hue = hueOf(shares[i], signed);
        tinted(token, shares[i] / most, hue);
        token.classList.remove(...HUES);
        if (Math.abs(shares[i]) >= MARKED) token.classList.add(hue);
        token.title = `${told} (raw ${rawNumber(scores[i])})`;
        token.dataset.value = scores[i];
        token.setAttribute("aria-selected", String(i === chosen));
        token.setAttribute("aria-label", `${labels[i]}, ${told}`);
        token.tabIndex = i === chosen ? 0 : -1;
        token.hidden = Boolean(hidden && special[i]);
        token.classList.toggle("special", Boolean(special[i]));
      });
      reveal(list, tokens[chosen]);
    },
  };
}

/** Scroll a long strip, and nothing else, to where one of its tokens can be seen. */
function reveal(list, token) {
  const [frame, box] = [list.getBoundingClientRect(), token.getBoundingClientRect()];
  if (box.top < frame.top || box.bottom > frame.bottom) list.scrollTop += box.top - frame.top - frame.height / 2;
}

const LABELLED = 48; // more tokens than this are not named beside their row and column
const HINT = "Point at a cell, or go through the cells with the arrow keys, to read its numbers.";

/**
 * One layer as a picture: rows took, columns gave. A cell is coloured by its share of its row.
 * The pointer, or the arrow keys, show a row and a column, and their numbers below; a click or Enter chooses the row.
 */
function mapView(labels, { choose, room = 620 }) {
  const n = labels.length;
  const named = n <= LABELLED;
  const cell = named ? Math.max(12, Math.min(28, Math.floor((room - 100) / n))) : Math.max(1, Math.floor(room / n));
  const size = `${cell * n}px`;
  const canvas = make("canvas", { width: n, height: n, role: "img" });
  const rowMark = make("div", { class: "mark" });
  const columnMark = make("div", { class: "mark" });
  const chosenMark = make("div", { class: "mark chosen" });
  const cells = make("div", { class: "cells", style: { width: size, height: size } }, canvas, chosenMark, rowMark, columnMark);
  const side = make("div", { class: "side", "aria-hidden": "true" });
  const head = make("div", { class: "top-names", "aria-hidden": "true" });
  if (named) {
    for (const label of labels) {
      side.append(make("span", { title: label, style: { height: `${cell}px` } }, word(label)));
      head.append(make("span", { title: label, style: { width: `${cell}px` } }, word(label)));
    }
  }
  for (const property of ["width", "height"]) canvas.style[property] = size;
  const grid = make("div", { class: "map" }, make("span", {}), head, side, cells);
  const scroll = make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Map: rows took, columns gave. Arrow keys go through its cells." }, grid);
  const line = make("p", { class: "readout", "aria-live": "polite" }, HINT);
  const key = make("div", {});
  let matrix = null;
  let pointed = null;
  let first = 0; // the row that the arrow keys begin at

  function mark(element, query, key, rows, columns) {
    const place = { display: "block", top: `${query * cell}px`, left: `${key * cell}px`, height: `${rows * cell}px`, width: `${columns * cell}px` };
    for (const [name, value] of Object.entries(place)) element.style[name] = value;
  }
  function at(event) {
    const box = canvas.getBoundingClientRect();
    const inside = (value, length) => Math.max(0, Math.min(n - 1, Math.floor((value / length) * n)));
    return [inside(event.clientY - box.top, box.height), inside(event.clientX - box.left, box.width)];
  }
  function show(query, key) {
    pointed = [query, key];
    mark(rowMark, query, 0, 1, n);
    mark(columnMark, 0, key, n, 1);
    const [taken, given] = [matrix.values[query * n + key], matrix.values[key * n + query]];
    line.dataset.took = taken;
    line.dataset.gave = given;
    line.title = `raw: took ${rawNumber(taken)}, gave ${rawNumber(given)}`;
    line.replaceChildren(
      "“", word(labels[query]), `” (${query}) took ${percent(taken / matrix.totals[query])} from “`, word(labels[key]), `” (${key}), and gave it ${percent(given / matrix.totals[key])}`,
    );
  }
  function hide() {
    rowMark.style.display = columnMark.style.display = "none";
    pointed = null;
    line.replaceChildren(HINT);
  }
  cells.addEventListener("mousemove", (event) => { if (matrix) show(...at(event)); });
  cells.addEventListener("mouseleave", hide);
  cells.addEventListener("click", (event) => { if (choose) choose(at(event)[0]); });
  scroll.addEventListener("keydown", (event) => {
    const [down, right] = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key] || [0, 0];
    if (event.key === "Enter" && pointed && choose) choose(pointed[0]);
    if (!matrix || (!down && !right)) return;
    event.preventDefault();
    const [row, column] = pointed || [first - down, -right];
    show(Math.max(0, Math.min(n - 1, row + down)), Math.max(0, Math.min(n - 1, column + right)));
  });
  hide();
  return {
    element: make("div", { class: "map-frame" }, scroll, line, key),
    show,
    hide,
    update(next, unit, name) {
      matrix = next;
      first = unit;
      const image = new ImageData(n, n);
      const shades = shadesOf(canvas)[matrix.signed ? 1 : 0];
      const { end, text } = scaleOf(matrix);
      for (let query = 0; query < n; query++) {
        for (let key = 0; key < n; key++) {
          const share = matrix.values[query * n + key] / matrix.totals[query];
          const shade = shades[Math.round(Math.max(-1, Math.min(1, share / end)) * 255) + 255];
          const place = 4 * (query * n + key);
          for (let channel = 0; channel < 3; channel++) image.data[place + channel] = shade[channel];
          image.data[place + 3] = 255;
        }
      }
      key.replaceChildren(legend({ signed: matrix.signed, sides: ["against", matrix.signed ? "for" : "share of the row"], most: text, fill: true, unit: "One scale for all rows; what a word took from itself does not set it." }));
      canvas.getContext("2d").putImageData(image, 0, 0);
      canvas.setAttribute("aria-label", name);
      mark(chosenMark, unit, 0, 1, n);
    },
  };
}

/** Where the scale of a map ends: at its largest share, or, where a few are far larger, at the 99th percentile. The diagonal sets none. */
function scaleOf({ values, totals, size }) {
  const shares = [];
  values.forEach((value, i) => { if (i % size !== Math.floor(i / size) || size === 1) shares.push(Math.abs(value) / totals[Math.floor(i / size)]); });
  const order = Float64Array.from(shares).sort();
  const [most, usual] = [order[order.length - 1], order[Math.floor(0.99 * (order.length - 1))]];
  const cut = usual > 0 && usual < 0.7 * most;
  const end = (cut ? usual : most) || 1;
  return { end, text: cut ? `${percent(end)} and more` : percent(end) };
}

/** The 511 shades from -1 to 1, without and with a sign. */
function shadesOf(element) {
  const [zero, forIt, against, share] = ["surface", "for", "against", "share"].map((name) => tokenColor(name, element));
  const between = (end, part) => zero.map((channel, i) => Math.round(channel + (end[i] - channel) * part));
  const steps = Array.from({ length: 511 }, (_, i) => (i - 255) / 255);
  return [steps.map((step) => between(share, Math.abs(step))), steps.map((step) => between(step < 0 ? against : forIt, Math.abs(step)))];
}

/** The largest shares as rows with a bar each, largest first; `rest` is what the page does not hold, as a share. */
function barsView(caption, labels, { scores, shares, signed, rest = 0, special = [], hidden = false }, { count = 8, places = null } = {}) {
  const open = (unit) => !(hidden && special[unit]);
  const order = (places || largestOf(shares, shares.length)).filter(open).slice(0, places ? undefined : count);
  const most = order.reduce((so, unit) => Math.max(so, Math.abs(shares[unit])), 1e-30);
  const rows = order.map((unit) => make(
    "tr", { "data-unit": unit, title: `raw ${rawNumber(scores[unit])}` },
    make("th", { scope: "row", class: "said" }, word(labels[unit])),
    make("td", { class: "number", "data-value": scores[unit] }, signed ? signedPercent(shares[unit]) : percent(shares[unit])),
    make("td", { class: "bars" }, make("div", { class: `bar ${hueOf(shares[unit], signed)}`, style: { width: `${(Math.abs(shares[unit]) / most) * 100}%` } })),
    places ? make("td", { class: "number" }, rawNumber(scores[unit])) : null, make("td", { class: "place" }, String(unit)),
  ));
  if (Math.abs(rest) > 0.001) {
    rows.push(make("tr", { class: "rest" }, make("th", { scope: "row" }, "numbers not held, summed"), make("td", { class: "number" }, percent(rest)), make("td", { colspan: places ? 3 : 2 })));
  }
  const heads = [["token", null], ["share", "number"]].map(([text, kind]) => make("th", { scope: "col", class: kind }, text));
  const last = [places ? make("th", { scope: "col", class: "number" }, "raw") : null, make("th", { scope: "col" }, "position")];
  return make(
    "table", { class: "largest" }, make("caption", {}, caption),
    make("thead", {}, make("tr", {}, ...heads, make("td", {}), ...last)), make("tbody", {}, ...rows),
  );
}

const FLOW = { tokens: 14, edges: 48, least: 0.004, row: 46, left: 64 };

/** Where a token's information came from, layer by layer: the strongest of it, as lines between tokens, `room` pixels wide. */
function flowView(flow, units, unit, queryName, room) {
  const wanted = Math.min(FLOW.tokens, units.size);
  const column = Math.max(58, Math.min(76, Math.floor((room - FLOW.left) / wanted)));
  const count = Math.max(5, Math.min(wanted, Math.floor((room - FLOW.left) / column)));
  const carried = flow.masses.map((mass, level) => mass.reduce((sum, one) => sum + Math.abs(one), level ? 1e-300 : Math.abs(flow.left) || 1e-300));
  const weight = Float64Array.from({ length: units.size }, (_, i) => (
    Math.max(...flow.masses.map((mass, level) => Math.abs(mass[i]) / carried[level]))
  ));
  weight[unit] = Infinity;
  const shown = largestOf(weight, count).sort((a, b) => a - b);
  const place = new Map(shown.map((i, column) => [i, column]));
  // Maps whose rows do not sum to 1 carry more and more: a line is drawn by its share of what its layer carries.
  const shareOf = (edge) => Math.abs(edge.flow) / carried[edge.level - 1];
  const largest = flow.edges.reduce((most, edge) => Math.max(most, shareOf(edge)), 1e-300);
  const lines = flow.edges
    .filter((edge) => place.has(edge.query) && place.has(edge.key) && shareOf(edge) >= FLOW.least * largest)
    .sort((a, b) => shareOf(b) - shareOf(a))
    .slice(0, FLOW.edges * Math.min(4, flow.depth));
  const x = (i) => FLOW.left + (place.get(i) + 0.5) * column;
  const y = (level) => 24 + (flow.depth - level) * FLOW.row;
  const width = FLOW.left + shown.length * column;
  const height = y(0) + 52;
  const name = `Flow into ${queryName} through ${flow.depth} layers; the strongest paths are listed below`;
  const picture = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": name, class: "flow" });
  for (const edge of lines.reverse()) {
    const middle = (y(edge.level) + y(edge.level - 1)) / 2;
    const from = `${x(edge.key)} ${y(edge.level - 1)}`;
    const to = `${x(edge.query)} ${y(edge.level)}`;
    const share = shareOf(edge) / largest;
    const told = `layer ${edge.level}: ${percent(edge.flow / carried[edge.level - 1])} (raw ${rawNumber(edge.flow)}) from ${units.labels[edge.key]} to ${units.labels[edge.query]}`;
    picture.append(draw("path", {
      d: `M ${from} C ${x(edge.key)} ${middle} ${x(edge.query)} ${middle} ${to}`,
      class: edge.flow < 0 ? "edge against" : "edge",
      "stroke-width": (0.8 + 9 * share).toFixed(2),
      "stroke-opacity": (0.25 + 0.65 * share).toFixed(2),
    }, draw("title", {}, told)));
  }
  for (let level = flow.depth; level >= 0; level--) {
    picture.append(draw("text", { x: 4, y: y(level) + 4, class: "level" }, level ? `layer ${level}` : "input"));
    const most = flow.masses[level].reduce((so, mass) => Math.max(so, Math.abs(mass)), 1e-30);
    for (const i of shown) {
      const mass = flow.masses[level][i];
      const radius = Math.max(1.5, 9 * Math.sqrt(Math.abs(mass) / most));
      const dot = draw("circle", { cx: x(i), cy: y(level), r: radius.toFixed(2), class: mass < 0 ? "dot against" : "dot" });
      dot.append(draw("title", {}, `${units.labels[i]}: ${percent(mass / carried[level])} (raw ${rawNumber(mass)})`));
      picture.append(dot);
    }
  }
  for (const i of shown) {
    const label = shortened(units.labels[i], Math.floor(column / 8));
    picture.append(draw("text", { x: x(i), y: y(0) + 26, class: i === unit ? "name read chosen" : "name read" }, label));
    picture.append(draw("text", { x: x(i), y: y(0) + 42, class: "share", "data-value": flow.masses[0][i] }, percent(flow.masses[0][i] / carried[0])));
  }
  const outside = 1 - shown.reduce((sum, i) => sum + Math.abs(flow.masses[0][i]), 0) / carried[0];
  const paths = make("ol", { class: "paths" });
  for (const path of flow.paths) {
    const item = make("li", { "data-value": path.weight, title: `raw ${rawNumber(path.weight)}` }, `${percent(path.weight / carried[flow.depth])}  `);
    path.way.forEach((position, level) => {
      if (level) item.append(" → ");
      item.append(word(shortened(units.labels[units.of[position]], 20)));
    });
    paths.append(item);
  }
  return { picture, paths, outside };
}
