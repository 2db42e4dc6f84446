"use strict";
// Heads as small maps on one scale: those of the chosen layer with their names, or all layers by heads. Rows look, columns are looked at.

const HEAD_END = 0.5; // of a head's attention: the end of the colours

/** One head on a canvas, a pixel for each cell; the page stretches it. */
function headCanvas(numbers, layer, head, colours) {
  const size = numbers.count;
  const canvas = make("canvas", { width: size, height: size, role: "img", "data-layer": layer, "data-head": head });
  const context = canvas.getContext("2d");
  const image = context.createImageData(size, size);
  for (let r = 0; r < size; r++) {
    const row = numbers.head(layer, head, r);
    for (let c = 0; c < size; c++) {
      const strength = Math.min(1, row[c] / HEAD_END);
      const at = 4 * (r * size + c);
      for (let i = 0; i < 3; i++) image.data[at + i] = Math.round(colours.zero[i] + (colours.full[i] - colours.zero[i]) * strength);
      image.data[at + 3] = 255;
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

function headName(numbers, layer, head) {
  const role = numbers.data.heads.roles[layer][head];
  return `${role.name}, ${percent(role.share)}`;
}

/** What a point of a head's map says. */
function headSentence(numbers, canvas, event) {
  const { columns } = numbers.data;
  const box = canvas.getBoundingClientRect();
  const place = (at, from, size) => Math.max(0, Math.min(numbers.count - 1, Math.floor(((at - from) / size) * numbers.count)));
  const [layer, head] = [Number(canvas.dataset.layer), Number(canvas.dataset.head)];
  const named = `Head ${head + 1} of layer ${layer + 1} ${headName(numbers, layer, head)}.`;
  if (event.clientX === undefined || !box.width) return named;
  const [r, c] = [place(event.clientY, box.top, box.height), place(event.clientX, box.left, box.width)];
  return `${named} ${largeFirst(columns[r].title)} looks at ${r === c ? "itself" : columns[c].title} with ${percent(numbers.head(layer, head, r)[c])} of its attention.`;
}

function headFigure(numbers, layer, head, colours, full) {
  const canvas = headCanvas(numbers, layer, head, colours);
  canvas.setAttribute("aria-label", `Head ${head + 1} of layer ${layer + 1}: ${headName(numbers, layer, head)}`);
  const role = numbers.data.heads.roles[layer][head];
  const caption = full ? make("figcaption", {}, make("b", {}, `Head ${head + 1}`), make("span", {}, `${role.name}, `, make("span", { class: "one-line" }, percent(role.share)))) : null;
  return make("figure", { class: "head-map" }, canvas, caption);
}

/** Layers as rows and heads as columns, with their numbers. */
function modelView(numbers, colours, layerNow) {
  const { count } = numbers.data.heads;
  const rows = Array.from({ length: numbers.layers }, (_, layer) => layer).reverse();
  const box = make("div", { class: "model-view", style: { "--heads": count } });
  box.append(make("span"), ...Array.from({ length: count }, (_, head) => make("span", { class: "axis" }, String(head + 1))));
  for (const layer of rows) {
    box.append(make("span", { class: layer === layerNow ? "axis now" : "axis" }, `layer ${layer + 1}`));
    for (let head = 0; head < count; head++) box.append(headFigure(numbers, layer, head, colours, false));
  }
  return box;
}

function headsPart(numbers, state) {
  const title = make("h2", { id: freshId("heads") });
  const lead = make("p", { class: "lead" });
  const frame = make("div", { class: "heads-frame", role: "group", "aria-label": "Heads: arrow keys go from head to head" });
  const told = readout("Point at a head to read it; arrow keys go from head to head.");
  let every = false;
  const which = choices("Heads", [["layer", "this layer"], ["all", "all layers"]], "layer", (value) => { every = value === "all"; show(); });
  const unit = make("span", {}, "Percent of a row’s attention. Attention is where a head looks, not what arrives: the map above weighs it by what is passed on.");
  const keys = legend({ signed: false, sides: ["looks"], most: `${percent(HEAD_END)} and more`, fill: true });
  keys.append(unit);
  const names = aside("Every name: what each head of each layer does most", () => {
    const heads = ["layer", ...Array.from({ length: numbers.data.heads.count }, (_, i) => `head ${i + 1}`)];
    const rows = numbers.data.heads.roles.map((_, layer) => [`layer ${layer + 1}`, ...heads.slice(1).map((_, head) => headName(numbers, layer, head))]);
    return scrollBox("What each head does most", table(heads, rows));
  });
  const element = make("section", { "aria-labelledby": title.id, class: "viz" }, make("div", { class: "head beside" }, make("div", {}, title, lead), make("div", { class: "no-print" }, which.element)), scrollBox("Maps of the heads", frame), keys, told.element, names);
  for (const name of ["pointermove", "click", "focusin"]) {
    frame.addEventListener(name, (event) => {
      if (event.target.dataset && event.target.dataset.head !== undefined) told.say(headSentence(numbers, event.target, event));
    });
  }
  const show = () => {
    const colours = { zero: tokenColor("surface"), full: tokenColor("share") };
    title.textContent = every ? "Where the heads of every layer look" : `Where the heads of layer ${state.layer + 1} look`;
    const { unit: columns, heads } = numbers.data;
    lead.textContent = `Raw attention of ${every ? counted(heads.count * numbers.layers) : numberWord(heads.count)} heads, by ${columns}: rows look, columns are looked at. ${every ? "Layers are rows, heads columns." : "Named by what they do most; percent of their attention."}`;
    const figures = Array.from({ length: heads.count }, (_, head) => head);
    const box = every ? modelView(numbers, colours, state.layer) : make("div", { class: "heads" }, ...figures.map((head) => headFigure(numbers, state.layer, head, colours, true)));
    const canvases = Array.from(box.querySelectorAll("canvas"));
    canvases.forEach((one, i) => { one.tabIndex = i ? -1 : 0; });
    roving(box, canvases);
    frame.replaceChildren(box);
  };
  return { element, frame, show };
}
