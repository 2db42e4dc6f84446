"use strict";
// The map: rows took, columns gave. One column may be open, word by word. The answer's row is framed; marks are outside the scale.

const LEAST_CELL = 18;
const MARK_CELL = 12;

/** The columns of the map: { column, word (where the column is open), name, title, mark }. */
function mapColumns(numbers, state) {
  const { columns, words } = numbers.data;
  return columns.flatMap((column, i) => (state.open && i === state.chosen
    ? column.words.map((place, number) => ({ column: i, word: number, name: words[place].text, title: `“${words[place].text}”`, mark: false }))
    : [{ column: i, name: column.name, title: column.title, mark: column.mark }]));
}

function mapValue(numbers, state, row, one) {
  return one.word === undefined ? numbers.cell(state.sheet, state.layer, row, one.column) : numbers.wordCells(state.sheet, state.layer, row, one.column)[one.word];
}

/** The end of the colours: the largest cell off the diagonal and off the marks, cut where a few are far larger. */
function mapScale(values, columns) {
  const sizes = values.flatMap((row, r) => row.filter((_, c) => columns[c].column !== r && !columns[c].mark)).sort((a, b) => a - b);
  if (!sizes.length) return { end: Math.max(1e-30, ...values.flat()), cut: false };
  const most = sizes[sizes.length - 1];
  const usual = sizes[Math.floor(0.99 * (sizes.length - 1))];
  const end = Math.max(1e-30, most > 2 * usual && usual > 0 ? usual : most);
  return { end, cut: values.some((row) => row.some((value, c) => value > end && !columns[c].mark)) };
}

function mapPlaces(numbers, state, columns, room) {
  const narrow = room < 600;
  const { unit } = numbers.data;
  const label = narrow ? (unit === "word" ? 84 : 42) : unit === "word" ? 130 : 236;
  const marks = columns.filter((one) => one.mark).length;
  const cell = Math.max(LEAST_CELL, Math.min(30, Math.floor((room - label - 4 - marks * MARK_CELL) / Math.max(1, columns.length - marks))));
  const longest = columns.reduce((most, one) => Math.max(most, Math.min(13, one.name.length)), 0);
  const head = state.open || unit === "word" ? Math.max(54, 26 + 6.5 * longest) : marks ? 54 : 40; // names of marks stand upright
  let at = label;
  const lefts = columns.map((one) => { const x = at; at += one.mark ? MARK_CELL : cell; return x; });
  return { narrow, label, cell, head, lefts, width: at + 4, height: head + cell * numbers.count + 4 };
}

function rowName(column, unit, narrow) {
  if (unit === "word" || column.kind !== unit) return shortened(column.name, narrow ? 10 : 16);
  return narrow ? column.name : `${column.name}  ${cutBetweenWords(column.text, 27)}`;
}

function mapLabels(numbers, state, columns, places) {
  const { data } = numbers;
  const upright = state.open || data.unit === "word";
  const heads = columns.map((one, c) => {
    const x = places.lefts[c] + (one.mark ? MARK_CELL : places.cell) / 2;
    const chosen = one.column === state.chosen ? " chosen" : String();
    const kind = `label ${one.mark ? "mark" : one.word !== undefined || data.unit === "word" ? "read" : String()}${chosen}`;
    if (upright || one.mark) return draw("text", { class: kind, transform: `translate(${x + 4} ${places.head - 6}) rotate(-90)` }, shortened(one.name, upright ? 13 : 6));
    return draw("text", { class: kind, x, y: places.head - 7, "text-anchor": "middle" }, places.narrow && one.column === data.answer.column ? one.name[0] : one.name);
  });
  const rows = data.columns.map((column, r) => draw("text", {
    class: `label ${column.mark ? "mark" : data.unit === "word" ? "read" : String()}${r === state.chosen ? " chosen" : String()}`,
    x: places.label - 7, y: places.head + places.cell * (r + 0.5) + 4, "text-anchor": "end",
  }, rowName(column, data.unit, places.narrow)));
  const gave = draw("text", { class: "axis", x: places.label, y: 11 }, places.narrow ? "gave →" : `gave: ${UNITS[data.unit]} of ${state.sheet === "rolled" ? "the input" : "the layer below"} →`);
  const took = places.narrow ? null : draw("text", { class: "axis", x: places.label - 7, y: places.head - 7, "text-anchor": "end" }, "took ↓");
  const openers = columns.map((one, c) => (opens(numbers, one.column) ? draw("rect", { class: "opener", "data-opens": one.column, x: places.lefts[c], y: 16, width: places.cell, height: places.head - 18, rx: 4 }) : null));
  return [...openers, ...heads, ...rows, gave, took];
}

/** What the answer took most from: the finding of the picture. */
function mapFinding(numbers, state) {
  const { answer, columns } = numbers.data;
  const row = columns.map((_, i) => numbers.cell(state.sheet, state.layer, answer.column, i));
  const first = row.reduce((so, value, i) => (i !== answer.column && (so < 0 || value > row[so]) ? i : so), -1);
  return first < 0 ? String() : `${largeFirst(answer.read)} took most from ${columns[first].title}: ${percent(row[first])}.`;
}

