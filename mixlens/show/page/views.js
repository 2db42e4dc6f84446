"use strict";
// Pictures of numbers: a strip of tokens, a map, bars, a flow. Every text goes in as text, never as markup.

function paint(element, share, look) {
  const back = shadeOf(share, look.palette, look.theme());
  element.style.backgroundColor = `rgb(${back.join(", ")})`;
  element.style.color = inkOn(back);
}

/**
 * The text, one button-like token after the other, coloured by its score. Arrow keys go through it.
 * `choose(unit)` is called for the token that is clicked or reached; `point(unit or null)` for the one under the pointer.
 */
function stripView(labels, { name, choose, point }) {
  const tokens = labels.map((label, unit) => make("span", { role: "option", class: "token", "data-unit": unit }, word(label)));
  const list = make("div", { role: "listbox", class: "strip", "aria-label": name, "aria-orientation": "horizontal" }, ...tokens);
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
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const end = { Home: 0, End: tokens.length - 1 }[event.key];
    if (step === undefined && end === undefined) return;
    event.preventDefault();
    const next = end === undefined ? Math.max(0, Math.min(tokens.length - 1, chosen + step)) : end;
    choose(next);
    tokens[next].focus();
  });
  if (point) {
    list.addEventListener("mouseover", (event) => point(unitAt(event)));
    list.addEventListener("mouseleave", () => point(null));
  }
  return {
    element: list,
    update(scores, unit, look, special) {
      const shares = sharesOf(scores);
      chosen = unit;
      reveal(list, tokens[unit]);
      tokens.forEach((token, i) => {
        paint(token, shares[i], look);
        token.title = numberText(scores[i]);
        token.dataset.value = scores[i];
        token.setAttribute("aria-selected", String(i === unit));
        token.setAttribute("aria-label", `${labels[i]}, ${numberText(scores[i])}`);
        token.tabIndex = i === unit ? 0 : -1;
        token.classList.toggle("special", Boolean(special && special[i]));
      });
    },
  };
}

/** Scroll a long strip, and nothing else, to where one of its tokens can be seen. */
function reveal(list, token) {
  const [frame, box] = [list.getBoundingClientRect(), token.getBoundingClientRect()];
  if (box.top < frame.top || box.bottom > frame.bottom) list.scrollTop += box.top - frame.top - frame.height / 2;
}

const LABELLED = 48; // more tokens than this are not named beside their row and column

/**
 * One layer as a picture: rows took, columns gave. Each row is coloured by the share of its largest score.
 * The pointer shows a row and a column, and their numbers below; a click chooses the row.
 */
function mapView(labels, { choose, room = 620 }) {
  const n = labels.length;
  const named = n <= LABELLED;
  const cell = named ? Math.max(11, Math.min(24, Math.floor((room - 90) / n))) : Math.max(1, Math.floor(room / n));
  const size = `${cell * n}px`;
  const canvas = make("canvas", { width: n, height: n, role: "img" });
  const rowMark = make("div", { class: "mark" });
  const columnMark = make("div", { class: "mark" });
  const chosenMark = make("div", { class: "mark chosen" });
  const cells = make("div", { class: "cells" }, canvas, chosenMark, rowMark, columnMark);
  const side = make("div", { class: "side", "aria-hidden": "true" });
  const head = make("div", { class: "head", "aria-hidden": "true" });
  if (named) {
    labels.forEach((label) => {
      side.append(sized(make("span", { title: label }, word(label)), "height", cell));
      head.append(sized(make("span", { title: label }, word(label)), "width", cell));
    });
  }
  for (const part of [canvas, cells]) {
    part.style.width = size;
    part.style.height = size;
  }
  const grid = make("div", { class: "map" }, make("span", {}), head, side, cells);
  const scroll = make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Map, rows took from columns" }, grid);
  const readout = make("p", { class: "readout" }, HINT);
  let matrix = null;

  function sized(element, property, pixels) {
    element.style[property] = `${pixels}px`;
    return element;
  }
  function mark(element, query, key, rows, columns) {
    element.style.display = "block";
    element.style.top = `${query * cell}px`;
    element.style.left = `${key * cell}px`;
    element.style.height = `${rows * cell}px`;
    element.style.width = `${columns * cell}px`;
  }
  function at(event) {
    const box = canvas.getBoundingClientRect();
    const inside = (value, length) => Math.max(0, Math.min(n - 1, Math.floor((value / length) * n)));
    return [inside(event.clientY - box.top, box.height), inside(event.clientX - box.left, box.width)];
  }
  function show(query, key) {
    mark(rowMark, query, 0, 1, n);
    mark(columnMark, 0, key, n, 1);
    const taken = numberText(matrix.values[query * n + key]);
    const given = numberText(matrix.values[key * n + query]);
    readout.replaceChildren(
      word(labels[query]), ` (${query}) took ${taken} from `, word(labels[key]), ` (${key}), and gave it ${given}`,
    );
  }
  function hide() {
    rowMark.style.display = columnMark.style.display = "none";
    readout.replaceChildren(HINT);
  }
  cells.addEventListener("mousemove", (event) => { if (matrix) show(...at(event)); });
  cells.addEventListener("mouseleave", hide);
  cells.addEventListener("click", (event) => { if (choose) choose(at(event)[0]); });
  hide();
  return {
    element: make("div", { class: "map-frame" }, scroll, readout),
    show,
    hide,
    update(next, unit, look, name) {
      matrix = next;
      const image = new ImageData(n, n);
      const theme = look.theme();
      const shades = Array.from({ length: 511 }, (_, i) => shadeOf((i - 255) / 255, look.palette, theme));
      for (let query = 0; query < n; query++) {
        sharesOf(rowOf(matrix, query)).forEach((share, key) => {
          const place = 4 * (query * n + key);
          const shade = shades[Math.round(share * 255) + 255];
          for (let channel = 0; channel < 3; channel++) image.data[place + channel] = shade[channel];
          image.data[place + 3] = 255;
        });
      }
      canvas.getContext("2d").putImageData(image, 0, 0);
      canvas.setAttribute("aria-label", name);
      mark(chosenMark, unit, 0, 1, n);
    },
  };
}

