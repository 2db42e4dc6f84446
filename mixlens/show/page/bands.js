"use strict";
// Bands from the input (below) to the answer (above): their width is the share of the answer that passes. Ends stack, none overlaps.

const LEAST_PART = 0.0004; // of the answer: a smaller part of a band has no colour of its own
const PERCENT_ROOM = 37; // pixels that a column needs for the percent below its name

/** The width that each column needs: its label, its words where it is open, and its widest bar below the answer. */
function neededWidths(numbers, state, narrow, scale) {
  const { columns, unit } = numbers.data;
  const usual = unit === "word" ? 24 : narrow ? 16 : state.open ? 20 : 26;
  return columns.map((column, i) => {
    let widest = 0;
    for (let level = 0; level < numbers.layers; level++) widest = Math.max(widest, numbers.share(level, i));
    const label = state.open && i === state.chosen ? column.words.length * 14 : column.mark && narrow ? Math.min(22, usual) : usual;
    return Math.max(label, widest * scale + 8);
  });
}

/** Where everything of the picture stands. In the open picture the chosen column is as wide as its words. */
function bandPlaces(numbers, state, room) {
  const { columns, unit } = numbers.data;
  const narrow = room < 600;
  const left = narrow ? 50 : 62;
  const words = state.open ? columns[state.chosen].words : [];
  const scale = Math.min(narrow ? 110 : 230, (room - left) / 3.2);
  const least = neededWidths(numbers, state, narrow, scale);
  const needed = least.reduce((a, b) => a + b, 0);
  const width = Math.max(room, left + needed + 10);
  const widths = least.map((size) => size + (width - left - 10 - needed) / least.length);
  let at = left;
  const middles = widths.map((size) => { at += size; return at - size / 2; });
  const open = widths[state.chosen];
  const wordPlaces = words.map((_, i) => middles[state.chosen] - open / 2 + ((i + 0.5) * open) / words.length);
  const high = narrow ? 56 : numbers.layers > 8 ? 58 : 72;
  const top = 46;
  const below = unit === "word" || state.open ? 118 : 64;
  return { width, left, narrow, middles, widths, tight: Math.min(...widths) < PERCENT_ROOM, words, wordPlaces, scale, top, high, bottom: top + numbers.layers * high, below };
}

/** Every band with its place: from (level, column or word) to (level + 1, column). */
function placedBands(numbers, state, places) {
  const { column } = numbers.data.answer;
  const from = (band) => (band.word === undefined ? places.middles[band.below] : places.wordPlaces[band.word]);
  const to = (band) => (band.layer === numbers.layers - 1 ? answerPlace(places) : places.middles[band.above]);
  let bands = numbers.bands.map((band) => ({ ...band, part: numbers.part(band, state.chosen) }));
  if (state.open) bands = bands.filter((band) => band.layer > 0 || band.below !== state.chosen).concat(wordBands(numbers, state, places));
  bands = bands.filter((band) => band.layer < numbers.layers - 1 || band.above === column);
  stack(bands, (band) => `${band.layer} ${band.below} ${band.word}`, from, to, places.scale, "start");
  stack(bands, (band) => `${band.layer} ${band.above}`, to, from, places.scale, "end");
  return bands.sort((a, b) => a.share - b.share);
}

/** The bands of the chosen column's words through the first layer. */
function wordBands(numbers, state, places) {
  return numbers.data.columns.flatMap((_, above) => numbers.inputBands(above, state.chosen).flatMap((share, word) => (
    share >= numbers.data.drawn / 4 ? [{ layer: 0, above, below: state.chosen, word, share, part: share }] : []
  )));
}

/** Bands that end at one place side by side, in the order of where they come from. */
function stack(bands, key, here, there, scale, name) {
  const groups = new Map();
  for (const band of bands) groups.set(key(band), [...(groups.get(key(band)) || []), band]);
  for (const group of groups.values()) {
    group.sort((a, b) => there(a) - there(b));
    let at = here(group[0]) - (group.reduce((sum, band) => sum + band.share, 0) * scale) / 2;
    for (const band of group) {
      band[name] = at;
      at += band.share * scale;
    }
  }
}

function answerPlace(places) {
  return places.left + (places.width - places.left) / 2;
}

function bandShape(band, share, places) {
  const [low, up] = [levelAt(places, band.layer) - 4, levelAt(places, band.layer + 1) + 4];
  const middle = (low + up) / 2;
  const wide = share * places.scale;
  const [a, b] = [band.start, band.end];
  return `M${a} ${low}C${a} ${middle} ${b} ${middle} ${b} ${up}h${wide}C${b + wide} ${middle} ${a + wide} ${middle} ${a + wide} ${low}z`;
}

function levelAt(places, level) {
  return places.bottom - level * places.high;
}

/** One band: the whole of it grey, what came from the chosen column violet. */
function bandShapes(band, places) {
  const facts = { "data-layer": band.layer, "data-above": band.above, "data-below": band.below, "data-word": band.word, "data-share": band.share, "data-part": band.part, "data-wide": band.share * places.scale };
  const whole = draw("path", { class: "band", d: bandShape(band, band.share, places), ...facts });
  const part = Math.min(band.share, band.part);
  return [whole, part > LEAST_PART ? draw("path", { class: "band own", d: bandShape(band, part, places), ...facts }) : null];
}

