"use strict";
// The page of a run: which words decide, whether they matter to the model, whether methods agree, and rows to open (run_rows.js).

const FOR_WORDS = 10; // words of a class that are listed for it, and against it
const AGAINST_WORDS = 6;
const NAMED_WORDS = 3; // in the answer
const NAMED_CLASSES = 3;
const NAMED_SHARE = 0.05; // the least mean share of a word that the answer names
const ELSEWHERE = 0.5; // a word that another class holds this much of, or more, is not named
const LEAST_ROWS = 5; // rows that a word of a list is in
const LISTS = { // rows worth a look
  wrong: ["Wrong, and sure of it", `more than 95${THIN}% sure`, "wrong, and sure of it"],
  held: ["Nothing turned it", `no method’s three words move it below 90${THIN}%`, "nothing turned it"],
  apart: ["Methods disagree most", "mean rank correlation of all pairs of methods under 0.1", "methods disagree most"],
  open: ["Scores that do not add up", `completeness gap over 1${THIN}%`, "scores that do not add up"],
};

/** A duration as a reader wants it. */
function timeText(seconds) {
  if (seconds >= 120) return `${(seconds / 60).toFixed(1)} min`;
  if (seconds >= 1) return `${seconds.toPrecision(3)} s`;
  return seconds >= 1e-3 ? `${(seconds * 1e3).toPrecision(3)} ms` : `${(seconds * 1e6).toPrecision(3)} µs`;
}

