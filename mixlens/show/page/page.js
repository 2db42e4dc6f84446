"use strict";
// The report: the answer to a text first, then the explorer: maps and scores of every method, layer by layer.

const COLUMNS = { most: 24, few: 14, room: 800 }; // words of the table of methods; the pixels that they may take
const PRESETS = { why: "Why this answer", flow: "What flows where", methods: "Compare methods" };

function startPage(data, root) {
  const hero = root.querySelector(".hero");
  const given = hero.querySelector("h1").textContent; // the title that was asked for
  const told = hero.querySelector(".about").textContent;
  const answered = make("div", { class: "answered" });
  const list = make("div", { class: "texts" });
  const place = make("div", { class: "explored" });
  const folds = make("section", { class: "folds", "aria-label": "Where these numbers come from" });
  const status = make("p", { role: "status", class: "said" });
  const body = make("div", { class: "body", hidden: true }, list, answered, place, folds);
  root.append(body);
  const explorer = explorerOf(data, status);
  let entry = 0;
  let say = () => {};

  function chooseEntry(number) {
    entry = number;
    const here = data.entries[number];
    const { why } = here;
    const head = why ? whyHead(why) : { parts: headWithout(here), say: () => {} };
    say = head.say;
    hero.querySelector("h1").replaceChildren(...(why && !data.title ? questionOf(why) : [data.title || here.question || given]));
    hero.querySelector(".about").replaceChildren(here.subtitle || told);
    for (const old of hero.querySelectorAll(":scope > :not(h1, .about)")) old.remove();
    hero.append(...head.parts);
    answered.replaceChildren(...(why ? whySections(why) : []));
    explorer.warn(why ? here.scoreNotices || [] : []);
    place.replaceChildren(...(here.methods.length ? [explorer.element] : []));
    folds.replaceChildren(...(why ? [whyProvenance(why, { title: here.methods.length ? "Where the answer comes from" : undefined })] : []), ...(here.methods.length ? [aboutFold(here)] : []));
    listTexts();
    body.hidden = false;
    if (here.methods.length) explorer.open(here);
    else document.documentElement.dataset.ready = "1";
  }

  /** Several texts: each with its sentence; one is chosen. */
  function listTexts() {
    list.hidden = data.entries.length < 2;
    if (list.hidden || list.dataset.count === String(data.entries.length)) {
      for (const input of list.querySelectorAll("input")) input.checked = Number(input.value) === entry;
      return;
    }
    list.dataset.count = data.entries.length;
    const name = freshId("texts");
    const rows = data.entries.map((one, i) => make(
      "label", { class: "text-row" }, make("input", { type: "radio", name, value: i, checked: i === entry, onchange: () => chooseEntry(i) }),
      make("span", {}, make("span", { class: "read" }, word(one.label)), make("span", { class: "small" }, one.why ? one.why.sentence : one.sentence || String())),
    ));
    list.replaceChildren(make("fieldset", { class: "text-list" }, make("legend", {}, `${counted(data.entries.length)} texts: choose one`), ...rows));
    root.insertBefore(list, hero);
  }

  lightWords(root, (k) => say(k));
  themeSwitch(() => { if (data.entries.length && data.entries[entry].methods.length) explorer.refresh(); });
  if (!canUnpack(root)) return null;
  if (data.entries.length) chooseEntry(0);
  return {
    /** Show one more text, first in the list. */
    add(one) {
      data.entries.unshift(one);
      chooseEntry(0);
    },
  };
}

/** What stands first where there is no answer: the text, what the model predicts, what must be known. */
function headWithout(here) {
  const texts = [here.text, here.pair].filter(Boolean).map((text, i) => make("p", { class: "text read", tabindex: 0, role: "group", "aria-label": i ? "Second text" : "Text" }, word(text)));
  const best = here.prediction.slice(0, 5).flatMap(([name, value], i) => [i ? ", " : String(), make("b", {}, word(name)), ` ${probability(value)}`]);
  const notes = (here.notices || []).length || !here.unanswered ? here.notices || [] : [`There is no answer above the maps: ${here.unanswered}`];
  return [
    make("div", { class: "panel specimen keep" }, ...texts), make("p", { class: "small prediction" }, `${here.predicts}${best.length ? ": " : String()}`, ...best),
    ...notes.map((text) => note("caution", text)),
  ];
}

function aboutFold(here) {
  const texts = [["Text", here.text], ...(here.pair ? [["Second text", here.pair]] : [])];
  return fold("Where these maps come from", "model, methods, versions, gaps, how exact the numbers are", () => [
    facts([...texts, ...here.about, ["Held here", here.holds]]),
    ...here.methods.flatMap((one) => [make("h3", { class: "about-method" }, `${one.everyday} · ${one.label}`), facts(one.about)]),
  ], { print: true });
}