/** The bars of a level: what each column holds, and of that what came from the chosen one. */
function levelBars(numbers, state, places, level) {
  const { columns, answer } = numbers.data;
  const last = level === numbers.layers;
  return columns.flatMap((column, i) => {
    if (last ? i !== answer.column : level === 0 && state.open && i === state.chosen) return [];
    const share = numbers.share(level, i);
    const wide = Math.max(1.5, share * places.scale);
    const x = (last ? answerPlace(places) : places.middles[i]) - wide / 2;
    const own = numbers.origin(level, i, state.chosen);
    const bar = { y: levelAt(places, level) - 4, height: 8, rx: 2 };
    const whole = draw("rect", { class: "level-bar", x, width: wide, ...bar, "data-level": level, "data-column": i, "data-share": share, "data-own": own, "data-wide": share * places.scale });
    const violet = share > 0 && own / share > 0.5 ? draw("rect", { class: "level-bar own", x, width: wide, ...bar }) : null;
    return [whole, violet];
  });
}

function inputLabels(numbers, state, places) {
  const { columns, unit, words } = numbers.data;
  const y = levelAt(places, 0) + 22;
  const upright = (x, text, className) => draw("text", { class: className, transform: `translate(${x + 4} ${y - 6}) rotate(90)` }, text);
  const labels = columns.map((column, i) => {
    if (state.open && i === state.chosen) return null;
    const chosen = i === state.chosen ? " chosen" : String();
    const text = shortened(column.name, 13);
    const value = percent(numbers.share(0, i));
    const kind = `label ${column.mark ? "mark" : unit === "word" ? "read" : String()}${chosen}`;
    if (unit === "word") return upright(places.middles[i], `${text}  ${value}`, kind);
    const place = { class: kind, x: places.middles[i], y, "text-anchor": "middle" };
    if (places.tight) return draw("text", place, column.kind !== unit && places.narrow ? text[0] : text);
    return draw("text", place, text, draw("tspan", { class: "axis", x: places.middles[i], dy: 17 }, value));
  });
  const opened = places.words.map((place, i) => upright(places.wordPlaces[i], shortened(words[place].text, 12) + (words[place].share >= 0.005 ? `  ${percent(words[place].share)}` : String()), "read label chosen"));
  const title = state.open ? `${columns[state.chosen].title}, word by word` : `${UNITS[unit]} of the text`;
  const middle = places.left + (places.width - places.left) / 2;
  const below = { y: levelAt(places, 0) + 6, height: places.below - 26 };
  const openers = columns.map((_, i) => (opens(numbers, i) ? draw("rect", { class: "opener", "data-opens": i, x: places.middles[i] - places.widths[i] / 2, width: places.widths[i], rx: 6, ...below }) : null));
  return [...openers, ...labels, ...opened, draw("text", { class: "axis", x: middle, y: places.bottom + places.below - 6, "text-anchor": "middle" }, title)];
}

function bandPicture(numbers, state, room, label) {
  const places = bandPlaces(numbers, state, room);
  const levels = Array.from({ length: numbers.layers + 1 }, (_, level) => level);
  const lit = levelAt(places, state.layer + 1);
  const middle = answerPlace(places);
  const { answer } = numbers.data;
  const picture = draw(
    "svg", { width: places.width, height: places.bottom + places.below, role: "img", "aria-label": label, class: "bands" },
    draw("rect", { class: "lit", x: 0, y: lit - 14, width: places.width, height: 28, rx: 6 }),
    ...levels.map((level) => draw("text", { class: level === state.layer + 1 ? "axis now" : "axis", x: 0, y: levelAt(places, level) + 4 }, level ? `layer ${level}` : "input")),
    ...placedBands(numbers, state, places).map((band) => bandShapes(band, places)).flat(),
    ...levels.flatMap((level) => levelBars(numbers, state, places, level)),
    draw("text", { class: "answer-name", x: middle, y: places.top - 28, "text-anchor": "middle" }, answer.name ? `the answer: ${shortened(answer.name, 30)}` : answer.read),
    answer.name ? draw("text", { class: "axis", x: middle, y: places.top - 12, "text-anchor": "middle" }, `read at ${shortened(answer.read, 30)}`) : null,
    ...inputLabels(numbers, state, places),
  );
  return { picture, places };
}

// --- in words ----------------------------------------------------------------------------------------------------------------

function bandSentence(numbers, state, facts) {
  const { columns, words } = numbers.data;
  const layer = Number(facts.layer);
  const chosen = columns[state.chosen];
  const from = facts.word === undefined ? columns[facts.below].title : `“${words[chosen.words[facts.word]].text}”`;
  const to = layer === numbers.layers - 1 ? "the answer" : columns[facts.above].title;
  const part = Number(facts.part);
  const own = part > LEAST_PART && facts.word === undefined ? `, ${percent(part)} of it from ${chosen.title}` : String();
  return `Layer ${layer + 1}: ${from} to ${to} carries ${percent(Number(facts.share))} of the answer${own}.`;
}

