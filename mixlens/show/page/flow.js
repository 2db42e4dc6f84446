"use strict";
// The page "What flows where": the answer, the text by column, bands, map and heads. It joins bands.js, matrix.js and heads.js.

/** The numbers of the page, each as a function of where it stands. Level 0 is the input; layers count from 0. */
class FlowNumbers {
  constructor(data, sheets) {
    this.data = data;
    this.count = data.columns.length;
    this.layers = data.layers;
    this.sheets = sheets;
    this.cached = new Map();
  }

  static async of(data) {
    const names = Object.keys(data.blocks);
    const sheets = await Promise.all(names.map((name) => Sheet.of(data.blocks[name])));
    return new FlowNumbers(data, Object.fromEntries(names.map((name, i) => [name, sheets[i]])));
  }

  row(name, number) {
    const key = `${name} ${number}`;
    if (!this.cached.has(key)) this.cached.set(key, this.sheets[name].row(number));
    return this.cached.get(key);
  }

  /** The share of the answer that a column holds at a level. At the input it is the last row of the map, so both are one number. */
  share(level, column) {
    return level === 0 ? this.cell("rolled", this.layers - 1, this.data.answer.column, column) : this.row("shares", level)[column];
  }

  /** How much of that came from a column of the input. */
  origin(level, column, source) {
    return this.row("origins", level * this.count + column)[source];
  }

  cell(sheet, layer, above, below) {
    return this.row(sheet, layer * this.count + above)[below];
  }

  /** What a column took from each word of another. They add up to what it took from that column, to the last digit that is shown. */
  wordCells(sheet, layer, above, column) {
    const key = `${sheet} ${layer} ${above} of ${column}`;
    if (!this.cached.has(key)) this.cached.set(key, this.addedUp(sheet, layer, above, column));
    return this.cached.get(key);
  }

  /** The answer's row of the last layer is the words' own share; the others are held less exactly than their sum, and follow it. */
  addedUp(sheet, layer, above, column) {
    const { words, columns, answer } = this.data;
    const last = sheet === "rolled" && layer === this.layers - 1 && above === answer.column;
    const row = last ? null : this.row(`${sheet}Words`, layer * this.count + above);
    const values = columns[column].words.map((place) => (last ? words[place].share : row[place]));
    return addedTo(this.cell(sheet, layer, above, column), values, !last && this.sheets[`${sheet}Words`].coding === "top");
  }

  /** Every band that is drawn: { layer, above, below, share, number }. */
  get bands() {
    const { layer, above, below } = this.data.bands;
    const shares = this.row("bandShares", 0);
    return layer.map((one, number) => ({ layer: one, above: above[number], below: below[number], share: shares[number], number }));
  }

  part(band, source) {
    return this.row("bandParts", band.number)[source];
  }

  /** The band of each word of a column through the first layer: they add up to the column's band, where that is drawn. */
  inputBands(above, column) {
    const values = this.data.columns[column].words.map((place) => this.row("inputBands", above)[place]);
    const band = this.bands.find((one) => one.layer === 0 && one.above === above && one.below === column);
    return band ? addedTo(band.share, values, false) : values;
  }

  head(layer, head, above) {
    return this.row("heads", (layer * this.data.heads.count + head) * this.count + above);
  }
}

/** Numbers that add up to `whole`. `spread`: zeros are not held, and share what the others leave; else all are scaled. */
function addedTo(whole, values, spread) {
  const held = values.reduce((a, b) => a + b, 0);
  const missing = values.filter((value) => value === 0).length;
  if (spread && missing && whole > held) return values.map((value) => value || (whole - held) / missing);
  return held > 0 ? values.map((value) => (value * whole) / held) : values.map(() => whole / values.length);
}

const UNITS = { word: "words", sentence: "sentences", part: "parts" };

