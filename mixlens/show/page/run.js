"use strict";
// The page of a run: what was counted over all rows, and some rows to look at.

/** The tint of a share with a sign. */
function paint(element, share) {
  tinted(element, share, hueOf(share, true));
}

const AT_ONCE = 20; // examples drawn before "Show more"
const SERIES = 8;

function percent(share, digits = 1) {
  return `${(share * 100).toFixed(digits)}%`;
}

function counted(count) {
  return count.toLocaleString("en");
}

/** A duration as a reader wants it. */
function timeText(seconds) {
  if (seconds >= 120) return `${(seconds / 60).toFixed(1)} min`;
  if (seconds >= 1) return `${seconds.toPrecision(3)} s`;
  return seconds >= 1e-3 ? `${(seconds * 1e3).toPrecision(3)} ms` : `${(seconds * 1e6).toPrecision(3)} µs`;
}

const NUMBER = /^[-–]?[\d,.]*(e-?\d+)?(%| min| s| ms| µs)?$/;

/** A table; a row is a list of cells (numbers, text or elements), its first the row's name. Numbers are to the right. */
function tableOf(caption, heads, rows, attributes = {}) {
  const cell = (value) => {
    if (value instanceof Node) return make("td", value.classList.contains("bar") ? { class: "bars" } : {}, value);
    const text = typeof value === "number" ? numberText(value) : String(value);
    return make("td", NUMBER.test(text) ? { class: "number" } : {}, text);
  };
  const line = ([first, ...rest]) => make(
    "tr", {}, make("th", { scope: "row" }, first instanceof Node ? first : String(first)), ...rest.map(cell),
  );
  return make(
    "table", attributes, caption ? make("caption", {}, caption) : null,
    make("thead", {}, make("tr", {}, ...heads.map((head) => (head ? make("th", { scope: "col" }, head) : make("td", {}))))),
    make("tbody", {}, ...rows.map(line)),
  );
}

function barOf(share, against = false) {
  const bar = make("div", { class: against ? "bar against" : "bar" });
  bar.style.width = `${Math.min(1, Math.abs(share)) * 100}%`;
  return bar;
}

/** What is folded away until it is asked for, and made only then. */
function folded(name, made, attributes = {}) {
  const box = make("details", attributes, make("summary", {}, name));
  let filled = false;
  const fill = () => {
    if (box.open && !filled) {
      filled = true;
      box.append(made());
    }
  };
  box.addEventListener("toggle", fill);
  fill();
  return box;
}

function scrolled(name, ...children) {
  return make("div", { class: "table-scroll", tabindex: 0, role: "group", "aria-label": name }, ...children);
}