function barSentence(numbers, state, facts) {
  const { columns } = numbers.data;
  const level = Number(facts.level);
  const where = level === 0 ? "At the input" : `After layer ${level}`;
  const own = level && Number(facts.own) > LEAST_PART ? `, ${percent(Number(facts.own))} of the answer from ${columns[state.chosen].title}` : String();
  return `${where} ${columns[facts.column].title} holds ${percent(Number(facts.share))} of the answer${own}.`;
}

/** Where the chosen column's share is after a layer: what is still in its own place, and what has moved. */
function levelSentence(numbers, state) {
  const { columns } = numbers.data;
  const chosen = columns[state.chosen];
  const held = columns.map((_, i) => numbers.origin(state.layer + 1, i, state.chosen));
  const whole = held.reduce((a, b) => a + b, 0);
  const own = held[state.chosen];
  return `After layer ${state.layer + 1}, of the ${percent(whole)} that came from ${chosen.title}, ${percent(own)} is still in its own place and ${percent(whole - own)} has moved to others.`;
}

/** What stands in the picture after a column was opened or closed. */
function openedSentence(numbers, state) {
  const chosen = numbers.data.columns[state.chosen];
  const share = percent(numbers.share(0, state.chosen));
  if (!state.open) return `${largeFirst(chosen.title)} is one column: ${share} of the answer.`;
  const first = chosen.words.map((place) => numbers.data.words[place]).reduce((so, one) => (one.share > so.share ? one : so));
  return `${largeFirst(chosen.title)} is open: ${chosen.words.length} words and marks, together ${share} of the answer, most of it from “${first.text}” (${percent(first.share)}).`;
}

// --- the part of the page ----------------------------------------------------------------------------------------------------

function bandsPart(numbers, state, change) {
  const title = make("h2", { id: freshId("bands") });
  const lead = make("p", { class: "lead" });
  const frame = make("div", { class: "picture-frame", tabindex: 0, role: "group", "aria-label": numbers.data.unit === "word" ? "Flow: up and down choose the layer, left and right the column" : `Flow: up and down choose the layer, left and right the ${numbers.data.unit}, Enter opens it into words` });
  const told = readout(numbers.data.unit === "word" ? "Point at a band to read it; arrow keys move." : `Point at a band to read it; arrow keys move. A click on a number below, or Enter, opens the ${numbers.data.unit}.`);
  const keys = make("div", { class: "legend" });
  const element = make("section", { "aria-labelledby": title.id, class: "viz" }, make("div", { class: "head" }, title, lead), scrollBox("Flow through the layers", frame), keys, told.element);
  const say = (event) => {
    const facts = event.target.dataset || {};
    if (facts.share === undefined) return;
    told.say(facts.level === undefined ? bandSentence(numbers, state, facts) : barSentence(numbers, state, facts));
  };
  for (const name of ["pointerover", "click"]) frame.addEventListener(name, say);
  const openColumn = (column) => {
    change(toggled(numbers, state, column));
    told.say(openedSentence(numbers, state));
  };
  frame.addEventListener("click", (event) => {
    const facts = event.target.closest("[data-opens], [data-level='0']");
    if (facts) openColumn(Number(facts.dataset.opens === undefined ? facts.dataset.column : facts.dataset.opens));
  });
  frame.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      event.preventDefault();
      openColumn(state.chosen);
      return;
    }
    const step = { ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key];
    if (!step) return;
    event.preventDefault();
    const layer = Math.max(0, Math.min(numbers.layers - 1, state.layer + step[0]));
    const chosen = Math.max(0, Math.min(numbers.count - 1, state.chosen + step[1]));
    change({ layer, chosen });
    told.say(levelSentence(numbers, state));
  });
  const show = () => {
    const { columns, unit, drawn, undrawn, answer } = numbers.data;
    const chosen = columns[state.chosen];
    title.textContent = `How ${chosen.title} reached ${answer.name ? "the answer" : answer.read}`;
    const quoted = unit === "word" || chosen.kind !== unit ? largeFirst(chosen.title) : `“${cutBetweenWords(chosen.text, 96)}”`;
    lead.textContent = `${quoted} makes up ${percent(numbers.share(0, state.chosen))} of the answer. Read upwards, from the words to the position the answer is read from.`;
    const { picture, places } = bandPicture(numbers, state, frame.clientWidth || 700, `${title.textContent}: ${percent(numbers.share(0, state.chosen))} of it. ${levelSentence(numbers, state)}`);
    frame.replaceChildren(picture);
    const key = (className, text, style = {}) => make("span", { class: "key" }, make("span", { class: `swatch ${className}`, style }), text);
    keys.replaceChildren(
      key("own", `from ${chosen.title}`), key("rest", "everything else"), key("tenth", `this wide = 10${THIN}% of the answer`, { width: `${places.scale * 0.1}px` }),
      make("span", {}, `Bands under ${(drawn * 100).toFixed(2)}${THIN}% are not drawn: at most ${percent(undrawn)} of a level.`),
    );
  };
  return { element, frame, show };
}