function rowsText(count) {
  return `${counted(count)} ${count === 1 ? "row" : "rows"}`;
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** A word of the model with its tint; `strength` 0 to 1. */
function chip(text, strength, hue) {
  return tinted(make("span", { class: `chip read ${hue}` }, word(text)), strength, hue);
}

// --- the answer --------------------------------------------------------------------------------------------------------------

/** The words of each class by one method: { name, rows, words: { for, against } }; only classes that have some. */
function wordsOfClasses(run, method) {
  return run.classes.map((one) => ({ ...one, words: one.words[method] })).filter((one) => one.words.for.length || one.words.against.length);
}

function largestShare(classes) {
  return classes.flatMap((one) => [...one.words.for, ...one.words.against]).reduce((so, [, share]) => Math.max(so, Math.abs(share)), 1e-30);
}

/** The words that the answer may name for a class: they carry enough, and no other class holds half as much of them. */
function distinctWords(one, classes) {
  const strong = (words) => words.filter(([, share]) => Math.abs(share) >= NAMED_SHARE);
  const others = classes.filter((other) => other !== one).flatMap((other) => other.words.for);
  const alone = ([text, share]) => !others.some(([same, held]) => same === text && held >= share * ELSEWHERE);
  return { for: strong(one.words.for).filter(alone), against: strong(one.words.against) };
}

/** What decides each class, in one sentence. */
function answerOf(run) {
  const known = wordsOfClasses(run, run.lead);
  if (!known.length) return [`No word is in ${numberWord(LEAST_ROWS)} rows or more, so no word can be said to decide a class. Rarer words: mixlens summarize FOLDER --least-rows 1.`];
  const told = known.map((one) => ({ ...one, words: distinctWords(one, known) })).slice(0, NAMED_CLASSES);
  const classes = told.filter((one) => one.words.for.length);
  const without = told.filter((one) => !one.words.for.length).map((one) => one.name);
  if (!classes.length) return [`No word stands out: none in ${numberWord(LEAST_ROWS)} rows or more carries ${percent(NAMED_SHARE)} of a row’s evidence for one class alone.`];
  const most = largestShare(classes);
  const signed = run.isSigned[run.lead];
  const chips = (list, hue) => listed(list.slice(0, NAMED_WORDS).map(([text, share]) => chip(text, Math.abs(share) / most, hue)));
  const parts = classes.flatMap((one, i) => [
    i ? "; " : String(), make("b", {}, i ? one.name : capital(one.name)),
    i ? " on " : signed ? " hangs on " : " takes most from ", ...chips(one.words.for, signed ? "for" : "share"),
  ]);
  const against = classes.flatMap((one) => {
    const strongest = one.words.for.length ? one.words.for[0][1] : 0;
    const named = one.words.against.filter(([, share]) => -share >= strongest / 3);
    return named.length ? ["; ", ...chips(named, "against"), named.length > 1 ? " speak against " : " speaks against ", one.name] : [];
  });
  const silent = without.length ? ["; no word stands out for ", ...listed(without)] : [];
  return [...parts, ...against, ...silent, "."];
}

/** Whether taking these words out turns more answers than random words do. */
function meaningOf(run) {
  if (!run.removal) return [];
  const lead = run.removal.methods.find((one) => one.method === run.lead);
  const { random } = run.removal;
  const verdict = lead.low > random.high ? " The scores mean something:" : lead.share > random.share ? " It is not sure that the scores mean anything:" : " But taking these words out changes no more than random words:";
  return [
    verdict, " taking out a text’s three top words turns ", make("b", {}, percent(lead.share)), " of the answers, three random words ",
    make("b", {}, percent(random.share)), ".",
  ];
}

function factsOf(run) {
  const failed = run.errors ? `${counted(run.errors)} could not be` : "none failed";
  const told = [[counted(run.rows), `rows explained, ${failed}`]];
  if (run.labels) told.push(accuracyOf(run.labels));
  if (run.probability.counts.some(Boolean)) told.push([`${counted(run.sure)} of ${counted(run.rows)}`, `rows with the model over 99${THIN}% sure`]);
  if (run.completeness) {
    const worst = Math.max(...run.completeness.methods.map((one) => one.largest ?? 0));
    const what = `where scores do not add up within 1${THIN}%, at worst ${gapText(worst)}`;
    told.push([run.completeness.open ? rowsText(run.completeness.open) : "no row", what]);
  }
  return make("dl", { class: "stats" }, ...told.map(([big, text]) => make("div", {}, make("dt", {}, text), make("dd", {}, big))));
}

function accuracyOf(labels) {
  const wrong = labels.rows - labels.correct;
  const called = labels.names.map((name, j) => [name, labels.names.reduce((so, _, i) => so + (i === j ? 0 : labels.table[i][j]), 0)]).filter(([, count]) => count);
  const which = labels.all && called.length && called.length <= 3 ? `: ${listed(called.map(([name, count]) => `${counted(count)} called ${name}`)).join(String())}` : String();
  const without = labels.unknown + labels.without ? `; ${rowsText(labels.unknown + labels.without)} without a label` : String();
  const share = wrong ? `${(100 * labels.correct / labels.rows).toFixed(1)}${THIN}%` : `100${THIN}%`;
  return [share, `right, against the column ${labels.column}. ${counted(wrong)} wrong${which}${without}`];
}

// --- words for and against -----------------------------------------------------------------------------------------------------

/** One class's words as bars: those for it, then those against it, on a scale that all classes share. */
function classBars(one, { signed, most, least, choose }) {
  const span = most - least;
  const zero = (-least / span) * 100;
  const bar = ([text, share, rows]) => {
    const hue = hueOf(share, signed);
    const width = (Math.abs(share) / span) * 100;
    const from = share < 0 ? zero - width : zero;
    const end = share < 0 ? { right: `${100 - from}%` } : { left: `${from + width}%` };
    return make(
      "button", { type: "button", class: "word-row", "data-word": text, "data-value": share, title: `Show the rows with ${text}`, onclick: () => choose(text, one.name) },
      make("span", { class: "name" }, word(text)), make("span", { class: "count" }, counted(rows)),
      make("span", { class: "track", style: { "--at": `${zero}%` } }, make("span", { class: `bar ${hue}`, style: { left: `${from}%`, width: `${width}%` } }),
        make("span", { class: `value ${hue}`, style: end }, signed ? signedPercent(share) : percent(share))),
    );
  };
  const heads = signed ? [make("span", {}, `← against ${one.name}`), make("span", {}, `for ${one.name} →`)] : [make("span", {}, "share of the answer →")];
  const against = one.words.against.slice(0, AGAINST_WORDS);
  return make(
    "div", { class: "class-words" }, make("h3", {}, `Called ${one.name} `, make("span", { class: "small" }, rowsText(one.rows))),
    make("div", { class: "word-head" }, make("span", {}, "word"), make("span", { class: "count" }, "rows"), make("div", {}, ...heads)),
    ...one.words.for.slice(0, FOR_WORDS).map(bar), against.length ? make("div", { class: "cut" }) : null, ...against.map(bar),
    signed && !against.length ? make("p", { class: "small" }, "No word speaks against it on the whole.") : null,
  );
}

function wordsSection(run, choose) {
  if (!run.methods.some((_, method) => wordsOfClasses(run, method).length)) return null;
  const inside = make("div", {});
  const show = (method) => {
    const classes = wordsOfClasses(run, method);
    const signed = run.isSigned[method];
    const shares = classes.flatMap((one) => [...one.words.for.slice(0, FOR_WORDS), ...one.words.against.slice(0, AGAINST_WORDS)]).map(([, share]) => share);
    const scale = { signed, most: Math.max(0, ...shares), least: Math.min(0, ...shares), choose };
    const keys = signed ? [["for", "for the predicted class"], ["against", "against it"]] : [["share", "share of the answer, no sign"]];
    const key = ([hue, text]) => make("span", { class: "key" }, make("span", { class: `swatch ${hue}` }), text);
    const special = run.special[method];
    const held = special ? ` Tokens that the tokenizer added are left out; they held ${percent(special)} of the scores.` : String();
    inside.replaceChildren(
      classes.length ? make("div", { class: "two" }, ...classes.map((one) => classBars(one, scale))) : make("p", {}, `By ${run.names[method]} no word is in ${numberWord(LEAST_ROWS)} rows or more.`),
      make("div", { class: "legend" }, ...keys.map(key), make("span", {}, `Unit: percent of all evidence in a row, the mean of the rows that have the word. All classes share one scale.${held}`)),
    );
  };
  const by = picked("By", run.names.map((name, i) => [i, name]), (value) => show(Number(value)));
  by.select.value = String(run.lead);
  show(run.lead);
  const lead = `Mean share of a row’s evidence. Words in ${numberWord(LEAST_ROWS)} rows or more. Choose a word to see its rows.`;
  return section({ title: "Words for and against each class", lead, id: "words" }, run.methods.length > 1 ? make("div", { class: "by no-print" }, by.element) : null, inside);
}

// --- words taken out -----------------------------------------------------------------------------------------------------------

/** One histogram row for each method, best first, random last. `wide`, and room for names to the left, in px. */
function turnedPicture(run, wide, left, kind) {
  const { edges, methods, random } = run.removal;
  const [right, top, high] = [kind === "narrow" ? 62 : 88, 30, kind === "narrow" ? 62 : 56];
  const rows = [...methods.map((one) => ({ ...one, name: run.names[one.method] })), { ...random, name: "three random words", random: true }];
  const most = Math.max(...rows.flatMap((row) => row.counts.map((count) => count / (row.draws / row.rows))), 1);
  const room = wide - left - right;
  const bottom = top + rows.length * high;
  const x = (share) => left + share * room;
  const finding = rows.map((row) => `${row.name} ${percent(row.share)}`).join(", ");
  const picture = draw("svg", { viewBox: `0 0 ${wide} ${bottom + 44}`, role: "img", class: kind, "aria-label": `How often the answer turns without three words: ${finding}` });
  const text = (at, y, said, anchor = "middle", type = "axis") => draw("text", { x: at, y, "text-anchor": anchor, class: type }, said);
  for (const share of kind === "narrow" ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1]) {
    picture.append(draw("line", { class: share === 0.5 ? "half" : "hair", x1: x(share), x2: x(share), y1: top, y2: bottom }));
    picture.append(text(x(share), bottom + 18, percent(share)));
  }
  picture.append(text(x(0.5), bottom + 38, "probability left for what was predicted"));
  if (kind !== "narrow") picture.append(text(x(0.25), 16, "← less likely than not"), text(x(0.75), 16, "answer kept →"));
  picture.append(text(wide - right + 12, 16, "turned", "start"));
  rows.forEach((row, number) => {
    const floor = top + (number + 1) * high - 6;
    const each = row.draws / row.rows;
    picture.append(draw("line", { class: "hair", x1: x(0), x2: x(1), y1: floor, y2: floor }));
    if (kind === "narrow") picture.append(text(4, floor - high + 22, row.name, "start", "name"));
    else picture.append(text(left - 14, floor - 4, row.name, "end", "name"));
    row.counts.forEach((count, i) => {
      const tall = count ? Math.max(1, (count / each / most) * (high - 24)) : 0;
      const from = x(edges[i]);
      picture.append(draw("rect", { class: row.random ? "column random" : "column", x: from + 0.5, y: floor - tall, width: x(edges[i + 1]) - from - 1, height: tall },
        draw("title", {}, `${row.name}, ${percent(edges[i])} to ${percent(edges[i + 1])}: ${countOf(count, each)} rows`)));
      if (count && (i === 0 || i === row.counts.length - 1)) picture.append(text(from + (x(edges[i + 1]) - from) / 2, floor - tall - 4, countOf(count, each)));
    });
    picture.append(text(wide - right + 12, floor - 4, percent(row.share), "start", "value"));
  });
  return picture;
}