/** Counts between edges, as columns. `edge` writes an edge; `wide` and `high` are of the picture. */
function histogram(name, { edges, counts }, { edge, wide = 420, high = 130, what = "rows" }) {
  const [left, right, top, bottom] = [8, 8, 16, 20];
  const most = Math.max(...counts, 1);
  const step = (wide - left - right) / counts.length;
  const picture = draw("svg", { class: "chart", viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": name });
  const floor = high - bottom;
  counts.forEach((count, i) => {
    const tall = count ? Math.max(1, (count / most) * (floor - top)) : 0;
    const column = draw("rect", {
      class: "column", x: (left + i * step + 0.5).toFixed(2), y: (floor - tall).toFixed(2), rx: 1.5,
      width: Math.max(0.5, step - 1).toFixed(2), height: tall.toFixed(2),
    }, draw("title", {}, `${edge(edges[i])} to ${edge(edges[i + 1])}: ${counted(count)} ${what}`));
    picture.append(column);
  });
  picture.append(draw("path", { class: "axis", d: `M ${left} ${floor} H ${wide - right}` }));
  picture.append(draw("text", { x: left, y: 11 }, `most: ${counted(most)}`));
  const marks = counts.length > 1 ? [0, Math.floor(edges.length / 2), edges.length - 1] : [0, 1];
  const anchors = { 0: "start", [edges.length - 1]: "end" };
  for (const i of marks) {
    picture.append(draw("text", { x: left + i * step, y: high - 6, "text-anchor": anchors[i] || "middle" }, edge(edges[i])));
  }
  return picture;
}

function binsTable(caption, { edges, counts }, edge) {
  const rows = counts.map((count, i) => [`${edge(edges[i])} to ${edge(edges[i + 1])}`, count]).filter(([, count]) => count);
  return tableOf(caption, ["from, to", "rows"], rows);
}

/** Lines over layers, one for each method. */
function curvesView(name, series) {
  const [wide, high, left, right, top, bottom] = [420, 220, 36, 12, 10, 34];
  const depth = Math.max(...series.map((one) => one.layers.length));
  const values = series.flatMap((one) => one.layers).filter((value) => value !== null);
  const most = Math.max(...values, 1e-9) * 1.05;
  const least = Math.min(0, ...values);
  const x = (i) => left + (depth > 1 ? (i / (depth - 1)) : 0.5) * (wide - left - right);
  const y = (value) => top + (1 - (value - least) / (most - least)) * (high - top - bottom);
  const picture = draw("svg", { class: "chart", viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": name });
  for (let i = 0; i <= 4; i++) {
    const value = least + ((most - least) * i) / 4;
    picture.append(draw("path", { class: i ? "grid" : "axis", d: `M ${left} ${y(value)} H ${wide - right}` }));
    picture.append(draw("text", { x: left - 5, y: y(value) + 4, "text-anchor": "end" }, value.toFixed(2)));
  }
  const every = Math.ceil(depth / 12);
  for (let i = 0; i < depth; i += every) picture.append(draw("text", { x: x(i), y: high - 18, "text-anchor": "middle" }, i + 1));
  picture.append(draw("text", { x: (left + wide - right) / 2, y: high - 4, "text-anchor": "middle" }, "layer"));
  series.forEach((one, number) => {
    const line = `s${number % SERIES} dash${Math.floor(number / SERIES)}`;
    const points = one.layers.map((value, i) => `${i ? "L" : "M"} ${x(i).toFixed(1)} ${y(value || 0).toFixed(1)}`).join(" ");
    picture.append(draw("path", { class: `curve ${line}`, d: points }));
    one.layers.forEach((value, i) => picture.append(draw(
      "circle", { class: `point s${number % SERIES}`, cx: x(i), cy: y(value || 0), r: 3.2 },
      draw("title", {}, `${one.method}, layer ${i + 1}: ${numberText(value || 0)}`),
    )));
  });
  return picture;
}

function legendOf(names) {
  return make("ul", { class: "legend" }, ...names.map((name, number) => make(
    "li", {}, draw("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" }, draw("path", {
      class: `s${number % SERIES} dash${Math.floor(number / SERIES)}`, d: "M 0 5 H 26", "stroke-width": 3,
    })), name,
  )));
}

/** A table of coloured cells, its rows and columns with the same names. */
function heatOf(name, names, lines, caption) {
  const head = make("tr", {}, make("td", {}), ...names.map((one) => make("th", { scope: "col" }, word(one))));
  const body = lines.map((cells, i) => make("tr", {}, make("th", { scope: "row" }, word(names[i])), ...cells));
  return scrolled(name, make(
    "table", { class: "heat" }, caption ? make("caption", {}, caption) : null,
    make("thead", {}, head), make("tbody", {}, ...body),
  ));
}

const ORDERS = {
  row: ["in the order of the data", (one) => one.row],
  unsure: ["least certain first", (one) => one.probability ?? 2],
  sure: ["most certain first", (one) => -(one.probability ?? -1)],
  apart: ["methods disagree most first", (one) => one.agreement ?? 2],
  long: ["longest first", (one) => -one.tokens.length - one.leftOut],
  gap: ["largest gap first", (one) => -(one.gap ?? -1)],
};

function startRun(data, root) {
  const run = data.run;
  const look = { palette: data.palette, theme: themeOf };
  const painted = []; // what is coloured anew when light and dark change: [element, share] of the fixed parts
  let shownPaint = []; // and of the examples
  let redraws = []; // and maps that are open
  const colour = (element, share, list) => {
    paint(element, share, look);
    list.push([element, share]);
    return element;
  };
  const card = (name, ...children) => make("section", { class: "card", "aria-label": name }, make("h2", {}, name), ...children);
  const hint = (text) => make("p", { class: "hint" }, text);

  // - counts over all rows

  function tile(name, big, small) {
    const more = small ? make("dd", { class: "small" }, small) : null;
    return make("div", { class: "card tile" }, make("dt", {}, name), make("dd", { class: "big" }, big), more);
  }

  function tiles() {
    const all = run.rows + run.errors;
    const parts = [
      tile("rows explained", counted(run.rows), run.finished ? "the run is finished" : "the run is not finished"),
      tile("rows not explained", counted(run.errors), all ? `${percent(run.errors / all)} of ${counted(all)}` : null),
    ];
    if (run.labels) {
      const { correct, rows, column } = run.labels;
      parts.push(tile("accuracy", percent(correct / rows), `${counted(correct)} of ${counted(rows)} rows, against ${column}`));
    }
    if (run.rows) {
      parts.push(tile("tokens a row", run.lengths.mean.toFixed(1), `at most ${counted(run.lengths.largest)}`));
      parts.push(tile("time a row", timeText(run.seconds.mean), `${timeText(run.seconds.total)} in all`));
    }
    if (run.gap.rows) parts.push(tile("largest gap", numberText(run.gap.largest), `mean ${numberText(run.gap.mean)}`));
    return make("dl", { class: "tiles" }, ...parts);
  }

  function notices() {
    const again = "Give the run's command again: it goes on.";
    const lines = [];
    if (!run.rows && !run.errors) lines.push(`No row has been worked on yet. ${again}`);
    else if (!run.rows) lines.push("No row could be explained. The reasons are below.");
    else if (!run.finished) lines.push(`The run is not finished: these are the rows that are done so far. ${again}`);
    lines.push(...run.notes);
    if (run.noLabels) lines.push(run.noLabels);
    return lines.length ? make("div", { class: "card notice", role: "note" }, ...lines.map((line) => make("p", {}, line))) : null;
  }

  function predictions() {
    const most = run.classes[0].rows;
    const lineOf = (name, rows, mean) => [
      name, counted(rows), percent(rows / run.rows), mean === null ? "–" : percent(mean), barOf(rows / most),
    ];
    const lines = run.classes.map((one) => lineOf(word(one.name), one.rows, one.mean));
    const { classes, rows } = run.otherClasses;
    if (rows) lines.push(lineOf(`${counted(classes)} others`, rows, null));
    return card("Predictions", tableOf(null, ["predicted", "rows", "share", "mean probability", null], lines));
  }

  function certainty() {
    const edge = (value) => String(Number(value.toFixed(2)));
    if (!run.probability.counts.some(Boolean)) return null;
    const each = run.classes.slice(0, 6).filter((one) => one.counts.some(Boolean)).map((one) => make(
      "div", {}, make("h3", {}, word(one.name)),
      histogram(`Probability of rows predicted ${one.name}`, one, { edge, wide: 170, high: 84 }),
      one.counted < one.rows ? hint(`of the last ${counted(one.counted)} rows`) : null,
    ));
    return card(
      "How certain", hint("The probability of what was predicted, in all rows, then by class."),
      histogram("Probability of the prediction, all rows", run.probability, { edge }),
      make("div", { class: "multiples small" }, ...each),
      folded("Every number", () => binsTable("Probability, all rows", run.probability, edge)),
    );
  }

  function against() {
    const { labels } = run;
    if (!labels) return null;
    const right = `${counted(labels.correct)} of ${counted(labels.rows)} rows are predicted as ${labels.column} says`;
    const told = [`${right}: ${percent(labels.correct / labels.rows, 2)}.`];
    if (labels.unknown) told.push(`${counted(labels.unknown)} rows have a label that is no class of the model.`);
    if (labels.without) told.push(`${counted(labels.without)} rows have no label.`);
    const parts = [make("p", {}, told.join(" "))];
    if (labels.names.length) {
      const lines = labels.table.map((row, i) => {
        const all = row.reduce((sum, count) => sum + count, 0);
        return row.map((count, j) => {
          const share = all ? count / all : 0;
          const cell = make("td", { "data-value": count }, counted(count), make("small", {}, all ? percent(share, 0) : "–"));
          return colour(cell, i === j ? share : -share, painted);
        });
      });
      const caption = "Rows: the label. Columns: the prediction. Blue is right, orange wrong.";
      parts.push(heatOf("Labels and predictions", labels.names, lines, caption));
      if (!labels.all) parts.push(hint("The most frequent classes only."));
    }
    return card("Against the labels", ...parts);
  }

  function topTokens() {
    const some = run.classes.filter((one) => one.top.some((tokens) => tokens.length));
    if (!some.length) return null;
    const listOf = (tokens, caption) => {
      const most = Math.max(...tokens.map(([, share]) => Math.abs(share)), 1e-30);
      const lines = tokens.map(([token, share, times]) => [word(token), percent(share), counted(times), barOf(share / most, share < 0)]);
      return tableOf(caption, ["word", "mean share", "times", null], lines);
    };
    const ofMethod = (one, method, number) => {
      const ways = one.signed[number];
      const some = ways ? Object.entries(ways).filter(([, tokens]) => tokens.length) : [[null, one.top[number]]];
      const tables = some.filter(([, tokens]) => tokens.length).map(([way, tokens]) => listOf(tokens, way));
      return make("div", { class: "top" }, make("h3", {}, method), ...(tables.length ? tables : [hint("No word has a score.")]));
    };
    const sections = some.map((one, place) => folded(`predicted ${one.name}: ${counted(one.rows)} rows`, () => make(
      "div", {},
      one.counted < one.rows ? hint(`Counted in the last ${counted(one.counted)} of its rows: the class was rare before.`) : null,
      make("div", { class: "multiples" }, ...run.methods.map((method, number) => ofMethod(one, method, number))),
    ), { open: place < 2 }));
    const about = "By their mean share of a row's absolute scores, without what the tokenizer adds; of words seen three times "
      + "at least, where there are such (tokens, where words are not known). A method with scores below 0 has two lists, by the mean "
      + "of the share with its sign: towards what was explained (blue), and against it (orange).";
    const made = card("Top words", hint(about), ...sections);
    made.classList.add("wide");
    return made;
  }

  function agreement() {
    if (run.methods.length < 2) return null;
    const { mean, rows } = run.agreement;
    const counts = new Set(run.methods.flatMap((_, i) => rows[i].filter((_, j) => i !== j)));
    const alike = counts.size === 1; // said once, then
    const lines = run.methods.map((_, i) => run.methods.map((_, j) => {
      const value = mean[i][j];
      if (i === j || value === null) return make("td", { class: "none" }, "–");
      const more = alike ? null : make("small", {}, `${counted(rows[i][j])} rows`);
      return colour(make("td", { "data-value": value }, value.toFixed(2), more), value, painted);
    }));
    const of = alike ? `${counted([...counts][0])} rows` : "rows";
    const made = card(
      "Agreement of methods",
      hint(`Spearman's rank correlation of two methods' scores over the tokens of a row; the mean of ${of}.`),
      heatOf("Agreement of methods", run.methods, lines, null),
    );
    made.classList.toggle("wide", run.methods.length > 4);
    return made;
  }

  function ratios() {
    if (!run.ratios.length) return null;
    const names = run.ratios.map((one) => one.method);
    const depth = Math.max(...run.ratios.map((one) => one.layers.length));
    const lines = Array.from({ length: depth }, (_, i) => [String(i + 1), ...run.ratios.map((one) => one.layers[i] ?? "–")]);
    return card(
      "Mixing ratio", hint("How much of a token's vector comes from other tokens, layer by layer; the mean of rows."),
      curvesView("Mixing ratio by layer", run.ratios), legendOf(names),
      folded("Every number", () => scrolled("Mixing ratio by layer", tableOf(null, ["layer", ...names], lines))),
    );
  }

  function gaps() {
    if (!run.gap.rows) return null;
    const edge = (value) => value.toExponential(0);
    const zero = run.gap.zero ? ` ${counted(run.gap.zero)} rows have none at all.` : String();
    const what = "The layers rebuilt from their parts, against what the model wrote: the largest in a row's batch.";
    return card(
      "Reconstruction gaps", hint(what + zero),
      run.gap.counts.some(Boolean) ? histogram("Reconstruction gaps", run.gap, { edge }) : null,
      tableOf("The largest", ["row", "gap"], run.gap.worst.map((one) => [String(one.row), one.gap])),
      folded("Every number", () => binsTable("Gaps", run.gap, edge)),
    );
  }

  function lengths() {
    const edge = (value) => String(value);
    return card(
      "Lengths", hint("Tokens of a row."), histogram("Tokens of a row", run.lengths, { edge }),
      folded("Every number", () => binsTable("Tokens", run.lengths, edge)),
    );
  }

  function times() {
    const slow = (rows, time) => tableOf("Slow rows", ["row", "id", "tokens", "time"], rows.map((one) => [
      String(one.row), word(one.id), one.tokens, time(one.seconds),
    ]));
    return card(
      "Seconds", hint("A row's share of its batch, and its own time."),
      histogram("Seconds of a row", run.seconds, { edge: timeText }), slow(run.slow.slice(0, 5), timeText),
      folded("Every number", () => make("div", {}, binsTable("Seconds", run.seconds, timeText), slow(run.slow, numberText))),
    );
  }

  function reasons() {
    if (!run.errors) return null;
    const lines = run.reasons.map(([reason, count]) => [make("span", { class: "reason" }, reason), counted(count)]);
    return card(
      "Rows that could not be explained", hint("By reason, numbers written as N. errors.jsonl names every row."),
      tableOf(null, ["reason", "rows"], lines),
    );
  }

  // - examples

  const usual = run.methods.length > 3 ? "0" : "all";
  const state = { text: String(), predicted: String(), why: String(), order: "row", method: usual, most: AT_ONCE };
  const sheets = new Map();
  const scoresOf = (one) => {
    if (!sheets.has(one)) sheets.set(one, one.scores ? Sheet.of(one.scores) : Promise.resolve(null));
    return sheets.get(one);
  };
  const list = make("div", { class: "examples" });
  const said = make("p", { role: "status", class: "said" });
  const more = make("button", { type: "button", class: "more", onclick: () => {
    state.most += AT_ONCE;
    showExamples();
  } }, "Show more");
  let turn = 0; // a list that was overtaken by a later choice is not drawn

  function wanted() {
    const text = state.text.trim().toLowerCase();
    const holds = (one) => [one.text, one.pair, one.id, ...one.carried.map(([, value]) => value)]
      .some((value) => value && value.toLowerCase().includes(text));
    const key = ORDERS[state.order][1];
    return run.examples
      .filter((one) => !state.predicted || one.prediction === state.predicted)
      .filter((one) => !state.why || one.why.includes(state.why))
      .filter((one) => !text || holds(one))
      .sort((a, b) => key(a) - key(b) || a.row - b.row);
  }

  function stripOf(one, name, scores) {
    const special = new Set(one.special);
    const shares = sharesOf(scores);
    const tokens = one.tokens.map((token, i) => {
      const kinds = ["token", special.has(i) ? "special" : null, i === one.query ? "query" : null].filter(Boolean).join(" ");
      const told = { class: kinds, title: `${token}: ${numberText(scores[i])}`, "data-value": scores[i] };
      return colour(make("span", told, word(token)), shares[i], shownPaint);
    });
    const long = tokens.length > 150;
    const told = { role: "group", "aria-label": `Row ${one.row} by ${name}`, tabindex: long ? 0 : null };
    return make("div", { class: long ? "strip long" : "strip", ...told }, ...tokens);
  }

  function headOf(one) {
    const parts = [make("h3", {}, `Row ${one.row}`)];
    if (one.id !== String(one.row)) parts.push(make("span", {}, "id ", word(one.id)));
    const sure = one.probability === null ? String() : `, ${percent(one.probability)}`;
    parts.push(make("span", {}, "predicted ", word(one.prediction), sure));
    if (one.correct !== null) {
      const verdict = one.correct ? " ✓ right" : " ✗ wrong";
      parts.push(make("span", { class: one.correct ? "right" : "wrong" }, "label ", word(one.label), verdict));
    }
    if (one.target !== null) parts.push(make("span", {}, "explains ", word(one.target)));
    if (one.agreement !== null) parts.push(make("span", {}, `agreement ${one.agreement.toFixed(2)}`));
    parts.push(...one.why.map((why) => make("span", { class: "chip" }, why)));
    return make("div", { class: "head-line" }, ...parts);
  }

  function numbersOf(one, sheet) {
    const rows = one.methods.map((_, number) => sheet.row(number));
    const facts = [...one.carried, ...(one.gap === null ? [] : [["gap", numberText(one.gap)]]), ["time", timeText(one.seconds)]];
    const lines = one.tokens.map((token, i) => [String(i), word(token), ...rows.map((row) => row[i])]);
    const table = tableOf(null, ["position", "token", ...one.methods], lines);
    return make("div", {}, pairs(facts), scrolled(`Every number of row ${one.row}`, table));
  }

  function mapsOf(one) {
    const units = unitsOf({ tokens: one.tokens, words: null }, false);
    const view = mapView(units.labels, { choose: null, room: 520 });
    let [number, layer] = [0, -1];
    const method = selectField("Map", one.maps.map((made, i) => [i, made.method]), (value) => {
      number = Number(value);
      update();
    });
    const id = freshId("layer");
    const text = make("output", { for: id });
    const slider = make("input", { type: "range", id, min: 1, step: 1, oninput: () => {
      layer = Number(slider.value) - 1;
      update();
    } });
    const field = make("div", { class: "field layer" }, make("label", { for: id }, "Layer "), text, slider);

    async function update() {
      const made = one.maps[number];
      const at = layer < 0 ? made.depth - 1 : Math.min(layer, made.depth - 1);
      slider.max = made.depth;
      slider.value = at + 1;
      slider.setAttribute("aria-valuetext", `layer ${at + 1} of ${made.depth}`);
      text.value = `${at + 1} of ${made.depth}`;
      made.sheet ||= Sheet.of(made.block);
      const sheet = await made.sheet;
      view.update(matrixOf(sheet, at, units), one.query, `${made.method} of row ${one.row}, layer ${at + 1}`);
    }
    redraws.push(update);
    update();
    return make(
      "div", { class: "maps" }, make("div", { class: "controls" }, method.element, field),
      hint("Rows took, columns gave, in this layer alone. Colours: the share of the row's largest number."), view.element,
    );
  }

  async function exampleView(one) {
    const sheet = await scoresOf(one);
    const shown = one.methods.filter((name) => state.method === "all" || name === run.methods[Number(state.method)]);
    const by = make("div", { class: shown.length > 1 ? "by" : "by one" });
    for (const name of shown) {
      by.append(make("div", { class: "name" }, name), stripOf(one, name, sheet.row(one.methods.indexOf(name))));
    }
    return make(
      "article", { class: "card example", "aria-label": `Row ${one.row}`, "data-row": one.row }, headOf(one), by,
      one.leftOut ? hint(`${counted(one.leftOut)} more tokens are not shown.`) : null,
      sheet ? folded("Every number", () => numbersOf(one, sheet)) : null,
      one.maps ? folded("Layer maps", () => mapsOf(one)) : null,
    );
  }

  async function showExamples() {
    turn += 1;
    const mine = turn;
    const found = wanted();
    const some = found.slice(0, state.most);
    shownPaint = [];
    redraws = [];
    try {
      const made = await Promise.all(some.map(exampleView));
      if (mine !== turn) return;
      list.replaceChildren(...made);
      const part = some.length < found.length ? `, ${some.length} shown` : String();
      said.replaceChildren(`${found.length} of ${run.examples.length} examples${part}.`);
    } catch (error) {
      said.replaceChildren(`The numbers of this page cannot be read: ${error.message}`);
    }
    more.hidden = some.length >= found.length;
    document.documentElement.dataset.ready = String(turn); // for whoever drives the page
  }

  function choose(name) {
    return (value) => {
      state[name] = value;
      state.most = AT_ONCE;
      showExamples();
    };
  }

  function examples() {
    const id = freshId("search");
    const search = make("input", { id, oninput: () => choose("text")(search.value) });
    const there = [...new Set(run.examples.map((one) => one.prediction))].sort();
    const any = String();
    const method = selectField("Method", [["all", "all methods"], ...run.methods.map((name, i) => [i, name])], choose("method"));
    method.select.value = state.method;
    method.element.hidden = run.methods.length < 2;
    const fields = [
      make("div", { class: "field" }, make("label", { for: id }, "Search"), search),
      selectField("Predicted", [[any, "any class"], ...there.map((name) => [name, name])], choose("predicted")).element,
      selectField("Chosen as", [[any, "any"], ...run.chosenAs.map((why) => [why, why])], choose("why")).element,
      selectField("Order", Object.entries(ORDERS).map(([name, [text]]) => [name, text]), choose("order")).element,
      method.element,
    ];
    const about = "Some rows: evenly spaced over the corpus, and those where methods disagree most, the model is least certain, "
      + "or wrong. Blue counts towards, orange against; the framed token is the one that was read out.";
    return make(
      "section", { id: "examples", "aria-label": "Examples" }, make("h2", {}, "Examples"), hint(about),
      run.held ? hint(run.held) : null,
      make("div", { class: "controls examples-controls" }, ...fields), said, list, make("p", {}, more),
    );
  }

  // - all of it

  themeSwitch(() => {
    for (const [element, share] of [...painted, ...shownPaint]) paint(element, share, look);
    redraws.forEach((update) => update());
  });
  if (!canUnpack(root)) return;
  const from = "Where these numbers come from";
  const foot = make("section", { class: "foot", id: "about", "aria-label": from }, make("h2", {}, from), pairs(run.about));
  const about = [predictions, against, certainty, lengths, topTokens, agreement, ratios, gaps, times];
  const cards = [...(run.rows ? about : []), reasons].map((made) => made()).filter(Boolean);
  const links = [["#about", from]];
  if (run.examples.length) links.unshift(["#examples", "Examples"]);
  root.append(
    make("nav", { class: "links", "aria-label": "On this page" }, ...links.map(([href, text]) => make("a", { href }, text))),
    ...[notices()].filter(Boolean), tiles(), make("div", { class: "cards" }, ...cards),
    ...(run.examples.length ? [examples()] : []), foot,
  );
  if (run.examples.length) showExamples();
  else document.documentElement.dataset.ready = "1";
}