function largeFirst(text) {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

/** The beginning of a text, up to a space where one is near. */
function cutBetweenWords(text, most) {
  const short = shortened(text, most);
  return short === text ? text : `${short.slice(0, -1).replace(/[\s,;:]+\S*$/, String()) || short.slice(0, -1)}…`;
}

/** The column that is chosen at first: of the text, with the largest share. */
function strongestColumn(numbers) {
  const { columns, unit } = numbers.data;
  const places = columns.map((_, i) => i).filter((i) => columns[i].kind === unit);
  return places.reduce((so, i) => (numbers.share(0, i) > numbers.share(0, so) ? i : so), places[0] || 0);
}

/** Whether a column is a group of words, which opens into them. */
function opens(numbers, column) {
  return numbers.data.columns[column].words.length > 1;
}

/** A click on a column, or Enter: it is chosen and open; where it is that already, it is closed. */
function toggled(numbers, state, column) {
  return { chosen: column, open: opens(numbers, column) && !(state.open && state.chosen === column) };
}

/** What a page says that groups words. */
function groupingSentence(numbers) {
  const { columns, unit } = numbers.data;
  const words = columns.reduce((sum, column) => sum + (column.kind === unit ? column.words.length : 0), 0);
  const how = unit === "sentence" ? "by sentence" : "into runs of words";
  return `${words} words and marks are too many for one picture, so they are grouped ${how}. A ${unit} opens into its words by a click or Enter in a picture; its words add up to it.`;
}

// --- above the pictures ------------------------------------------------------------------------------------------------------

function answerLines(data) {
  const said = make("p", { class: "answer long" }, ...data.sentence.map(([text, strong]) => (strong ? make("b", {}, word(text)) : text.startsWith(" (") ? [" ", make("span", { class: "one-line" }, text.slice(1))] : text)).flat());
  const sure = data.answer.sure ? `The model is ${data.answer.sure} sure. ` : String();
  return [said, make("p", { class: "small" }, `${sure}Shares say how much flowed, not whether it spoke for or against.`)];
}

/** The question, with the answer underlined where there is one. */
function flowQuestion(data) {
  return data.answer.name ? ["What flowed into the answer ", make("u", {}, word(data.answer.name)), "?"] : [`What flowed into ${data.answer.asked}?`];
}

/** The words of a column as they stand in the text, the strongest of them tinted. */
function columnText(data, column, most) {
  return column.words.flatMap((place, i) => {
    const one = data.words[place];
    const body = one.share >= 0.25 * most ? tinted(make("span", { class: "said" }, word(one.text)), one.share / most, "share") : word(one.text);
    return [i && one.before ? " " : null, body];
  });
}

/** A box scrolled as little as shows one of its elements whole; the page stays where it is. */
function scrollInside(box, element) {
  const [top, bottom] = [element.offsetTop, element.offsetTop + element.offsetHeight];
  if (top < box.scrollTop) box.scrollTop = top;
  else if (bottom > box.scrollTop + box.clientHeight) box.scrollTop = bottom - box.clientHeight;
}

/** The text as a list of columns: each a button that follows it through every picture. */
function columnList(numbers, state, change) {
  const { data } = numbers;
  const places = data.columns.map((_, i) => i).filter((i) => data.columns[i].kind === data.unit);
  const most = places.reduce((so, i) => Math.max(so, numbers.share(0, i)), 1e-30);
  const strongest = data.words.reduce((so, one) => (one.special ? so : Math.max(so, one.share)), 1e-30);
  const buttons = new Map(places.map((i) => {
    const column = data.columns[i];
    const bar = make("span", { class: "track" }, make("span", { class: "bar share", style: { width: `${(numbers.share(0, i) / most) * 100}%` } }));
    const text = make("span", { class: "text", dir: directionOf(column.text) }, ...columnText(data, column, strongest));
    const number = data.unit === "word" ? null : make("span", { class: "number" }, column.name);
    const value = make("span", { class: "value" }, percent(numbers.share(0, i)));
    return [i, make("button", { type: "button", class: "column", "aria-pressed": "false", "data-column": i, onclick: () => change(i === state.chosen && opens(numbers, i) ? toggled(numbers, state, i) : { chosen: i }) }, number, bar, value, text)];
  }));
  const others = data.columns.map((column, i) => [column, numbers.share(0, i)]).filter(([column]) => column.kind !== data.unit);
  const rest = others.map(([column, share]) => `${column.title}${column.kind === "answer" ? " itself" : String()} ${percent(share)}`);
  const head = data.unit === "word" ? "The text, word by word" : `The text, by ${data.unit}`;
  const list = make("ol", { class: data.unit === "word" ? "columns words" : "columns", tabindex: 0, "aria-label": head }, ...Array.from(buttons.values(), (one) => make("li", {}, one)));
  const whole = make("span", { class: "one-line" }, `Together 100${THIN}%.`);
  const foot = rest.length ? [`${largeFirst(listed(rest).join(String()))}. `, whole] : [whole];
  const hint = make("p", { class: "scroll-hint" }, `${largeFirst(numberWord(places.length))} ${UNITS[data.unit]}: scroll the list to see all.`);
  const again = data.unit === "word" ? String() : " Choose it again to open it into words.";
  const lead = `Share of the answer. Choose one to follow it through every picture.${again}`;
  const grouped = data.unit === "word" ? null : make("p", { class: "small grouped" }, groupingSentence(numbers));
  const element = section({ title: head, lead }, grouped, list, hint, make("p", { class: "small" }, ...foot));
  element.classList.add("text-list");
  const show = (chosen) => {
    buttons.forEach((one, i) => {
      one.setAttribute("aria-pressed", String(i === chosen));
      if (opens(numbers, i)) one.setAttribute("aria-expanded", String(i === chosen && state.open));
    });
    if (buttons.has(chosen)) scrollInside(list, buttons.get(chosen));
    hint.classList.toggle("needed", list.scrollHeight > list.clientHeight + 1);
  };
  return { element, show };
}

// --- controls ----------------------------------------------------------------------------------------------------------------

function flowControls(numbers, state, change) {
  const { layers, unit } = numbers.data;
  const id = freshId("layer");
  const shown = make("output", { for: id });
  const slider = make("input", { type: "range", id, min: 1, max: layers, step: 1, value: state.layer + 1, oninput: () => change({ layer: Number(slider.value) - 1 }) });
  const ticks = make("div", { class: "ticks", "aria-hidden": "true" }, ...Array.from({ length: layers }, (_, i) => make("span", {}, String(i + 1))));
  const layer = make("div", { class: "field slider" }, make("label", { for: id }, "Layer ", shown), slider, layers <= 16 ? ticks : null);
  const named = (text, group) => make("div", { class: "field" }, make("span", { class: "name", "aria-hidden": "true" }, text), group.element);
  const sheet = choices("The map shows", [["rolled", "from the input"], ["alone", "this layer alone"]], state.sheet, (value) => change({ sheet: value }));
  const open = choices(`Chosen ${unit}`, [["no", "as one"], ["yes", "word by word"]], "no", (value) => change({ open: value === "yes" }));
  const fields = [layer, named("The map shows", sheet), unit === "word" ? null : named(`Chosen ${unit}`, open)];
  const show = () => {
    slider.value = state.layer + 1;
    shown.textContent = `${state.layer + 1} of ${layers}`;
    open.inputs[state.open ? "yes" : "no"].checked = true;
  };
  return { element: make("div", { class: "controls no-print" }, ...fields), show };
}

/** What the answer's position held after each layer. */
function heldAfterLayers(numbers) {
  const { data, layers } = numbers;
  const heads = ["after layer", ...Array.from({ length: layers }, (_, i) => String(i + 1))];
  const rows = data.columns.map((column, i) => [
    data.unit === "word" ? column.name : `${column.name} ${cutBetweenWords(column.text, 40)}`,
    ...Array.from({ length: layers }, (_, layer) => percent(numbers.cell("rolled", layer, data.answer.column, i))),
  ]);
  const caption = `What ${data.answer.read} held of the input after each layer. Each column of the table adds up to 100${THIN}%.`;
  return scrollBox("Every number", table(heads, rows, { caption, numbers: heads.map((_, i) => i).slice(1), said: true }));
}

// --- the page ----------------------------------------------------------------------------------------------------------------

/** The picture again whenever its frame gets another width. */
function whenWidthChanges(box, redraw) {
  let width = box.clientWidth;
  new ResizeObserver(() => {
    if (Math.abs(box.clientWidth - width) < 2) return;
    width = box.clientWidth;
    redraw();
  }).observe(box);
}

/** What a page of flow is made of: the answer's lines, all pictures, `redraw`, and `begin` once they stand in the page. */
async function flowParts(data) {
  const numbers = await FlowNumbers.of(data);
  const state = { chosen: strongestColumn(numbers), layer: numbers.layers - 1, sheet: "rolled", open: false };
  const parts = [];
  const redraw = () => {
    for (const part of parts) part.show(state);
    document.documentElement.dataset.ready = String(Number(document.documentElement.dataset.ready || 0) + 1);
  };
  const change = (next) => {
    Object.assign(state, next);
    redraw();
  };
  const list = columnList(numbers, state, change);
  const controls = flowControls(numbers, state, change);
  const bands = bandsPart(numbers, state, change);
  const map = matrixPart(numbers, state, change);
  const heads = data.heads.count ? headsPart(numbers, state) : null;
  parts.push({ show: (now) => list.show(now.chosen) }, controls, bands, map, ...(heads ? [heads] : []));
  const numbersFold = aside("Every number: what the answer’s position held after each layer", () => heldAfterLayers(numbers));
  const pictures = make("div", { class: "pictures" }, controls.element, bands.element, map.element, numbersFold, heads ? heads.element : null);
  const origin = fold("Where these numbers come from", "model, method, grouping, what was checked", () => facts(data.facts), { print: true });
  const begin = () => {
    redraw();
    for (const part of [bands, map]) whenWidthChanges(part.frame, redraw);
  };
  const below = [make("div", { class: "flow-page" }, list.element, pictures), make("div", { class: "folds" }, origin)];
  return { said: answerLines(data), parts: below, redraw, begin };
}

async function startFlow(data, main) {
  const { said, parts, redraw, begin } = await flowParts(data);
  if (data.answer.name) document.querySelector("h1").replaceChildren(...flowQuestion(data));
  for (const old of main.querySelectorAll("p.answer")) old.remove();
  main.querySelector(".hero").append(...said);
  main.append(...parts);
  themeSwitch(redraw);
  begin();
}