/** Rows that a count of draws stands for. */
function countOf(count, each) {
  return counted(each === 1 ? count : Number((count / each).toFixed(count / each < 10 ? 1 : 0)));
}

function turnedSection(run) {
  const title = "Do the top words matter to the model?";
  if (!run.removal) {
    if (!run.rows) return null;
    const how = "This was not checked. Make the run again with --trust: each method’s three top words are taken out of every row, and ten sets of random words beside them.";
    return section({ title, id: "matter" }, make("p", { class: "lead" }, how));
  }
  const { methods, random, unchecked } = run.removal;
  const range = (one) => `${percent(one.low)} to ${percent(one.high)}`;
  const lines = [...methods.map((one) => [run.names[one.method], one]), ["three random words", random]];
  const intervals = table(["words of", "turned", `95${THIN}% interval`, "rows", "draws"], lines.map(([name, one]) => [name, percent(one.share), range(one), counted(one.rows), counted(one.draws)]), { numbers: [1, 2, 3, 4] });
  const draws = `${Number((random.draws / random.rows).toFixed(1))} draws a row, each counted by itself`;
  const lead = methods.find((one) => one.method === run.lead);
  const chosen = `${run.names[run.lead]} leads this page: it is the first method of the run with signs, named before any row was read.`;
  const short = unchecked ? ` ${rowsText(unchecked)} of three words or fewer could not be checked.` : String();
  const told = `${rowsText(random.rows)}; numbers on bars are rows, and heights share one scale. Random: ${draws}. 95${THIN}% interval of ${run.names[run.lead]}: ${range(lead)}; of random words: ${range(random)}. ${run.methods.length > 1 ? chosen : String()}${short}`;
  return section(
    { title, lead: "Each method’s three top words are deleted from every row. Good scores push rows to the left; random words leave them on the right.", id: "matter" },
    make("figure", {}, turnedPicture(run, 900, 190, "usual"), turnedPicture(run, 360, 20, "narrow")), make("p", { class: "small" }, told), aside("Every number", () => scrollBox("Every number", intervals)),
  );
}