// --- the explorer --------------------------------------------------------------------------------------------------------------

function explorerOf(data, status) {
  const state = { preset: null, method: 0, other: -1, layer: -1, byWord: true, sheet: "rollout", side: "took", chosen: 0, special: null };
  const sheets = new Map(); // block -> promise of its Sheet
  const sheetOf = (block) => {
    if (!sheets.has(block)) sheets.set(block, Sheet.of(block));
    return sheets.get(block);
  };
  let here = null;
  let views = [];
  let turn = 0; // a picture that was overtaken by a later choice is not drawn
  const shownMethods = () => [state.method, state.other].filter((i) => i >= 0).map((i) => here.methods[i]);

  // - controls, made once

  const choose = (part, redraw) => (value) => { Object.assign(state, { [part]: value }); redraw(); };
  const method = picked("Method", [], (value) => choose("method", rebuild)(indexOf(value)));
  const other = picked("Beside it", [], (value) => choose("other", rebuild)(indexOf(value)));
  const preset = choices("What is shown", Object.entries(PRESETS), "flow", (value) => takePreset(value));
  const unit = choices("Shown by", [["words", "words"], ["tokens", "tokens"]], "words", (value) => choose("byWord", rebuild)(value === "words"));
  const sheet = choices("Layers", [["rollout", "from the input"], ["layer", "this layer alone"]], "rollout", choose("sheet", refresh));
  const side = choices("Direction", [["took", "what it took"], ["gave", "where it went"]], "took", choose("side", refresh));
  const special = switchBox("Show special tokens", false, choose("special", refresh));
  const layerId = freshId("layer");
  const layerText = make("output", { for: layerId });
  const layer = make("input", { type: "range", id: layerId, min: 1, step: 1, oninput: () => choose("layer", refresh)(Number(layer.value) - 1) });
  const layerField = make("div", { class: "field layer" }, make("label", { for: layerId }, "Layer "), layerText, layer);
  const named = (name, one) => make("div", { class: "field" }, make("span", { class: "name", "aria-hidden": "true" }, name), one.element);
  const mapFields = [named("Layers", sheet), layerField, named("A word: what it took, or where it went", side)];
  const controls = make("div", { class: "controls no-print", role: "group", "aria-label": "What is shown" }, method.element, other.element, ...mapFields, named("Shown by", unit), special);
  const title = freshId("explorer");
  const panels = make("div", { class: "panels" });
  const lead = make("p", { class: "lead" }, "Every method on this page, layer by layer. Choose a word to see what it took, and from where.");
  const presets = make("div", { class: "presets no-print" }, preset.element);
  const warned = make("div", {});
  const beside = make("div", { class: "beside" }, controls, make("div", { class: "shown" }, status, panels));
  const element = make(
    "section", { class: "explorer", "aria-labelledby": title }, make("div", { class: "head" }, make("h2", { id: title }, "Look closer"), lead, warned), presets,
    beside,
  );

  function indexOf(label) {
    return here.methods.findIndex((one) => one.label === label);
  }

  function open(entry) {
    here = entry;
    Object.assign(state, { method: 0, other: -1, layer: -1, chosen: here.query, byWord: Boolean(here.words), special: null });
    const first = presetsOf()[0];
    takePreset(presetsOf().includes(data.preset) ? data.preset : presetsOf().includes("flow") ? "flow" : first);
  }

  /** Which presets this text has results for. */
  function presetsOf() {
    const kinds = here.methods.map((one) => one.kind);
    return Object.keys(PRESETS).filter((name) => ({ why: kinds.includes("attribution"), flow: kinds.includes("map"), methods: here.methods.length > 1 })[name]);
  }

  function takePreset(name) {
    const kind = { why: "attribution", flow: "map" }[name];
    const found = kind ? here.methods.findIndex((one) => one.kind === kind) : 0;
    Object.assign(state, { preset: name, method: Math.max(0, found), other: -1, layer: -1, sheet: "rollout" });
    rebuild();
  }

  // - built anew when the text, a method or the unit changes

  function rebuild() {
    const listed = here.methods.map((one) => [one.label, one.title]);
    if (state.other === state.method) state.other = -1;
    method.fill(listed);
    method.select.value = here.methods[state.method].label;
    other.fill([[String(), "nothing"], ...listed.filter(([label]) => label !== method.select.value)]);
    other.select.value = state.other < 0 ? String() : here.methods[state.other].label;
    const compares = state.preset === "methods";
    beside.classList.toggle("above", compares);
    method.element.hidden = compares;
    other.element.hidden = compares || here.methods.length < 2;
    unit.element.disabled = !here.words;
    unit.element.title = here.words ? String() : "The words are not known: the input was ids, or no character offsets were.";
    unit.inputs[state.byWord ? "words" : "tokens"].checked = true;
    presets.hidden = presetsOf().length < 2;
    for (const [name, input] of Object.entries(preset.inputs)) {
      input.parentElement.hidden = !presetsOf().includes(name);
      input.checked = name === state.preset;
    }
    const units = unitsOf(here, state.byWord);
    units.special = units.groups.map((places) => places.every((one) => here.special[one]));
    views = compares ? [comparison(units)] : shownMethods().map((one) => panelOf(one, units));
    panels.replaceChildren(...views.map((view) => view.element));
    panels.classList.toggle("two-methods", views.length > 1);
    refresh();
  }

  /** Special tokens: hidden in attributions, shown in maps, until the reader says. */
  function hides(one) {
    return state.special === null ? one.kind === "attribution" : !state.special;
  }

  function choosePlace(position) {
    state.chosen = position;
    refresh();
  }

  // - all methods as rows

  async function readingOf(one, units) {
    if (one.kind === "attribution") return summed((await sheetOf(one.scores)).row(0), units);
    const found = await sheetOf(one.sheets.rollout || one.sheets.layer);
    return rowOf(matrixOf(found, one.depth - 1, units), Math.max(0, units.of[state.chosen]));
  }

  /** What `methodsWide` sets: the words with the largest shares, in the order of the text; the others are added up. */
  function methodsTold(words, methods, k) {
    const all = words.map((_, i) => i).filter((i) => !words[i].special);
    const width = all.reduce((sum, i) => sum + Math.max(34, 12 + 8 * Math.min(14, words[i].text.length)), 0);
    const weight = (i) => Math.max(...methods.map((one) => Math.abs(one.shares[i])));
    const largest = [...all].sort((a, b) => weight(b) - weight(a)).slice(0, COLUMNS.few).sort((a, b) => a - b);
    const columns = all.length <= COLUMNS.most && width <= COLUMNS.room ? all : largest;
    const rest = all.filter((i) => !columns.includes(i));
    const whole = (share, signed) => (Math.abs(share) < 0.005 ? "·" : `${signed ? (share < 0 ? MINUS : "+") : String()}${(Math.abs(share) * 100).toFixed(0)}`);
    const row = (one) => {
      const most = columns.reduce((so, i) => Math.max(so, Math.abs(one.shares[i])), 1e-30);
      const cell = (i) => ({ k: i, text: whole(one.shares[i], one.signed), hue: hueOf(one.shares[i], one.signed), strength: Math.abs(one.shares[i]) < 0.005 ? 0 : one.shares[i] / most, title: `${percent(one.shares[i])} (raw score ${rawNumber(one.scores[i])})` });
      const others = rest.length ? whole(rest.reduce((sum, i) => sum + Math.abs(one.shares[i]), 0), false) : null;
      return { names: [one.everyday, one.name], signed: one.signed, cells: columns.map(cell), rest: others, same: `${one.same_first} of ${k}` };
    };
    return {
      heads: ["Method", "Word", rest.length ? `${counted(rest.length)} others` : null, k === 1 ? "Same word first" : `Same ${numberWord(k)} words first`],
      words: columns.map((i) => [i, shortened(words[i].text, 14)]), rows: [...methods].sort((a, b) => Number(b.signed) - Number(a.signed)).map(row),
      divider: "Without a sign: how much, not in which direction",
    };
  }

  function comparison(units) {
    const box = make("section", { class: "panel-part", "data-method": "all" });
    async function update(mine) {
      const scores = await Promise.all(here.methods.map((one) => readingOf(one, units)));
      if (mine !== turn) return null;
      const hidden = state.special === null ? true : !state.special;
      const rows = here.methods.map((one, i) => ({ ...one, name: one.short, ...viewOf(scores[i], { signed: one.signed, special: units.special, hidden }) }));
      const words = units.labels.map((text, i) => ({ text, special: hidden && units.special[i] }));
      const k = Math.min(3, words.filter((one) => !one.special).length);
      const top = rows.map((row) => largestOf(row.shares.map((share, i) => (words[i].special ? 0 : row.signed ? Math.max(0, share) : share)), k));
      rows.forEach((row, i) => { row.same_first = top[i].filter((place) => top[0].includes(place)).length; });
      const told = methodsTold(words, rows, k);
      const name = units.labels[Math.max(0, units.of[state.chosen])];
      box.replaceChildren(
        make("div", {}, make("h3", {}, "The same text, read by every method"), make("p", { class: "small" }, "Attributions as they are; maps from the input to the last layer, the row of ", word(name), `. The last column: how many of the ${numberWord(k)} words that ${rows[0].short} puts first.`)),
        scrollBox("Methods and words", make("div", {}, methodsWide(told), methodsNarrow(told))),
        make("div", { class: "legend" }, ...["against", "for", "share"].map((hue) => make("span", { class: "key" }, make("span", { class: `swatch ${hue}` }), { against: `${MINUS} against`, for: "+ for", share: "no sign" }[hue])),
          make("span", {}, "Percent of the row; the strongest colour is the row’s largest. · is under 0.5.")),
      );
      return `${rows.length} methods as rows`;
    }
    return { element: box, update };
  }

  // - one method's panel

  function panelOf(one, units) {
    const isMap = one.kind === "map";
    const heading = make("h3", {});
    const line = make("p", { class: "readout" }, "\u00a0");
    const current = { view: null };
    const tell = (i) => {
      if (i === null) line.replaceChildren("\u00a0");
      else line.replaceChildren("“", word(units.labels[i]), `” (${i}): ${current.view.signed ? signedPercent(current.view.shares[i]) : percent(current.view.shares[i])} (raw ${rawNumber(current.view.scores[i])})`);
    };
    const strip = stripView(units.labels, { name: `Tokens of the text, by ${one.label}`, choose: (i) => choosePlace(units.groups[i][0]), point: tell });
    const below = make("div", {});
    const largest = make("div", {});
    const all = make("details", { class: "aside", ontoggle: () => listAll() }, make("summary", {}, "Every number of this row"));
    const allBody = make("div", { class: "scroll tall", tabindex: 0, role: "group", "aria-label": "Every number of this row" });
    all.append(allBody);
    const row = make("div", { class: "row-part" }, heading, strip.element, below, line, largest, all);
    const parts = [make("p", { class: "small method-line" }, make("b", {}, one.everyday), ` · ${one.line}`), row];
    let map = null;
    const flowBox = make("div", { class: "flow-part" });
    if (isMap) {
      const room = Math.max(260, Math.min(560, (panels.clientWidth || 800) - (state.other >= 0 ? 420 : 40)));
      map = mapView(units.labels, { choose: (i) => choosePlace(units.groups[i][0]), room });
      parts.push(make("div", { class: "map-part" }, make("h3", {}, "The whole layer"), make("p", { class: "small" }, "Rows took, columns gave. The framed row is the chosen one."), map.element), flowBox);
    }
    const element = make("section", { class: "panel-part", "aria-label": one.title, "data-method": one.label }, ...parts);

    function listAll() {
      if (!all.open || !current.view) return;
      allBody.replaceChildren(barsView("In the order of the text", units.labels, current.view, { places: units.labels.map((_, i) => i) }));
    }

    function finish(chosen, caption, key) {
      strip.update({ ...current.view, unit: chosen });
      below.replaceChildren(legend(key));
      largest.replaceChildren(barsView(caption, units.labels, current.view));
      listAll();
    }

    function mostOf(view) {
      return view.shares.reduce((so, share, i) => (view.hidden && view.special[i] ? so : Math.max(so, Math.abs(share))), 0);
    }

    async function updateScores(mine, chosen) {
      const found = await sheetOf(one.scores);
      if (mine !== turn) return null;
      current.view = viewOf(summed(found.row(0), units), { signed: one.signed, special: units.special, hidden: hides(one) });
      const view = current.view;
      heading.replaceChildren(one.explains);
      finish(chosen, "Largest shares", {
        signed: one.signed, sides: ["against", one.signed ? "for" : "share"], most: mostOf(view),
        unit: `Unit: share of all scores${view.hidden ? ", special tokens left out" : String()}.${one.signed ? String() : " No sign: how much, not which way."}`,
      });
      const best = largestOf(view.shares.map((share, i) => (view.hidden && view.special[i] ? 0 : share)), 3);
      return `${one.short}: ${best.map((i) => `${shortened(units.labels[i], 30)} ${one.signed ? signedPercent(view.shares[i]) : percent(view.shares[i])}`).join(", ")}`;
    }

    async function update(mine) {
      const chosen = Math.max(0, units.of[state.chosen]);
      if (!isMap) return updateScores(mine, chosen);
      const name = units.labels[chosen];
      const which = one.sheets[state.sheet] ? state.sheet : Object.keys(one.sheets)[0];
      const number = Math.min(state.layer < 0 ? one.depth - 1 : state.layer, one.depth - 1);
      const found = await sheetOf(one.sheets[which]);
      if (mine !== turn) return null;
      const matrix = matrixOf(found, number, units);
      const took = state.side === "took";
      const special = { signed: matrix.signed, special: units.special, hidden: hides(one) };
      const scores = took ? rowOf(matrix, chosen) : columnOf(matrix, chosen);
      current.view = took
        ? viewOf(scores, { ...special, total: matrix.totals[chosen], rest: matrix.rest[chosen] })
        : { ...viewOf(scores, special), shares: Array.from(scores, (score, i) => score / matrix.totals[i]) };
      const where = which === "rollout" ? `from the input, up to layer ${number + 1}` : `in layer ${number + 1}`;
      heading.replaceChildren(took ? "What “" : "Where “", word(name), took ? `” took ${where}` : `” went ${where}`);
      map.update(matrix, chosen, `${one.title}: what each position took from each token, ${where}`);
      const unitText = took ? "Unit: share of what this position took; a row makes 100" : "Unit: share of what each position took; every position’s own row makes 100";
      finish(chosen, took ? "Most taken from" : "Most given to", { signed: matrix.signed, sides: ["against", matrix.signed ? "for" : "share"], most: mostOf(current.view), unit: `${unitText}${THIN}%.` });
      await drawFlow(mine, chosen, number);
      const best = largestOf(current.view.shares, 3).map((i) => `${shortened(units.labels[i], 30)} ${percent(current.view.shares[i])}`).join(", ");
      return `${one.short}, ${where}: ${name} ${took ? "took most from" : "went mostly to"} ${best}`;
    }

    async function drawFlow(mine, chosen, number) {
      const name = units.labels[chosen];
      const head = make("h3", {}, "Where “", word(name), "” came from, layer by layer");
      if (!one.sheets.layer) {
        flowBox.replaceChildren(head, make("p", { class: "small" }, one.noFlow));
        return;
      }
      const found = await sheetOf(one.sheets.layer);
      if (mine !== turn) return;
      const rolled = one.sheets.rollout ? await sheetOf(one.sheets.rollout) : null;
      if (mine !== turn) return;
      const flow = flowOf(found, one.convention, units, chosen, number, { rolled, causal: Boolean(here.causal) });
      const { picture, paths, outside } = flowView(flow, units, chosen, name, flowBox.clientWidth || 900);
      const about = found.coding === "float32" ? String()
        : " This page does not hold every number: between layers, what a row does not hold is spread evenly over the other tokens; at the input the numbers are those of the rollout.";
      const left = outside > 0.005 ? ` Tokens not drawn hold ${percent(outside)} of what is at the input.` : String();
      flowBox.replaceChildren(
        head, make("p", { class: "small" }, `From the input below up to layer ${number + 1}; a line is as wide as its share of what its layer carries.${left}${about}`),
        scrollBox("Flow through the layers", picture), make("h4", {}, "Strongest single paths, input first"), paths,
      );
    }
    return { element, update };
  }

  // - new numbers in the same panels

  async function refresh() {
    turn += 1;
    const mine = turn;
    const compares = state.preset === "methods";
    const maps = compares ? [] : shownMethods().filter((one) => one.kind === "map");
    const depth = Math.max(...maps.map((one) => one.depth), 1);
    for (const field of mapFields) field.hidden = !maps.length;
    layer.max = depth;
    const number = state.layer < 0 ? depth - 1 : Math.min(state.layer, depth - 1);
    layer.value = number + 1;
    layer.disabled = depth < 2;
    layer.setAttribute("aria-valuetext", `layer ${number + 1} of ${depth}`);
    layerText.value = `${number + 1} of ${depth}`;
    const both = maps.some((one) => one.sheets.layer && one.sheets.rollout);
    const held = maps.some((one) => one.sheets.rollout) ? "rollout" : "layer";
    sheet.element.disabled = !both;
    sheet.inputs[both ? state.sheet : held].checked = true;
    side.inputs[state.side].checked = true;
    special.hidden = !here.special.some(Boolean);
    special.querySelector("input").checked = compares ? state.special === true : !hides(shownMethods()[0]);
    try {
      const lines = await Promise.all(views.map((view) => view.update(mine)));
      if (mine === turn) status.replaceChildren(lines.filter(Boolean).join(". "));
    } catch (error) {
      status.replaceChildren(`The numbers of this page cannot be read: ${error.message}`);
    }
    if (mine === turn) document.documentElement.dataset.ready = String(turn); // for whoever drives the page
  }
  const warn = (texts) => warned.replaceChildren(...texts.map((text) => note("caution", text)));
  return { element, open, refresh, warn };
}
