"use strict";
// What each written word rests on: the answer, both texts, the table of written words by words of the prompt, sums by sentence.
// `generation` is what show/generation_page.py makes. A column is a group of words, a word, or a run of special tokens.

const MOST_WORDS = 40; // columns: above it one sentence (or turn) at a time is open
const CELL = { least: 18, word: 30, group: 110, row: 26, special: 14, gap: 10 };
const CUT = 0.99; // the share of cells that the scale covers; what is above it has the scale's end
const QUIET = 0.08; // of the largest: under it a word of the prompt is not tinted

/** A word of the texts in a sentence of ours: a mark alone stands in quotation marks, so that it is not read as ours. */
function named(kind, text) {
  const body = make(kind === "strong" ? "b" : "i", kind === "strong" ? {} : { class: "read" }, word(text));
  return /[\p{L}\p{N}]/u.test(text) ? [body] : ["“", body, "”"];
}

/** The parts of the answer: ours plain or strong, the model's in the reading face. */
function answerParts(parts) {
  return parts.flatMap(([kind, text]) => (kind ? named(kind, text) : [text]));
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

// --- what the table is made of -----------------------------------------------------------------------------------------------

/** The page: what is shown (`state`), and everything that follows from it. */
class Table {
  constructor(generation) {
    this.data = generation;
    this.first = generation.rows[0].word; // the first written word among all words
    this.prompt = generation.words.map((_, k) => k).filter((k) => k < this.first && !generation.words[k].special);
    this.narrow = matchMedia("(max-width: 760px)").matches;
    const many = this.prompt.length > MOST_WORDS;
    this.state = { what: "share", own: "one", by: (this.narrow || many) && generation.groups.length > 1 ? "group" : "word", row: generation.chosen, open: null };
  }

  get effects() { return this.data.rows[0].effects !== null; }
  get row() { return this.data.rows[this.state.row]; }
  text(k) { return this.data.words[k].text; }
  written(r) { return this.text(this.data.rows[r].word); }

  /** Which sentence or turn is open: all of them where the words are few. */
  isOpen(g) {
    if (this.state.by === "group") return false;
    return this.prompt.length <= MOST_WORDS || g === this.openGroup();
  }

  /** The one that the reader opened, else the one that gave most to the chosen word. */
  openGroup() {
    if (this.state.open !== null) return this.state.open;
    const sums = this.data.groups.map((group) => this.sum(this.state.row, group.words));
    return sums.indexOf(Math.max(...sums));
  }

  /** The columns of the prompt, from left to right. */
  columns() {
    const columns = [];
    this.data.words.slice(0, this.first).forEach((one, k) => {
      const last = columns[columns.length - 1];
      if (one.special) {
        if (last && last.kind === "special") last.words.push(k);
        else columns.push({ kind: "special", words: [k], group: null, name: (one.text.match(/<[^<>]*>|[^\s<>]+/g) || ["template"]).pop() });
      } else if (this.isOpen(one.group)) columns.push({ kind: "word", words: [k], group: one.group, name: one.text });
      else if (last && last.kind === "group" && last.group === one.group) last.words.push(k);
      else columns.push({ kind: "group", words: [k], group: one.group, name: capital(this.data.groups[one.group].name) });
    });
    return columns;
  }

  sum(r, words) {
    return words.reduce((sum, k) => sum + Math.abs(this.data.rows[r].shares[k] || 0), 0);
  }

  /** What a cell says: a share, or the change of a probability when the column is left out. null: it was not measured. */
  value(r, column) {
    const row = this.data.rows[r];
    if (this.state.what === "effect") return column.kind === "group" ? row.groupEffects[column.group] : row.effects[column.words[0]];
    return column.kind === "word" ? row.shares[column.words[0]] || 0 : this.sum(r, column.words);
  }

  /** The end of the scale: the largest cell, but for a few. */
  most(columns) {
    const sizes = this.data.rows.flatMap((_, r) => columns.map((column) => Math.abs(this.value(r, column) || 0))).sort((a, b) => a - b);
    const cut = sizes[Math.min(sizes.length - 1, Math.floor(sizes.length * CUT))] || sizes[sizes.length - 1];
    return { most: cut || 1e-30, cut: cut < sizes[sizes.length - 1] };
  }

  hue(value) {
    if (this.state.what === "effect") return value <= 0 ? "for" : "against";
    return hueOf(value, this.data.signed);
  }

  called(column) {
    if (column.kind === "group") return this.data.groups[column.group].name;
    return `“${column.name}”`;
  }

  /** One cell in words. */
  told(r, column) {
    const [row, value] = [this.data.rows[r], this.value(r, column)];
    if (this.state.what === "share") return this.data.signed ? `${capital(this.called(column))} carries ${signedPercent(value)} of the evidence for “${this.written(r)}”.` : `“${this.written(r)}” is made ${percent(value)} of ${this.called(column)}.`;
    if (value === null) return `Nothing would be left without ${this.called(column)}.`;
    return `Without ${this.called(column)}, “${this.written(r)}” goes from ${percent(row.p)} to ${percent(Math.max(0, row.p + value))}: ${points(value)}.`;
  }

  /** The chosen word in words. */
  toldRow() {
    const [row, name] = [this.row, this.written(this.state.row)];
    const best = (values, sign) => this.prompt.reduce((most, k) => (most === null || sign * (values[k] || 0) > sign * (values[most] || 0) ? k : most), null);
    const where = (k) => (this.data.groups.length > 1 ? ` in ${this.data.groups[this.data.words[k].group].name}` : String());
    if (this.state.what === "share") {
      const k = best(row.shares.map(Math.abs), 1);
      const most = k === null || !row.shares[k] ? String() : `, most of it “${this.text(k)}”${where(k)} (${percent(Math.abs(row.shares[k]))})`;
      return `“${name}” (${percent(row.p)} sure): ${percent(row.own)} its own words, ${percent(row.prompt)} the prompt${most}.`;
    }
    const k = best(row.effects, -1);
    if (k === null || !(row.effects[k] < 0)) return `“${name}” (${percent(row.p)} sure) would lose nothing without any one word of the prompt.`;
    return `“${name}” (${percent(row.p)} sure) would lose most without “${this.text(k)}”${where(k)}: ${points(row.effects[k])}.`;
  }
}

// --- both texts --------------------------------------------------------------------------------------------------------------

/** The prompt, tinted for the chosen word, and the written words as buttons. */
function textsOf(table, choose) {
  const { data } = table;
  const line = make("p", { class: "readout", "aria-live": "polite" });
  const prompt = make("p", { class: "prompt", dir: directionOf(table.prompt.map((k) => table.text(k)).join(" ")) });
  const marks = new Map();
  let turn = null;
  table.prompt.forEach((k, i) => {
    const group = data.groups[data.words[k].group];
    if (group.kind === "turn" && group !== turn) prompt.append(...(turn ? [make("br")] : []), make("span", { class: "role" }, `${capital(group.role)} `));
    const mark = make("span", { class: "gave" }, word(table.text(k)));
    marks.set(k, mark);
    prompt.append(...(i && (group === turn || group.kind !== "turn") ? gapBefore(data.words[k].before) : []), mark);
    turn = group;
  });
  const buttons = data.rows.map((row, r) => make("button", { type: "button", "aria-pressed": "false", tabindex: r === table.state.row ? 0 : -1, onclick: () => choose(r) }, word(table.written(r))));
  const written = make("p", { class: "written", role: "group", "aria-label": "Written words: choose one", title: data.cut || null, dir: directionOf(data.rows.map((_, r) => table.written(r)).join(" ")) });
  buttons.forEach((button, r) => written.append(...(r ? gapBefore(data.words[data.rows[r].word].before) : []), button));
  roving(written, buttons, { reached: choose });
  const refresh = () => {
    const { row, state } = table;
    const values = state.what === "effect" ? row.effects : row.shares;
    const most = table.prompt.reduce((so, k) => Math.max(so, Math.abs(values[k] || 0)), 1e-30);
    for (const [k, mark] of marks) {
      const strength = Math.abs(values[k] || 0) / most;
      tinted(mark, strength < QUIET ? 0 : strength, table.hue(values[k] || 0));
      mark.classList.toggle("counts", strength >= QUIET);
    }
    buttons.forEach((button, r) => { button.setAttribute("aria-pressed", String(r === state.row)); button.tabIndex = r === state.row ? 0 : -1; });
    line.textContent = table.toldRow();
  };
  const given = data.given ? "Given as if the model had written it" : "Written by the model";
  const panel = make(
    "div", { class: "panel story" }, make("p", { class: "label" }, "Prompt"), prompt,
    make("p", { class: "label" }, given, make("span", { class: "no-print" }, " · choose a word to see what it rests on")), written, line,
    data.cut ? make("p", { class: "small cut" }, data.cut) : null,
  );
  return { element: panel, refresh, line };
}

// --- the table as a picture --------------------------------------------------------------------------------------------------

function hatching() {
  return draw(
    "defs", {}, draw("pattern", { id: "hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(35)" },
      draw("rect", { width: 5, height: 5, class: "hatch-ground" }), draw("path", { d: "M0 0V5", class: "hatch-line" })),
  );
}

/** Where everything stands: sizes that follow from the room there is. */
function layoutOf(table, room) {
  const narrow = room < 600;
  const columns = table.columns();
  const own = table.state.own === "each" ? table.data.rows.slice(0, -1).map((row, r) => ({ kind: "own", words: [row.word], r, name: table.text(row.word) })) : [];
  const named = columns.some((column) => column.kind === "word") || own.length > 0;
  const gaps = columns.filter((column, i) => i && column.group !== columns[i - 1].group).length;
  const gap = narrow ? 5 : CELL.gap;
  const left = narrow ? 78 : 112;
  const sure = narrow ? 0 : 58;
  const bar = table.state.own === "each" || table.state.what === "effect" ? 0 : narrow ? 66 : 118;
  const specials = columns.filter((column) => column.kind === "special").length;
  const fixed = left + sure + specials * CELL.special + (gaps + 2) * gap + bar + 8;
  const groups = columns.filter((column) => column.kind === "group").length;
  const words = columns.length - specials - groups + own.length;
  const size = Math.max(CELL.least, Math.min(CELL.word, Math.floor((room - fixed - groups * 60) / Math.max(1, words))));
  const wide = groups ? Math.max(narrow ? 40 : 52, Math.min(CELL.group, Math.floor((room - fixed - words * size) / groups))) : 0;
  const longest = [...columns, ...own].filter((column) => column.kind !== "group").reduce((most, column) => Math.max(most, Math.min(16, Array.from(column.name).length)), 0);
  return { narrow, gap, columns, own, left, sure, bar, size, wide, head: 34 + (named || specials ? Math.max(specials ? 62 : 40, longest * 7.4) : 18), named };
}

/** The rows of each written sentence stand together. */
function rowTops(table, head) {
  let top = head;
  return table.data.rows.map((row, r) => {
    if (r && table.data.words[row.word].group !== table.data.words[table.data.rows[r - 1].word].group) top += 12;
    const here = top;
    top += CELL.row;
    return here;
  });
}

function fillOf(table, value, most, text) {
  const strength = Math.min(1, Math.abs(value) / most) * 100;
  return `color-mix(in srgb, var(--${table.hue(value)}${text ? "-tint" : String()}) ${strength.toFixed(1)}%, var(--surface))`;
}

/** One cell: tinted; with a number where it is wide enough, else with a dash where it speaks against. */
function cellOf(table, r, column, box, most, say, choose) {
  const value = table.value(r, column);
  const wide = column.kind === "group";
  const parts = [];
  const cell = draw("rect", { class: "cell", x: box.x, y: box.y, width: box.width, height: CELL.row, style: { fill: value === null ? "url(#hatch)" : fillOf(table, value, most, wide) } });
  cell.addEventListener("pointerenter", () => say(table.told(r, column)));
  cell.addEventListener("click", () => choose(r));
  parts.push(cell);
  if (wide && value !== null) {
    const shown = Math.abs(value) < 0.0005 ? "·" : table.state.what === "effect" ? points(value).replace(/ points?$/, String()) : percent(Math.abs(value));
    parts.push(draw("text", { class: "axis number", x: box.x + box.width / 2, y: box.y + CELL.row / 2 + 4, "text-anchor": "middle" }, shown));
  } else if (value !== null && table.hue(value) === "against" && Math.abs(value) / most > 0.2) {
    parts.push(draw("path", { class: "dash", d: `M${box.x + box.width / 2 - 4} ${box.y + CELL.row / 2}h8` }));
  }
  return parts;
}

/** A word that stands upright over its column. */
function uprightName(text, x, y, kind) {
  return draw("text", { class: kind, transform: `translate(${x} ${y}) rotate(-90)` }, shortened(text, 16));
}

function bracket(x, width, text) {
  const parts = [draw("path", { class: "bracket", d: `M${x + 1} 30v-7h${Math.max(2, width - 2)}v7` })];
  const room = Math.floor(width / 7.2);
  const short = text.replace(/^Sentence /, "S");
  const name = text.length <= room ? text : short.length <= room ? short : shortened(short, Math.max(2, room));
  return [...parts, draw("text", { class: "strong", x: x + width / 2, y: 15, "text-anchor": "middle" }, name, draw("title", {}, text))];
}

function pictureOf(table, room, say, choose) {
  const layout = layoutOf(table, room);
  const { columns, own, gap, left, sure, bar, size, wide, head } = layout;
  const tops = rowTops(table, head);
  const counted_ = columns.filter((column) => column.kind !== "special");
  const { most, cut } = table.most(counted_);
  const parts = [hatching()];
  parts.push(draw("text", { class: "axis", x: left - 10, y: head - 8, "text-anchor": "end" }, "written ↓"));
  if (sure) parts.push(draw("text", { class: "axis", x: left + sure - 14, y: head - 8, "text-anchor": "end" }, "sure"));
  table.data.rows.forEach((row, r) => {
    const name = draw("text", { class: r === table.state.row ? "read name chosen" : "read name", x: left - 10, y: tops[r] + CELL.row / 2 + 5, "text-anchor": "end" }, shortened(table.written(r), 13));
    name.addEventListener("click", () => choose(r));
    parts.push(name);
    if (sure) parts.push(draw("text", { class: "axis", x: left + sure - 14, y: tops[r] + CELL.row / 2 + 4, "text-anchor": "end" }, percent(row.p)));
  });
  let x = left + sure;
  const starts = new Map(); // of each open group: where its bracket begins and ends
  columns.forEach((column, i) => {
    const before = columns[i - 1];
    if (before && (before.group !== column.group || before.kind === "special")) x += gap;
    if (column.kind === "special") {
      const held = (r) => table.sum(r, column.words);
      if (!layout.narrow || columns.length < 12) parts.push(uprightName(table.data.begin.includes(column.words[0]) ? "begin mark" : column.name, x + 11, head - 8, "axis slanted"));
      table.data.rows.forEach((_, r) => {
        const rect = draw("rect", { class: "apart", x, y: tops[r], width: CELL.special - 2, height: CELL.row - 1.5, rx: 2 });
        rect.addEventListener("pointerenter", () => say(`“${table.written(r)}” is made ${percent(held(r))} of ${table.data.begin.includes(column.words[0]) ? "the begin mark" : `the template’s ${column.name}`}.`));
        parts.push(rect);
      });
      x += CELL.special;
      return;
    }
    const width = column.kind === "group" ? wide : size;
    const place = starts.get(column.group) || [x, x];
    starts.set(column.group, [place[0], x + width]);
    if (column.kind === "word") parts.push(uprightName(column.name, x + width / 2 + 4, head - 8, "read"));
    else if (layout.named && table.prompt.length > MOST_WORDS) {
      const opener = draw("text", { class: "axis opener", x: x + width / 2, y: head - 8, "text-anchor": "middle" }, "open");
      opener.addEventListener("click", () => table.opened(column.group));
      parts.push(opener);
    }
    table.data.rows.forEach((_, r) => parts.push(...cellOf(table, r, column, { x, y: tops[r], width }, most, say, choose)));
    x += width;
  });
  for (const [group, [from, to]] of starts) parts.push(...bracket(from, to - from, capital(table.data.groups[group].name)));
  const prompted = x;
  if (bar) {
    x += gap;
    parts.push(draw("text", { class: "strong", x, y: head - 8 }, layout.narrow ? "own" : "its own words"));
    table.data.rows.forEach((row, r) => {
      const room_ = bar - (layout.narrow ? 44 : 56);
      parts.push(draw("rect", { class: "own-track", x, y: tops[r] + 8, width: room_, height: 10, rx: 3 }), draw("rect", { class: "own-bar", x, y: tops[r] + 8, width: Math.max(1, room_ * row.own), height: 10, rx: 3 }));
      parts.push(draw("text", { class: "axis", x: x + bar - (layout.narrow ? 2 : 6), y: tops[r] + CELL.row / 2 + 4, "text-anchor": "end" }, percent(row.own)));
    });
    x += bar;
  } else if (own.length && table.state.what === "share") {
    x += gap;
    const from = x;
    for (const column of own) {
      parts.push(uprightName(column.name, x + size / 2 + 4, head - 8, "read"));
      table.data.rows.forEach((_, r) => {
        if (r <= column.r) return;
        const value = table.data.rows[r].shares[column.words[0]] || 0;
        const cell = draw("rect", { class: "cell", x, y: tops[r], width: size, height: CELL.row, style: { fill: fillOf(table, value, most, false) } });
        cell.addEventListener("pointerenter", () => say(`“${table.written(r)}” is made ${percent(Math.abs(value))} of its own “${column.name}”.`));
        cell.addEventListener("click", () => choose(r));
        parts.push(cell);
      });
      x += size;
    }
    parts.push(...bracket(from, x - from, "Its own words"));
  }
  const top = tops[table.state.row];
  parts.push(draw("rect", { class: "chosen-row", x: left + sure - 3, y: top - 1.5, width: (bar || own.length ? x : prompted) - left - sure + 6, height: CELL.row + 3, rx: 3 }));
  const height = tops[tops.length - 1] + CELL.row + 8;
  const picture = draw("svg", { class: "matrix", width: x + 8, height, viewBox: `0 0 ${x + 8} ${height}`, role: "img", "aria-label": table.data.finding }, ...parts);
  const open = columns.some((column) => column.kind === "group") ? columns.find((column) => column.kind === "word") : null;
  return { picture, most, cut, from: open ? starts.get(open.group)[0] : 0 };
}

/** The legend of changes: up on the left, down on the right, as the colours are. */
function changesLegend(most, cut, fill) {
  const size = points(most).replace(/^\+| points?$/g, String());
  const key = (hue, text) => make("span", { class: "key" }, make("span", { class: `swatch ${hue}` }), text);
  const ticks = make("span", { class: "ticks" }, ...[`+${size}`, "0", `${MINUS}${size}`].map((text) => make("span", {}, text)));
  const scale = make("span", { class: "scale" }, make("span", { class: `ramp signed${fill ? " fill" : String()}` }), ticks);
  const unit = `Unit: points of probability${cut ? `; ${size} and more have the full colour` : String()}. Words are deleted; a sentence or turn is left out as a whole. Hatched: nothing would be left.`;
  return make("div", { class: "legend changes" }, key("against", "up: it stood in the way"), scale, key("for", "down: it was needed"), make("span", {}, unit));
}

function legendOf(table, most, cut) {
  const fill = table.columns().every((column) => column.kind !== "group");
  if (table.state.what === "effect") return changesLegend(most, cut, fill);
  const rest = `every row adds up to 100${THIN}% with its own words and the hatched columns (${table.data.chat ? "the template’s own tokens" : "begin mark"})`;
  const unit = `Unit: percent of the written word; ${rest}. The scale is set by the prompt${cut ? "; a few cells are larger than its end" : String()}.`;
  const sides = table.data.signed ? ["against the written word", "for it"] : ["share of the written word"];
  return legend({ signed: table.data.signed, sides, most: table.data.signed || !cut ? most : `${percent(most)} and more`, unit, fill });
}

/** Every number of the chosen word. */
function numbersOf(table) {
  const { row, data } = table;
  const heads = ["prompt word", data.groups[0] && data.groups[0].kind === "turn" ? "turn" : "sentence", "made of it", ...(table.effects ? ["left out"] : [])];
  const rows = table.prompt.map((k) => [
    word(table.text(k)), data.groups[data.words[k].group].name, percent(row.shares[k] || 0),
    ...(table.effects ? [row.effects[k] === null ? "not measured" : points(row.effects[k])] : []),
  ]);
  const caption = `“${table.written(table.state.row)}”, ${percent(row.p)} sure`;
  return tableOf(heads, rows, caption);
}

function tableOf(heads, rows, caption) {
  return table(heads, rows, { caption, numbers: [2, 3], said: true });
}

/** The table with its controls. */
function matrixSection(tableState, line, chosen) {
  const { data, state } = tableState;
  const box = make("div", { class: "scroll matrix-box", tabindex: 0, role: "group", "aria-label": "Written words by words of the prompt; arrow keys choose the written word" });
  const hint = make("p", { class: "scroll-hint" }, "Wider than the screen: scroll sideways.");
  const title = make("h2", { id: freshId("section") });
  const lead = make("p", { class: "lead" });
  const scale = make("div", { class: "under" });
  const said = make("p", { class: "readout no-print" });
  const numbers = make("div", {});
  const choose = (r) => chosen(r);
  const redraw = () => {
    const { picture, most, cut, from } = pictureOf(tableState, Math.max(320, box.clientWidth), (text) => { said.textContent = text; }, choose);
    box.replaceChildren(picture);
    if (from) box.scrollLeft = from - box.clientWidth / 3;
    hint.classList.toggle("needed", picture.width.baseVal.value > box.clientWidth + 2);
    const unit = data.unit === "token" ? "token" : "word";
    const part = state.by === "group" ? `a ${data.groups[0].kind} of the prompt` : `a ${unit} of the prompt`;
    title.textContent = `Written ${unit}s by ${state.by === "group" ? `${data.groups[0].kind}s of the prompt` : `prompt ${unit}s`}`;
    lead.textContent = state.what === "share"
      ? `Every row is one written ${unit}, every column ${part}. A cell is the share of the written ${unit} that comes from there.`
      : `A cell is what happens to the written ${unit}’s probability when ${part} is left out: down means it was needed.`;
    scale.replaceChildren(legendOf(tableState, most, cut));
    said.textContent = "Point at a cell to read it.";
    if (details.open) numbers.replaceChildren(numbersOf(tableState));
    ownChoice.element.disabled = state.what === "effect";
  };
  tableState.opened = (group) => { state.open = group; redraw(); };
  const set = (name) => (value) => { state[name] = value; state.open = null; chosen(state.row); };
  const whatChoice = choices("A cell says", tableState.narrow ? [["share", "made of it"], ["effect", "without it"]] : [["share", "how much it is made of"], ["effect", "what leaving it out does"]], state.what, set("what"));
  const ownChoice = choices("Its own words", [["one", "as one column"], ["each", "one by one"]], state.own, set("own"));
  const byChoice = choices("Prompt", [["group", data.groups[0] && data.groups[0].kind === "turn" ? "by turn" : "by sentence"], ["word", data.unit === "token" ? "by token" : "by word"]], state.by, set("by"));
  const titled = (name, choice) => make("div", { class: "field" }, make("span", { class: "name", "aria-hidden": "true" }, name), choice.element);
  const controls = make(
    "div", { class: "controls no-print" }, tableState.effects ? titled("A cell says", whatChoice) : null,
    data.rows.length > 1 ? titled("Its own words", ownChoice) : null, data.groups.length > 1 ? titled("Prompt", byChoice) : null,
  );
  box.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    chosen(Math.max(0, Math.min(data.rows.length - 1, state.row + step)));
  });
  const details = aside("Every number of the chosen word", () => numbers);
  details.addEventListener("toggle", () => { if (details.open) numbers.replaceChildren(numbersOf(tableState)); });
  const head = make("div", { class: "head" }, title, lead);
  let wait = 0;
  addEventListener("resize", () => { clearTimeout(wait); if (box.isConnected) wait = setTimeout(redraw, 120); });
  return { element: make("section", { "aria-labelledby": title.id }, head, controls, hint, box, said, scale, details), redraw };
}

