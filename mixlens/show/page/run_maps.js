"use strict";
// The layer maps of one row, where a run kept them.

const MAP_ROOM = 520; // px
const MAP_NAMED = 48; // more tokens than this are not named beside their row and column
const MAP_HINT = "Point at a cell to see its numbers.";

/** One layer as a picture: rows took, columns gave; a row is tinted by the share of its largest score. */
function layerPicture(labels) {
  const n = labels.length;
  const named = n <= MAP_NAMED;
  const cell = named ? Math.max(12, Math.min(24, Math.floor((MAP_ROOM - 90) / n))) : Math.max(1, Math.floor(MAP_ROOM / n));
  const size = `${cell * n}px`;
  const canvas = make("canvas", { width: n, height: n, role: "img", style: { width: size, height: size } });
  const name = (label, property) => make("span", { title: label, style: { [property]: `${cell}px` } }, word(label));
  const side = make("div", { class: "side", "aria-hidden": "true" }, ...(named ? labels.map((label) => name(label, "height")) : []));
  const head = make("div", { class: "over", "aria-hidden": "true" }, ...(named ? labels.map((label) => name(label, "width")) : []));
  const line = readout(MAP_HINT);
  let matrix = null;
  canvas.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect();
    const [query, key] = [(event.clientY - box.top) / box.height, (event.clientX - box.left) / box.width].map((share) => Math.max(0, Math.min(n - 1, Math.floor(share * n))));
    if (matrix) line.say(word(labels[query]), ` took ${rawNumber(matrix.values[query * n + key])} from `, word(labels[key]), `, and gave it ${rawNumber(matrix.values[key * n + query])}`);
  });
  canvas.addEventListener("mouseleave", () => line.say());
  return {
    element: make("div", {}, scrollBox("Map, rows took from columns", make("div", { class: "layer-map" }, make("span", {}), head, side, canvas)), line.element),
    update(next, told) {
      matrix = next;
      const [zero, plus, minus] = ["surface", "share", "against"].map((token) => tokenColor(token));
      const image = new ImageData(n, n);
      for (let query = 0; query < n; query++) {
        sharesOf(rowOf(matrix, query)).forEach((share, key) => {
          const end = share < 0 ? minus : plus;
          zero.forEach((from, channel) => { image.data[4 * (query * n + key) + channel] = Math.round(from + (end[channel] - from) * Math.abs(share)); });
          image.data[4 * (query * n + key) + 3] = 255;
        });
      }
      canvas.getContext("2d").putImageData(image, 0, 0);
      canvas.setAttribute("aria-label", told);
    },
  };
}

function mapsOf(run, one) {
  const units = unitsOf({ tokens: one.tokens, words: null }, false);
  const view = layerPicture(units.labels);
  let [number, layer] = [0, -1];
  const method = picked("Map", one.maps.map((made, i) => [i, made.method]), (value) => {
    number = Number(value);
    update();
  });
  const id = freshId("layer");
  const text = make("output", { for: id });
  const slider = make("input", { type: "range", id, min: 1, step: 1, oninput: () => {
    layer = Number(slider.value) - 1;
    update();
  } });

  async function update() {
    const made = one.maps[number];
    const at = layer < 0 ? made.depth - 1 : Math.min(layer, made.depth - 1);
    slider.max = made.depth;
    slider.value = at + 1;
    slider.setAttribute("aria-valuetext", `layer ${at + 1} of ${made.depth}`);
    text.value = `${at + 1} of ${made.depth}`;
    made.sheet ||= Sheet.of(made.block);
    view.update(matrixOf(await made.sheet, at, units), `${made.method} of row ${one.row}, layer ${at + 1}`);
  }
  document.addEventListener("mixlens-theme", update);
  update();
  return make(
    "div", { class: "maps" }, make("div", { class: "find" }, method.element, make("div", { class: "field" }, make("label", { for: id }, "Layer "), text, slider)),
    make("p", { class: "small" }, "Rows took, columns gave, in this layer alone. Strength: the share of the row’s largest number."), view.element,
  );
}
