"use strict";
// One result inside a notebook's output. It lives in a shadow root: no style and no name gets in or out.

/** Every output of this version that has not been started yet; each holds its own data. `start(root, data)` fills it. */
function startOutputs(mark, style, start) {
  for (const host of document.querySelectorAll(`[data-mixlens="${mark}"]:not([data-started])`)) {
    host.setAttribute("data-started", "yes");
    const failed = (error) => { host.append(make("p", {}, `mixlens: ${error.message}`)); };
    try {
      start(host, JSON.parse(host.dataset.result), style).catch(failed);
    } catch (error) {
      failed(error);
    }
  }
}

/** A notebook's own theme shows in the colour of its text, whatever the system says. */
function themeAround(host) {
  const [red, green, blue] = getComputedStyle(host).color.match(/[\d.]+/g).map(Number);
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "dark" : "light";
}

/** The frame of an output, in a root of its own. */
function frameIn(host, style, ...children) {
  const frame = make("div", { class: `frame ${themeAround(host)}` }, ...children);
  host.attachShadow({ mode: "open" }).append(make("style", {}, style), frame);
  return frame;
}