// --- agreement -----------------------------------------------------------------------------------------------------------------

function agreementSection(run) {
  const { mean, rows } = run.wordAgreement;
  const pairs_ = run.methods.flatMap((_, i) => run.methods.slice(0, i).map((_, j) => [i, j, mean[i][j]])).filter(([, , value]) => value !== null);
  if (!pairs_.length) return null;
  const title = "Do the methods agree?";
  const unit = `Spearman’s rank correlation over the words of a row, mean of ${rowsText(Math.max(...rows.flat()))}; 1 = same order.`;
  const unsigned = run.names.filter((_, i) => !run.isSigned[i]);
  const pair = ([i, j]) => `${run.names[j]} and ${run.names[i]}`;
  const sorted = [...pairs_].sort((a, b) => b[2] - a[2]);
  const without = unsigned.length && unsigned.length < run.names.length ? ` ${listed(unsigned).join(String())} ${unsigned.length > 1 ? "have" : "has"} no sign, so it cannot rank words against the class last.` : String();
  if (pairs_.length === 1) return section({ title, id: "agree" }, make("p", {}, `${pair(sorted[0])} rank words alike to ${numberOf(sorted[0][2])}.${without}`), make("p", { class: "small" }, unit));
  const said = `${pair(sorted[0])} rank words most alike (${numberOf(sorted[0][2])}); ${pair(sorted[sorted.length - 1])} least (${numberOf(sorted[sorted.length - 1][2])}).${without}`;
  const names = run.names.slice(0, -1);
  const negative = sorted[sorted.length - 1][2] < 0;
  const head = make("tr", {}, make("td", {}), ...names.map((name) => make("th", { scope: "col" }, name)));
  const body = run.names.slice(1).map((name, k) => make("tr", {}, make("th", { scope: "row" }, name), ...names.map((_, j) => agreementCell(mean[k + 1][j], j <= k, negative))));
  const scale = legend({ signed: negative, sides: negative ? ["other order", "same order"] : ["same order"], most: "1", unit: null });
  const matrix = make("table", { class: "matrix" }, make("thead", {}, head), make("tbody", {}, ...body));
  return section({ title, id: "agree" }, make("div", { class: "two" }, make("div", {}, make("p", { class: "lead" }, said), scale, make("p", { class: "small" }, unit)), scrollBox("Agreement of methods", matrix)));
}

