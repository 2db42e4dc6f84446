"use strict";
// The page: choose a text, methods, a layer and a token; everything shown follows from these choices.

function startPage(data, root) {
  const look = { palette: data.palette, theme: themeOf };
  const state = { entry: 0, method: 0, other: -1, layer: -1, byWord: false, sheet: "rollout", side: "took", chosen: 0 };
  const sheets = new Map(); // block -> promise of its Sheet
  const sheetOf = (block) => {
    if (!sheets.has(block)) sheets.set(block, Sheet.of(block));
    return sheets.get(block);
  };
  const entry = () => data.entries[state.entry];
  const shownMethods = () => [state.method, state.other].filter((i) => i >= 0).map((i) => entry().methods[i]);

  // - controls, made once

  const texts = selectField("Text", [], (value) => chooseEntry(Number(value)));
  const method = selectField("Method", [], (value) => { state.method = Number(value); rebuild(); });
  const other = selectField("Beside it", [], (value) => { state.other = Number(value); rebuild(); });
  const unit = radioField("Shown by", [["tokens", "tokens"], ["words", "words"]], (value) => {
    state.byWord = value === "words";
    rebuild();
  });
  const sheet = radioField("Layers", [["rollout", "from the input"], ["layer", "this layer alone"]], (value) => {
    state.sheet = value;
    refresh();
  });
  const side = radioField("Token", [["took", "what it took"], ["gave", "where it went"]], (value) => {
    state.side = value;
    refresh();
  });
  const layerId = freshId("layer");
  const layerText = make("output", { for: layerId });
  const layer = make("input", { type: "range", id: layerId, min: 1, step: 1, oninput: () => {
    state.layer = Number(layer.value) - 1;
    refresh();
  } });
  const layerField = make("div", { class: "field layer" }, make("label", { for: layerId }, "Layer "), layerText, layer);
  const controls = make(
    "section", { class: "controls", "aria-label": "What is shown" },
    texts.element, method.element, other.element, layerField, sheet.element, unit.element, side.element,
  );
  const summary = make("section", { class: "summary" });
  const panels = make("div", { class: "panels" });
  const foot = make("section", { class: "foot", "aria-label": "Where these numbers come from" });
  const said = make("p", { role: "status", class: "said" });
  const body = make("div", { class: "body", hidden: true }, controls, summary, said, panels, foot);
  root.append(body);
  let views = [];
  let turn = 0; // a picture that was overtaken by a later choice is not drawn

  function chooseEntry(number) {
    state.entry = number;
    const here = entry();
    state.method = 0;
    state.other = -1;
    state.layer = -1;
    state.chosen = here.query;
    state.byWord = state.byWord && Boolean(here.words);
    rebuild();
  }

  function choose(position) {
    state.chosen = position;
    refresh();
  }

  // - built anew when the text, a method or the unit changes

  function rebuild() {
    const here = entry();
    const methods = here.methods.map((one, i) => [i, one.label]);
    texts.fill(data.entries.map((one, i) => [i, one.label]));
    texts.select.value = state.entry;
    texts.element.hidden = data.entries.length < 2;
    method.fill(methods);
    method.select.value = state.method;
    if (state.other === state.method) state.other = -1;
    other.fill([[-1, "nothing"], ...methods.filter(([i]) => i !== state.method)]);
    other.select.value = state.other;
    other.element.hidden = methods.length < 2;
    unit.element.disabled = !here.words;
    unit.element.title = here.words ? String() : "The words are not known: the input was ids, or no character offsets were.";
    unit.inputs[state.byWord ? "words" : "tokens"].checked = true;
    summary.replaceChildren(...summaryOf(here));
    foot.replaceChildren(...footOf(here));
    const units = unitsOf(here, state.byWord);
    views = shownMethods().map((one) => panelOf(here, one, units));
    panels.replaceChildren(...views.map((view) => view.element));
    panels.classList.toggle("two", views.length > 1);
    body.hidden = false;
    refresh();
  }

  function summaryOf(here) {
    const full = [here.text, here.pair].filter(Boolean).map((text, i) => make(
      "p", { class: "text", tabindex: 0, role: "group", "aria-label": i ? "Second text" : "Text" }, word(text),
    ));
    const notes = (here.notices || []).map((note) => make("p", { class: "note" }, note));
    const told = notes.length ? [make("div", { class: "card notice", role: "note" }, ...notes)] : [];
    const parts = [...told, make("div", { class: "card" }, make("h2", {}, "Text"), ...full)];
    const card = make("div", { class: "card prediction" }, make("h2", {}, "Prediction"));
    if (here.prediction.length) {
      const rows = here.prediction.map(([name, probability]) => {
        const bar = make("div", { class: "bar" });
        bar.style.width = `${probability * 100}%`;
        return make(
          "tr", {}, make("th", { scope: "row" }, word(name)),
          make("td", { class: "number" }, `${(probability * 100).toFixed(1)}%`), make("td", { class: "bars" }, bar),
        );
      });
      const heads = ["output", "probability"].map((head) => make("th", { scope: "col" }, head));
      card.append(make(
        "table", {}, make("caption", {}, here.predicts),
        make("thead", {}, make("tr", {}, ...heads, make("td", {}))), make("tbody", {}, ...rows),
      ));
    } else {
      card.append(make("p", {}, here.predicts));
    }
    return [...parts, card];
  }

  function footOf(here) {
    return [
      make("h2", {}, "Where these numbers come from"),
      pairs([["Text", here.text], ...(here.pair ? [["Second text", here.pair]] : []), ...here.about, ["Held here", here.holds]]),
      ...shownMethods().flatMap((one) => [make("h3", {}, one.label), pairs(one.about)]),
    ];
  }

  // - one method's panel

  function panelOf(here, one, units) {
    const isMap = one.kind === "map";
    const title = make("h2", {}, one.label);
    const line = make("p", { class: "line" }, one.line);
    const heading = make("h3", {});
    const readout = make("p", { class: "readout" }, "\u00a0");
    const strip = stripView(units.labels, {
      name: `Tokens of the text, by ${one.label}`,
      choose: (i) => choose(units.groups[i][0]),
      point: (i) => {
        if (i === null) readout.replaceChildren("\u00a0");
        else readout.replaceChildren(word(units.labels[i]), ` (${i}): ${numberText(current.scores[i])}`);
      },
    });
    const largest = make("div", {});
    const all = make("details", { ontoggle: () => listAll() }, make("summary", {}, "Every number of this row"));
    const allBody = make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Every number of this row" });
    all.append(allBody);
    const row = make("div", {}, heading, strip.element, readout, largest, all);
    const parts = [title, line, row];
    const current = { scores: new Float64Array(units.size), rest: 0 };
    let map = null;
    const flowBox = make("div", {});
    if (isMap) {
      map = mapView(units.labels, { choose: (i) => choose(units.groups[i][0]), room: 560 });
      const hint = make("p", { class: "hint" }, "Rows took, columns gave. Colours: the share of the row's largest number.");
      const whole = make("div", {}, make("h3", {}, "The whole layer"), hint, map.element);
      parts.splice(2, 1, make("div", { class: "halves" }, row, whole), flowBox);
    }
    const element = make("section", { class: "card panel", "aria-label": one.label }, ...parts);

    function listAll() {
      if (!all.open) return;
      const places = Array.from(current.scores, (_, i) => i);
      allBody.replaceChildren(barsView("In the order of the text", units.labels, current.scores, { places, rest: current.rest }));
    }
    const special = units.groups.map((places) => places.every((place) => here.special[place]));

    async function update(mine) {
      const chosen = Math.max(0, units.of[state.chosen]);
      const name = units.labels[chosen];
      if (!isMap) {
        const found = await sheetOf(one.scores);
        if (mine !== turn) return null;
        current.scores = summed(found.row(0), units);
        heading.replaceChildren(one.explains);
        told(`${name} (${chosen}): ${numberText(current.scores[chosen])}`);
        finish(chosen, "Largest scores");
        return `${one.label}: ${name} counts ${numberText(current.scores[chosen])}`;
      }
      const which = one.sheets[state.sheet] ? state.sheet : Object.keys(one.sheets)[0];
      const number = Math.min(state.layer < 0 ? one.depth - 1 : state.layer, one.depth - 1);
      const found = await sheetOf(one.sheets[which]);
      if (mine !== turn) return null;
      const matrix = matrixOf(found, number, units);
      const took = state.side === "took";
      current.scores = took ? rowOf(matrix, chosen) : columnOf(matrix, chosen);
      current.rest = took ? matrix.rest[chosen] : 0;
      const where = which === "rollout" ? `from the input to layer ${number + 1}` : `in layer ${number + 1}`;
      heading.replaceChildren(took ? "What " : "Where ", word(name), took ? ` took, ${where}` : ` went, ${where}`);
      map.update(matrix, chosen, look, `${one.label}: what each position took from each token, ${where}`);
      finish(chosen, took ? "Most taken from" : "Most given to");
      await drawFlow(mine, chosen, number);
      const best = largestOf(current.scores, 3)
        .map((i) => `${shortened(units.labels[i], 30)} ${numberText(current.scores[i])}`).join(", ");
      return `${one.label}, ${where}: ${name} ${took ? "took most from" : "went mostly to"} ${best}`;
    }

    function told(text) {
      readout.replaceChildren(text);
    }

    function finish(chosen, caption) {
      strip.update(current.scores, chosen, look, special);
      largest.replaceChildren(barsView(caption, units.labels, current.scores, { rest: current.rest }));
      listAll();
    }

    async function drawFlow(mine, chosen, number) {
      const name = units.labels[chosen];
      const head = make("h3", {}, "Where ", word(name), " came from, layer by layer");
      if (!one.sheets.layer) {
        flowBox.replaceChildren(head, make("p", { class: "hint" }, one.noFlow));
        return;
      }
      const found = await sheetOf(one.sheets.layer);
      if (mine !== turn) return;
      const rolled = one.sheets.rollout ? await sheetOf(one.sheets.rollout) : null;
      if (mine !== turn) return;
      const flow = flowOf(found, one.convention, units, chosen, number, { rolled, causal: Boolean(here.causal) });
      const { picture, paths, outside } = flowView(flow, units, chosen, name, flowBox.clientWidth || 900);
      const scroll = make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Flow through the layers" }, picture);
      const about = found.coding === "float32" ? String()
        : " This page does not hold every number: between layers, what a row does not hold is spread evenly over the other tokens; at the input the numbers are those of the rollout.";
      const left = outside > 0.005 ? ` Tokens not drawn hold ${(outside * 100).toFixed(0)}% of what is at the input.` : String();
      flowBox.replaceChildren(
        head,
        make("p", { class: "hint" }, `From the input below up to layer ${number + 1}; a line is as wide as its share of what its layer carries.${left}${about}`),
        scroll,
        make("h4", {}, "Strongest single paths, input first"),
        paths,
      );
    }
    return { element, update };
  }

  // - new numbers in the same panels

  async function refresh() {
    turn += 1;
    const mine = turn;
    const maps = shownMethods().filter((one) => one.kind === "map");
    const depth = Math.max(...maps.map((one) => one.depth), 1);
    layerField.hidden = sheet.element.hidden = side.element.hidden = !maps.length;
    layer.max = depth;
    const number = state.layer < 0 ? depth - 1 : Math.min(state.layer, depth - 1);
    layer.value = number + 1;
    layer.disabled = depth < 2;
    layer.setAttribute("aria-valuetext", `layer ${number + 1} of ${depth}`);
    layerText.value = `${number + 1} of ${depth}`;
    const both = maps.some((one) => one.sheets.layer && one.sheets.rollout);
    const held = maps.some((one) => one.sheets.rollout) ? "rollout" : "layer";
    const shown = both ? state.sheet : held;
    sheet.element.disabled = !both;
    sheet.inputs[shown].checked = true;
    side.inputs[state.side].checked = true;
    try {
      const lines = await Promise.all(views.map((view) => view.update(mine)));
      if (mine === turn) said.replaceChildren(lines.filter(Boolean).join(". "));
    } catch (error) {
      said.replaceChildren(`The numbers of this page cannot be read: ${error.message}`);
    }
    if (mine === turn) document.documentElement.dataset.ready = String(turn); // for whoever drives the page
  }

  // - light and dark

  themeSwitch(() => { if (data.entries.length) refresh(); });
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