function cellSentence(numbers, state, row, one, value) {
  const { columns } = numbers.data;
  const taker = columns[row];
  const average = taker.words.length > 1 ? "on average " : String();
  if (one.column === row && one.word === undefined) return `${largeFirst(taker.title)} kept ${average}${percent(value)} of itself.`;
  return `${largeFirst(taker.title)} took ${average}${percent(value)} from ${one.title}.`;
}

function matrixPart(numbers, state, change) {
  const title = make("h2", { id: freshId("map") });
  const lead = make("p", { class: "lead" });
  const frame = make("div", { class: "picture-frame map-frame", tabindex: 0, role: "group", "aria-label": numbers.data.unit === "word" ? "Map: arrow keys go from cell to cell" : `Map: arrow keys go from cell to cell, Enter opens the ${numbers.data.unit} of a column` });
  const told = readout("Point at a cell to read it; arrow keys go from cell to cell.");
  const keys = make("div");
  const element = make("section", { "aria-labelledby": title.id, class: "viz" }, make("div", { class: "head" }, title, lead), scrollBox("Map of what was taken from what", frame), keys, told.element);
  let now = null; // what is drawn: columns, values, places, and the cell that is read
  const read = (r, c) => {
    for (const old of frame.querySelectorAll(".cell.read-now")) old.classList.remove("read-now");
    const cell = frame.querySelector(`.cell[data-row="${r}"][data-place="${c}"]`);
    if (cell) cell.classList.add("read-now");
    now.at = [r, c];
    told.say(cellSentence(numbers, state, r, now.columns[c], now.values[r][c]));
  };
  for (const name of ["pointerover", "click"]) {
    frame.addEventListener(name, (event) => {
      const facts = event.target.dataset || {};
      if (facts.place !== undefined) read(Number(facts.row), Number(facts.place));
    });
  }
  frame.addEventListener("click", (event) => {
    const { opens: column } = event.target.dataset || {};
    if (column !== undefined) change(toggled(numbers, state, Number(column)));
  });
  frame.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && now.at) {
      event.preventDefault();
      change(toggled(numbers, state, now.columns[now.at[1]].column));
      return;
    }
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key];
    if (!step) return;
    event.preventDefault();
    const [r, c] = now.at || [numbers.data.answer.column, -step[1]];
    read(Math.max(0, Math.min(numbers.count - 1, r + step[0])), Math.max(0, Math.min(now.columns.length - 1, c + step[1])));
  });
  const show = () => {
    const columns = mapColumns(numbers, state);
    const values = numbers.data.columns.map((_, r) => columns.map((one) => mapValue(numbers, state, r, one)));
    const { end, cut } = mapScale(values, columns);
    const places = mapPlaces(numbers, state, columns, frame.clientWidth || 700);
    const at = now && now.at && now.at[1] < columns.length ? now.at : null;
    now = { columns, values, at };
    const rolled = state.sheet === "rolled";
    title.textContent = rolled ? `What every part took from the input, up to layer ${state.layer + 1}` : `What every part took in layer ${state.layer + 1} alone`;
    lead.textContent = "The framed row is the answer’s. The diagonal is what a part kept of itself and never sets the scale; dark columns are parts that spread everywhere.";
    const cells = values.flatMap((row, r) => row.map((value, c) => draw("rect", {
      class: columns[c].mark ? "cell mark" : "cell", x: places.lefts[c], y: places.head + places.cell * r, width: columns[c].mark ? MARK_CELL : places.cell, height: places.cell,
      style: { "--w": Math.min(1, value / end).toFixed(4) }, "data-row": r, "data-place": c, "data-value": value,
    })));
    const hatches = columns.map((one, c) => (one.mark ? draw("rect", { class: "hatch", x: places.lefts[c], y: places.head, width: MARK_CELL, height: places.cell * numbers.count, fill: "url(#hatch)" }) : null));
    const lines = draw("pattern", { id: "hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, draw("rect", { class: "hatch-line", width: 1, height: 5 }));
    const row = numbers.data.answer.column;
    const answer = draw("rect", { class: "answer-row", x: places.label, y: places.head + places.cell * row, width: places.width - 4 - places.label, height: places.cell });
    frame.replaceChildren(draw(
      "svg", { width: places.width, height: places.height, role: "img", class: "map", "aria-label": `${title.textContent}. ${mapFinding(numbers, state)}` },
      draw("defs", {}, lines), ...mapLabels(numbers, state, columns, places), ...cells, ...hatches, answer,
    ));
    const averaged = numbers.data.columns.some((column) => column.words.length > 1) ? " Several words in a row: their average." : String();
    const unit = `Percent of the row; every row adds up to 100${THIN}%.${averaged} Hatched: marks, outside the scale.`;
    keys.replaceChildren(legend({ signed: false, sides: ["taken"], most: cut ? `${percent(end)} and more` : percent(end), unit, fill: true }));
    if (at) read(...at);
  };
  return { element, frame, show };
}