const HINT = "Point at a cell to see its row, its column and its numbers.";

/** The largest scores as rows with a bar each, largest first; `rest` is what the page does not hold. */
function barsView(caption, labels, scores, { count = 8, rest = 0, places = null } = {}) {
  const order = places || largestOf(scores, count);
  const shares = sharesOf(scores);
  const rows = order.map((unit) => {
    const bar = make("div", { class: scores[unit] < 0 ? "bar against" : "bar" });
    bar.style.width = `${Math.abs(shares[unit]) * 100}%`;
    return make(
      "tr", { "data-unit": unit },
      make("td", { class: "place" }, String(unit)),
      make("th", { scope: "row" }, word(labels[unit])),
      make("td", { class: "number" }, numberText(scores[unit])),
      make("td", { class: "bars" }, bar),
    );
  });
  const whole = scores.reduce((sum, score) => sum + Math.abs(score), Math.abs(rest));
  if (Math.abs(rest) > 0.001 * whole) {
    const cells = [make("td", {}), make("th", { scope: "row" }, "numbers not held, summed"),
      make("td", { class: "number" }, numberText(rest)), make("td", {})];
    rows.push(make("tr", { class: "rest" }, ...cells));
  }
  const heads = ["position", "token", "score"].map((head) => make("th", { scope: "col" }, head));
  return make(
    "table", { class: "largest" },
    make("caption", {}, caption),
    make("thead", {}, make("tr", {}, ...heads, make("td", {}))),
    make("tbody", {}, ...rows),
  );
}

const FLOW = { tokens: 14, edges: 48, least: 0.004, row: 46, left: 64 };

/** Where a token's information came from, layer by layer: the strongest of it, as lines between tokens, `room` pixels wide. */
function flowView(flow, units, unit, queryName, room) {
  const column = room < 500 ? 58 : 76;
  const count = Math.max(5, Math.min(FLOW.tokens, Math.floor((room - FLOW.left) / column)));
  const carried = flow.masses.map((mass) => mass.reduce((sum, one) => sum + Math.abs(one), 1e-300));
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
    const told = `layer ${edge.level}: ${numberText(edge.flow)} from ${units.labels[edge.key]} to ${units.labels[edge.query]}`;
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
      dot.append(draw("title", {}, `${units.labels[i]}: ${numberText(mass)}`));
      picture.append(dot);
    }
  }
  for (const i of shown) {
    const label = shortened(units.labels[i], Math.floor(column / 8));
    picture.append(draw("text", { x: x(i), y: y(0) + 26, class: i === unit ? "name chosen" : "name" }, label));
    picture.append(draw("text", { x: x(i), y: y(0) + 42, class: "share" }, numberText(flow.masses[0][i])));
  }
  const outside = 1 - shown.reduce((sum, i) => sum + Math.abs(flow.masses[0][i]), 0)
    / Math.max(1e-30, flow.masses[0].reduce((sum, mass) => sum + Math.abs(mass), 0));
  const paths = make("ol", { class: "paths" });
  for (const path of flow.paths) {
    const item = make("li", {}, `${numberText(path.weight)}  `);
    path.way.forEach((position, level) => {
      if (level) item.append(" → ");
      item.append(word(shortened(units.labels[units.of[position]], 20)));
    });
    paths.append(item);
  }
  return { picture, paths, outside };
}
