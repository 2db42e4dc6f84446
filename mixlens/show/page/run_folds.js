"use strict";
// The last parts of the page of a run: how sure, how long, how exact, what failed, and where the numbers come from.

/** Counts between edges, as columns; one filled column alone is a sentence. `edge` writes an edge. */
function histogram(name, { edges, counts }, edge, { wide = 420, high = 130 } = {}) {
  const filled_ = counts.map((count, i) => [count, i]).filter(([count]) => count);
  const between = (i) => `${edge(edges[i])} to ${edge(edges[i + 1])}`;
  if (filled_.length < 2) return make("p", {}, ...filled_.map(([count, i]) => `All ${rowsText(count)} are at ${between(i)}.`));
  const most = Math.max(...counts);
  const step = Math.min(40, (wide - 16) / counts.length);
  const floor = high - 22;
  const [, tallest] = filled_.find(([count]) => count === most);
  const picture = draw("svg", { class: "histogram", viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": `${name}: most rows, ${counted(most)}, are at ${between(tallest)}` });
  counts.forEach((count, i) => {
    const tall = count ? Math.max(1, (count / most) * (floor - 18)) : 0;
    picture.append(draw("rect", { class: "column", x: 8 + i * step + 0.5, y: floor - tall, width: Math.max(0.5, step - 1), height: tall }, draw("title", {}, `${between(i)}: ${rowsText(count)}`)));
  });
  const middle = Math.min(wide - 40, Math.max(40, 8 + (tallest + 0.5) * step));
  picture.append(draw("line", { class: "hair", x1: 8, x2: 8 + step * counts.length, y1: floor, y2: floor }), draw("text", { class: "axis", x: middle, y: 12, "text-anchor": "middle" }, rowsText(most)));
  [[0, "start"], [edges.length - 1, "end"]].forEach(([i, anchor]) => picture.append(draw("text", { class: "axis", x: 8 + i * step, y: high - 5, "text-anchor": anchor }, edge(edges[i]))));
  return picture;
}

function binsTable({ edges, counts }, edge) {
  const lines = counts.map((count, i) => [`${edge(edges[i])} to ${edge(edges[i + 1])}`, counted(count)]).filter((_, i) => counts[i]);
  return table(["from, to", "rows"], lines, { numbers: [1] });
}

/** A measure of rows: a title, a sentence, its histogram and every number. */
function measure(title, text, bins, edge) {
  const drawn = histogram(title, bins, edge);
  return make("div", { class: "measure", role: "region", "aria-label": title }, make("h3", {}, title), text ? make("p", { class: "small" }, text) : null, drawn, drawn.tagName === "svg" ? aside("Every number", () => binsTable(bins, edge)) : null);
}

function labelsTable(labels) {
  const head = make("tr", {}, make("td", {}), ...labels.names.map((name) => make("th", { scope: "col" }, "called ", word(name))));
  const body = labels.table.map((line, i) => make("tr", {}, make("th", { scope: "row" }, "is ", word(labels.names[i])), ...line.map((count, j) => make("td", { class: "number", "data-value": count }, i === j ? `${counted(count)} ✓` : counted(count)))));
  return make(
    "div", { class: "measure", role: "region", "aria-label": "Labels and predictions" }, make("h3", {}, "Labels and predictions"),
    scrollBox("Labels and predictions", make("table", { class: "confusion" }, make("thead", {}, head), make("tbody", {}, ...body))),
    labels.all ? null : make("p", { class: "small" }, "The most frequent classes only."),
  );
}

function ratiosTable(run) {
  const depth = Math.max(...run.ratios.map((one) => one.layers.length));
  const names = run.ratios.map((one) => run.names[run.methods.indexOf(one.method)] ?? one.method);
  const lines = Array.from({ length: depth }, (_, i) => [String(i + 1), ...run.ratios.map((one) => (one.layers[i] === undefined ? "–" : percent(one.layers[i])))]);
  return make(
    "div", { class: "measure", role: "region", "aria-label": "Mixing ratio" }, make("h3", {}, "Mixing ratio"), make("p", { class: "small" }, "How much of a token’s vector comes from other tokens, the mean of rows."),
    scrollBox("Mixing ratio by layer", table(["layer", ...names], lines, { numbers: names.map((_, i) => i + 1) })),
  );
}

function gapsMeasure(run) {
  const { gap } = run;
  const zero = gap.zero ? ` ${rowsText(gap.zero)} have none at all.` : String();
  const worst = gap.worst.length ? ` Largest: row ${gap.worst[0].row}, ${gap.worst[0].gap.toExponential(1)}.` : String();
  return measure("Reconstruction gaps", `The layers rebuilt from their parts, against what the model wrote: the largest in a row’s batch.${zero}${worst}`, gap, (value) => value.toExponential(0));
}

function secondsMeasure(run) {
  const slow = run.slow[0];
  const text = `${timeText(run.seconds.mean)} a row on average, ${timeText(run.seconds.total)} in all. The time of a batch is shared out evenly over its rows.${slow ? ` Slowest: row ${slow.row} (${counted(slow.tokens)} tokens), ${timeText(slow.seconds)}.` : String()}`;
  return measure("Time", text, run.seconds, timeText);
}

function foldsOf(run) {
  const measures = () => make(
    "div", { class: "measures" }, run.labels && run.labels.table.length ? labelsTable(run.labels) : null,
    run.probability.counts.some(Boolean) ? measure("How sure the model is", "The probability of what was predicted.", run.probability, percent) : null,
    measure("Lengths", `Tokens of a row: ${run.lengths.mean.toFixed(1)} on average, ${counted(run.lengths.largest)} at most.`, run.lengths, counted),
    run.ratios.length ? ratiosTable(run) : null, run.gap.rows ? gapsMeasure(run) : null, secondsMeasure(run),
  );
  const reasons = () => [make("p", { class: "small" }, "By reason, numbers written as N. errors.jsonl names every row."), scrollBox("Reasons", table(["reason", "rows"], run.reasons.map(([reason, count]) => [reason, counted(count)]), { numbers: [1] }))];
  return make(
    "section", { class: "folds" }, run.rows ? fold("More numbers", "labels, how sure, lengths, layers, time", measures) : null,
    run.errors ? fold("Rows that could not be explained", rowsText(run.errors), reasons, { open: !run.rows }) : null,
    fold("Where these numbers come from", "model, data, methods, what was checked", () => facts([...rulesOf(run), ...run.about]), { print: true, open: !run.rows }),
  );
}

/** What the page counts by, in words. */
function rulesOf(run) {
  const words = `Words in ${numberWord(LEAST_ROWS)} rows or more, by the mean share of a row’s evidence (|score| over the sum of |scores|, tokens of no word left out). Marks are not listed.`;
  const taken = "Deleted with all their pieces; words and numbers only, no punctuation; the highest scores of each method. Random sets are drawn by the text alone, no two alike; all sets where there are ten or fewer. Wilson’s interval over rows.";
  return [["Words of a class", words], ...(run.removal ? [["Words taken out", taken]] : [])];
}
