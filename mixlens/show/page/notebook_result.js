"use strict";
// A map or an attribution in a notebook: the text, the layer, the map, the largest shares.

async function startResult(host, data, style) {
  const units = unitsOf(data, false);
  const sheet = await Sheet.of(data.block);
  const frame = frameIn(host, style, make("p", { class: "line" }, data.line));
  if (data.predicts) frame.append(make("p", { class: "line" }, data.predicts));
  const line = make("p", { class: "readout" }, "\u00a0");
  const below = make("div", {});
  const largest = make("div", {});
  let chosen = data.query;
  let layer = data.depth - 1;
  let view = null;
  let map = null;
  const choose = (unit) => { chosen = unit; update(); };
  const strip = stripView(units.labels, { name: "Tokens of the text", choose, point });

  function shown(share) {
    return view.signed ? signedPercent(share) : percent(share);
  }

  function point(unit) {
    if (map && unit !== null) map.show(chosen, unit);
    else if (map) map.hide();
    if (unit === null) line.replaceChildren("\u00a0");
    else if (map) line.replaceChildren("“", word(units.labels[chosen]), `” (${chosen}) took ${shown(view.shares[unit])} from “`, word(units.labels[unit]), `” (${unit})`);
    else line.replaceChildren("“", word(units.labels[unit]), `” (${unit}): ${shown(view.shares[unit])} (raw ${rawNumber(view.scores[unit])})`);
    line.dataset.value = unit === null ? String() : view.scores[unit];
  }

  function update() {
    if (data.isMap) {
      const matrix = matrixOf(sheet, layer, units);
      view = viewOf(rowOf(matrix, chosen), { total: matrix.totals[chosen], signed: matrix.signed, special: data.special, hidden: false, rest: matrix.rest[chosen] });
      map.update(matrix, chosen, `What each position took from each token, layer ${layer + 1}`);
    } else {
      view = viewOf(sheet.row(0), { signed: data.signed, special: data.special, hidden: false });
      largest.replaceChildren(barsView("Largest shares", units.labels, view));
    }
    strip.update({ ...view, unit: chosen });
    const most = view.shares.reduce((so, share) => Math.max(so, Math.abs(share)), 0);
    const unit = data.isMap ? "Unit: share of what the chosen token took; a row makes 100" : "Unit: share of all scores without sign, which make 100";
    below.replaceChildren(legend({ signed: view.signed, sides: ["against", view.signed ? "for" : "share"], most, unit: `${unit}${THIN}%.` }));
  }

  if (data.isMap) {
    const slider = make("input", { type: "range", min: 1, max: data.depth, value: data.depth, step: 1, "aria-label": "Layer" });
    const output = make("output", {}, `layer ${data.depth} of ${data.depth}`);
    slider.addEventListener("input", () => {
      layer = Number(slider.value) - 1;
      output.value = `layer ${layer + 1} of ${data.depth}`;
      update();
    });
    map = mapView(units.labels, { choose, room: 560 });
    frame.append(make("div", { class: "layer" }, slider, output), strip.element, below, line, map.element);
  } else {
    frame.append(strip.element, below, line, largest);
  }
  if (data.holds) frame.append(make("p", { class: "line" }, `Held here: ${data.holds}.`));
  update();
}