function numberOf(value) {
  return value.toFixed(2).replace("-", MINUS);
}

/** A rank correlation. Where some are below 0, both sides have the hues of the legend; else all are shares of one hue. */
function agreementCell(value, below, negative) {
  if (!below) return make("td", {});
  if (value === null) return make("td", { class: "none" }, "–");
  return tinted(make("td", { class: "cell", "data-value": value }, numberOf(value)), value, hueOf(value, negative));
}

// --- rows worth a look -----------------------------------------------------------------------------------------------------------

function listsSection(run, choose) {
  const some = Object.keys(LISTS).filter((tag) => run.tagged[tag] && run.examples.some((one) => one.tags.includes(tag)));
  if (!some.length) return null;
  const told = {
    wrong: (one) => `${one.prediction} ${probability(one.probability)}, is ${one.label}`,
    held: (one) => `${probability(one.probability)} → ${probability(Math.min(...one.check.left.filter((left) => left !== null)))}`,
    apart: (one) => numberOf(one.agreement),
    open: (one) => `gap ${gapText(largestGap(one))}`,
  };
  const order = { wrong: (one) => -one.probability, held: (one) => -Math.min(...one.check.left.filter((left) => left !== null)), apart: (one) => one.agreement, open: (one) => -largestGap(one) };
  const box = (tag) => {
    const [title, what] = LISTS[tag];
    const here = run.examples.filter((one) => one.tags.includes(tag)).sort((a, b) => order[tag](a) - order[tag](b) || a.row - b.row);
    const all = run.tagged[tag];
    const show = here.length === all ? `Show all ${counted(all)} below` : `Show ${counted(here.length)} of them below`;
    const items = here.slice(0, 3).map((one) => make("li", {}, make("span", { class: "read" }, word(firstWords(one.text, 64))), make("span", { class: "small" }, told[tag](one))));
    return make(
      "div", { class: "list", "data-tag": tag }, make("div", { class: "list-head" }, make("h3", {}, title), make("b", {}, counted(all))), make("p", { class: "small" }, what),
      make("ul", {}, ...items), make("button", { type: "button", class: "quiet no-print", onclick: () => choose(tag) }, all === 1 ? "Show it below" : show),
    );
  };
  return section({ title: "Rows worth a look", id: "look" }, make("div", { class: "lists" }, ...some.map(box)));
}

/** The beginning of a text, cut between words where it has some. */
function firstWords(text, most) {
  const cut = shortened(text, most);
  const space = cut.lastIndexOf(" ");
  return cut === text || space < most / 2 ? cut : `${cut.slice(0, space)} …`;
}

function largestGap(one) {
  return Math.max(...one.check.gaps.filter((gap) => gap !== null));
}

// --- all of it -------------------------------------------------------------------------------------------------------------------

function notesOf(run) {
  const notes = [...run.notes];
  if (!run.rows && !run.errors) notes.unshift("No row has been worked on yet.");
  else if (!run.rows) notes.unshift("No row could be explained.");
  else if (!run.finished) notes.unshift("The run is not finished: this is what it has so far.");
  if (run.noLabels) notes.push(run.noLabels);
  if (run.otherClasses.classes > 0 && run.rows) notes.push(`${counted(run.otherClasses.classes)} more predictions, of ${rowsText(run.otherClasses.rows)}, are not listed.`);
  return notes.map((text) => note("caution", text));
}

function startRun(data, root) {
  const { run } = data;
  themeSwitch(() => document.dispatchEvent(new Event("mixlens-theme")));
  if (!("DecompressionStream" in globalThis)) {
    root.append(note("fail", "This page needs a browser of 2023 or later."));
    return;
  }
  const hero = root.querySelector(".hero");
  if (run.rows && run.methods.length) hero.append(make("p", { class: "answer long" }, ...answerOf(run), ...meaningOf(run)));
  hero.append(...notesOf(run));
  if (run.rows) hero.append(factsOf(run));
  const rows = run.examples.length ? rowsSection(data) : null;
  const toWord = (text, name) => rows.find({ text: `"${text}"`, called: name });
  const parts = run.rows ? [wordsSection(run, rows ? toWord : () => {}), turnedSection(run), agreementSection(run), listsSection(run, (tag) => rows.find({ only: tag }))] : [];
  root.append(...parts.filter(Boolean), ...(rows ? [rows.element] : []), foldsOf(run));
  if (!rows) document.documentElement.dataset.ready = "1";
}
