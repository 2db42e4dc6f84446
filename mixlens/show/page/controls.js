"use strict";
// Labelled choices and lists of facts.

/** A labelled <select>; options are [value, text]. */
function selectField(name, options, onchange) {
  const id = freshId("field");
  const select = make("select", { id, onchange: () => onchange(select.value) });
  const fill = (next) => select.replaceChildren(...next.map(([value, text]) => make("option", { value }, text)));
  fill(options);
  return { element: make("div", { class: "field" }, make("label", { for: id }, name), select), select, fill };
}

/** Choices of which one holds, side by side. */
function radioField(name, options, onchange) {
  const group = freshId("choice");
  const inputs = {};
  const labels = options.map(([value, text]) => {
    inputs[value] = make("input", { type: "radio", name: group, value, onchange: () => onchange(value) });
    return make("label", {}, inputs[value], make("span", {}, text));
  });
  const element = make("fieldset", { class: "field choice" }, make("legend", {}, name), ...labels);
  return { element, inputs };
}

function pairs(rows) {
  const list = make("dl", { class: "about" });
  for (const [name, value] of rows) list.append(make("div", {}, make("dt", {}, name), make("dd", {}, String(value))));
  return list;
}

/** Can this browser unpack the numbers? If not, the page says so. */
function canUnpack(root) {
  if ("DecompressionStream" in globalThis) return true;
  root.replaceChildren(make("p", { role: "alert" }, "This page needs a browser of 2023 or later."));
  return false;
}