// --- sentence by sentence ----------------------------------------------------------------------------------------------------

/** One written sentence: what it is made of, the average of its words. */
function spanRow(table, span) {
  const { data } = table;
  const parts = data.groups.map((group, g) => [group.name, span.groups[g]]);
  const most = Math.max(...parts.map(([, share]) => share), 1e-30);
  const bar = make(
    "div", { class: "stack", role: "img", "aria-label": `its own words ${percent(span.own)}, prompt ${percent(span.prompt)}, ${data.chat ? "template" : "begin mark"} ${percent(span.rest)}` },
    make("span", { class: "own", style: { width: `${span.own * 100}%` } }),
    ...parts.map(([name, share]) => make("span", { class: "part", title: `${name}: ${percent(share)}`, style: { width: `${share * 100}%`, opacity: (0.45 + (0.55 * share) / most).toFixed(2) } })),
    make("span", { class: "rest", style: { width: `${span.rest * 100}%` } }),
  );
  const best = parts.reduce((so, one) => (one[1] > so[1] ? one : so), [null, 0]);
  const mostly = data.groups.length > 1 && best[0] ? `, most of that from ${best[0]} (${percent(best[1])})` : String();
  const lost = span.lost.length
    ? make("p", { class: "small" }, "It would lose most without ", ...named("quote", span.lost[0][0]), `: ${points(span.lost[0][1])} a word`, ...(span.lost[1] ? ["; then ", ...named("quote", span.lost[1][0]), `: ${points(span.lost[1][1])}`] : []), ".")
    : null;
  return make(
    "div", { class: "span-row keep" },
    make("div", {}, make("p", { class: "read quote", dir: directionOf(span.text) }, span.text), make("p", { class: "small" }, `Typical probability of a word: ${percent(span.typical)}`)),
    make("div", {}, bar, make("p", {}, make("b", {}, `${percent(span.own)} from its own words`), `, ${percent(span.prompt)} from the prompt${mostly}.`), lost),
  );
}

