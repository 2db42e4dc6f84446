"use strict";
// One result inside a notebook's output. It lives in a shadow root: no style and no name gets in or out.

/** Every output of this version that has not been started yet; each holds its own data. */
function startOutputs(mark, style) {
  for (const host of document.querySelectorAll(`[data-mixlens="${mark}"]:not([data-started])`)) {
    host.setAttribute("data-started", "yes");
    startOutput(host, JSON.parse(host.dataset.result), style).catch((error) => {
      host.append(make("p", {}, `mixlens: ${error.message}`));
    });
  }
}

/** A notebook's own theme shows in the colour of its text, whatever the system says. */
function themeAround(host) {
  const [red, green, blue] = getComputedStyle(host).color.match(/[\d.]+/g).map(Number);
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "dark" : "light";
}

async function startOutput(host, data, style) {
  const look = { palette: data.palette, theme: () => themeAround(host) };
  const units = unitsOf(data, false);
  const sheet = await Sheet.of(data.block);
  const root = host.attachShadow({ mode: "open" });
  const frame = make("div", { class: `frame ${look.theme()}` }, make("p", { class: "line" }, data.line));
  if (data.predicts) frame.append(make("p", { class: "line" }, data.predicts));
  let chosen = data.query;
  const readout = make("p", { class: "readout" }, "\u00a0");
  let scores = new Float64Array(units.size);
  const strip = stripView(units.labels, {
    name: "Tokens of the text",
    choose: (unit) => { chosen = unit; update(); },
    point: (unit) => { point(unit); },
  });
  let matrix = null;
  let layer = data.depth - 1;
  let map = null;

  function point(unit) {
    if (unit === null) {
      readout.replaceChildren("\u00a0");
      if (map) map.hide();
    } else if (map) {
      map.show(chosen, unit);
      const taken = numberText(matrix.values[chosen * matrix.size + unit]);
      readout.replaceChildren(word(units.labels[chosen]), ` (${chosen}) took ${taken} from `, word(units.labels[unit]), ` (${unit})`);
    } else {
      readout.replaceChildren(word(units.labels[unit]), ` (${unit}): ${numberText(scores[unit])}`);
    }
  }

  function update() {
    if (!data.isMap) {
      scores = sheet.row(0);
      strip.update(scores, chosen, look, data.special);
      return;
    }
    matrix = matrixOf(sheet, layer, units);
    scores = rowOf(matrix, chosen);
    strip.update(scores, chosen, look, data.special);
    map.update(matrix, chosen, look, `What each position took from each token, layer ${layer + 1}`);
  }

  if (data.isMap) {
    const slider = make("input", { type: "range", min: 1, max: data.depth, value: data.depth, step: 1, "aria-label": "Layer" });
    const output = make("output", {}, `layer ${data.depth} of ${data.depth}`);
    slider.addEventListener("input", () => {
      layer = Number(slider.value) - 1;
      output.value = `layer ${layer + 1} of ${data.depth}`;
      update();
    });
    map = mapView(units.labels, { choose: (unit) => { chosen = unit; update(); }, room: 560 });
    frame.append(make("div", { class: "layer" }, slider, output), strip.element, readout, map.element);
  } else {
    frame.append(strip.element, readout, barsView("Largest scores", units.labels, sheet.row(0), {}));
  }
  if (data.holds) frame.append(make("p", { class: "line" }, `Held here: ${data.holds}.`));
  root.append(make("style", {}, style), frame);
  update();
}