function spansSection(table) {
  const { data } = table;
  const key = (kind, text) => make("span", { class: "key" }, make("span", { class: `swatch ${kind}` }), text);
  const kind = data.groups[0] ? `${data.groups[0].kind}s` : "sentences";
  const under = make(
    "div", { class: "legend" }, key("own", "its own words"), key("part", data.groups.length > 1 ? `prompt, ${kind} 1 to ${data.groups.length} from left to right` : "prompt"),
    key("rest", data.chat ? "the template’s own tokens" : "begin mark"), make("span", {}, `Width: share of the sentence, 100${THIN}% in all`),
  );
  return section({ title: "In short, sentence by sentence", lead: "What each written sentence is made of, the average of its words." }, ...data.spans.map((span) => spanRow(table, span)), under);
}

// --- the page ----------------------------------------------------------------------------------------------------------------

/** What the page is made of: the answer's lines, both texts, everything below, `redraw`, and `begin` once it stands in the page. */
function generationParts(generation) {
  const table = new Table(generation);
  const answer = make("p", { class: "answer long" }, ...answerParts(generation.parts));
  const texts = textsOf(table, (r) => chosen(r));
  const matrix = matrixSection(table, texts.line, (r) => chosen(r));
  function chosen(r) {
    table.state.row = r;
    texts.refresh();
    matrix.redraw();
  }
  const origin = make("section", { class: "folds" }, fold("Where these numbers come from", "model, method, how words were joined", () => facts(generation.facts.map(([name, value]) => [name, name === "Make it again" ? make("code", {}, value) : value])), { print: true }));
  return {
    said: [answer, ...generation.notes.map((text) => note("caution", text))],
    texts: texts.element,
    parts: [matrix.element, ...(generation.spans.length ? [spansSection(table)] : []), origin],
    redraw: () => matrix.redraw(),
    begin: () => chosen(table.state.row),
  };
}

function startGeneration({ generation }, root) {
  const { said, texts, parts, redraw, begin } = generationParts(generation);
  for (const old of root.querySelectorAll(".hero .answer")) old.remove();
  root.querySelector(".hero").append(...said, texts);
  root.append(...parts);
  themeSwitch(redraw);
  begin();
  document.documentElement.dataset.ready = "1";
}
