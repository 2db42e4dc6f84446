"use strict";
// Why the model said it: the answer, the words for and against, whether to trust that, how methods compare, where it comes from.
// `why` is what `Why.to_dict()` gives. whyHead: answer and text; whySections: the evidence below.

const NAMED_BARS = 7; // words beside bars; the rest is one line
const MOST_COLUMNS = 24; // words of a methods table; a longer text shows those that count most
const FEW_COLUMNS = 14;
const COLUMNS_ROOM = 800; // pixels that their columns may take
const LEAST_SPREAD = 0.05; // of the evidence: methods that are nearer to each other on every word do not disagree
const SLOTS = ["[MASK]", "<mask>"];
const CAUSES = { classification: "sure", "token-classification": "sure", "question-answering": "sure" };

function byId(why, id) {
  return why.trust.checks.find((one) => one.id === id) || { state: "info" };
}

/** Words that carry evidence, by their indices. */
function evidence(why) {
  return why.words.map((_, k) => k).filter((k) => !why.words[k].special);
}

function largestShare(why) {
  return evidence(why).reduce((most, k) => Math.max(most, Math.abs(why.words[k].share)), 1e-30);
}

/** The numbers did not add up: bars are grey, and a banner says so. */
function inDoubt(why) {
  return byId(why, "completeness").state === "fail";
}

function said(text) {
  return make("span", { class: "read" }, word(text));
}

/** The question with its answer underlined. */
function questionOf(why) {
  const [target, question] = [why.answer.target, why.question];
  const at = question.lastIndexOf(target);
  if (!target || at < 0) return [question];
  return [question.slice(0, at), make("u", {}, word(target)), question.slice(at + target.length)];
}

// --- the answer --------------------------------------------------------------------------------------------------------------

function chip(why, k) {
  const one = why.words[k];
  const hue = hueOf(one.share, why.method.signed);
  return tinted(make("span", { class: `chip read ${hue}`, "data-k": k }, word(one.text)), one.share / largestShare(why), hue);
}

function certain(why) {
  const { answer, task } = why;
  const two = ofTwo(why);
  if (answer.certainty === "leans") return ["It leans to ", word(answer.target), " (", make("b", {}, probability(answer.probability)), two ? `; ${two})` : ")"];
  const share = two ? ` (${two})` : null;
  if (CAUSES[task]) return ["It is ", make("b", {}, `${probability(answer.probability)} sure`), share];
  return ["It gives ", word(answer.target), " ", make("b", {}, probability(answer.probability)), share];
}

/** Against a foil: the answer’s share of the two, where it is another number than its probability. */
function ofTwo({ answer, trust }) {
  const share = probability(trust.whole);
  return answer.foil === null || share === probability(answer.probability) ? null : `${share} of the two`;
}

/** What the words against the answer spoke for instead. */
function instead(why) {
  if (why.answer.foil !== null) return [" spoke for ", word(why.answer.foil), " instead."];
  const others = (why.classes || []).filter((name) => name !== why.answer.target);
  return others.length === 1 && why.task === "classification" ? [" spoke for ", word(others[0]), " instead."] : [" spoke against it."];
}

/** Where taking the words out does little, the answer says so itself. */
function contradiction(why) {
  return why.trust.but || null;
}

/** Whether the target is what the model says. */
function isPredicted(why) {
  return why.answer.predicted !== false;
}

/** What is asked for, and what the model says instead. */
function unsaid(why, rather) {
  const [best, share] = why.predictions[0];
  return [make("b", {}, probability(why.answer.probability)), " for ", word(why.answer.target), ...rather, ofTwo(why) ? ` (${ofTwo(why)})` : null, "; the model says ", word(best), ` (${probability(share)})`];
}

/** What leads to the words for the target. */
function leadingTo(why) {
  if (!isPredicted(why)) return ["; for ", word(why.answer.target), why.method.signed ? " speak " : ", most came from "];
  return [why.method.signed ? ", mostly because of " : ", and most came from "];
}

function answerOf(why) {
  const { answer } = why;
  const rather = answer.foil !== null ? [" rather than ", word(answer.foil)] : [];
  const start = isPredicted(why) ? [...certain(why), ...rather] : unsaid(why, rather);
  const because = answer.for.length ? [...leadingTo(why), ...listed(answer.for.map((k) => chip(why, k)))] : ["; no word speaks for it"];
  const against = answer.against.length ? [" ", ...listed(answer.against.map((k) => chip(why, k))), ...instead(why)] : [];
  const text = make("p", { class: "answer" }, ...start, ...because, contradiction(why), ".", ...against);
  text.classList.toggle("long", text.textContent.length > 130);
  return text;
}

function othersOf(why) {
  const others = why.predictions.slice(isPredicted(why) ? 1 : 0, 5).filter(([name]) => name !== why.answer.target);
  if (others.length < 2 || why.task === "question-answering") return null;
  const list = others.flatMap(([name, value], i) => [i ? ", " : String(), word(name), ` ${probability(value)}`]);
  return make("p", { class: "small others" }, isPredicted(why) ? "After it: " : "The model’s own: ", ...list, ".");
}

function notesOf(why, state) {
  return why.notes.filter((one) => one.state === state).map((one) => note(state, one.text));
}

// --- the text ----------------------------------------------------------------------------------------------------------------

const SEGMENTS = { text: "Text", pair: "Second text", written: "Written so far" };

function segmentName(why, segment) {
  if (why.task === "question-answering") return { text: "Question", pair: "Text" }[segment] || SEGMENTS[segment];
  return SEGMENTS[segment] || segment;
}

/** The words of the answer where it stands in the text once, for question answering. */
function spanOf(why) {
  if (why.task !== "question-answering") return new Set();
  const squeezed = (text) => text.replace(/\s+/g, String());
  const wanted = squeezed(why.answer.target);
  const found = [];
  why.words.forEach((one, from) => {
    let text = String();
    for (let k = from; k < why.words.length && text.length < wanted.length && why.words[k].segment === "pair"; k++) {
      text += squeezed(why.words[k].text);
      if (text === wanted) found.push([from, k]);
    }
  });
  if (found.length !== 1) return new Set();
  return new Set(Array.from({ length: found[0][1] - found[0][0] + 1 }, (_, i) => found[0][0] + i));
}

function textOf(why, special) {
  const segments = Object.keys(SEGMENTS).filter((name) => why.words.some((one) => one.segment === name && (special || !one.special || SLOTS.includes(one.text))));
  const answer = spanOf(why);
  const boxes = segments.map((segment) => {
    const name = segmentName(why, segment);
    const box = strip(why.words, {
      signed: why.method.signed, special, segment, most: largestShare(why), always: (one) => SLOTS.includes(one.text),
      label: `${name}, each ${why.unit} with its share of the evidence`,
    });
    for (const one of box.querySelectorAll(".w")) {
      if (SLOTS.includes(why.words[one.dataset.k].text)) one.classList.add("slot");
      if (answer.has(Number(one.dataset.k))) one.classList.add("span");
    }
    return make("div", { class: "segment" }, segments.length > 1 ? make("p", { class: "small" }, name) : null, box);
  });
  return boxes;
}

function unitOf(why) {
  const left = why.words.length > LONG ? `The ${MOST_TINTED} ${why.unit}s that count most are marked.` : `${why.unit === "word" ? "Words" : "Tokens"} under ${MARKED * 100}${THIN}% carry no mark.`;
  const unit = why.method.signed
    ? `Unit: share of all evidence in this text; for and against make 100${THIN}%.`
    : `Unit: share of the answer; all ${why.unit}s make 100${THIN}%. It says how much, not which way.`;
  return `${unit} ${left}`;
}

function sidesOf(why) {
  return [`against ${why.answer.target}`, why.method.signed ? `for ${why.answer.target}` : "share of the answer"];
}

/** One word in a line: what is pointed at. */
function lineOf(why, k) {
  const one = why.words[k];
  const share = why.method.signed ? signedPercent(one.share) : percent(one.share);
  const raw = ` (raw score ${rawNumber(one.score)})`;
  if (one.special) return [said(one.text), ` is a special token: raw score ${rawNumber(one.score)}, left out of the shares`];
  return ["“", said(one.text), `” carries ${share} of ${why.method.signed ? "the evidence" : "the answer"}${raw}`];
}

function specimen(why) {
  const words = make("div", { class: "segments" }, ...textOf(why, false));
  const specials = why.words.some((one) => one.special && !SLOTS.includes(one.text));
  const held = why.special_share > 0 ? `; they held ${percent(why.special_share)} of all scores` : String();
  const shown = specials ? switchBox(`Show special tokens${held}`, false, (on) => words.replaceChildren(...textOf(why, on))) : null;
  const line = readout(`Point at a ${why.unit}, or go through the text with the arrow keys.`);
  const below = make(
    "div", { class: "below" },
    legend({ signed: why.method.signed, sides: sidesOf(why), most: largestShare(why), unit: unitOf(why) }),
    make("div", { class: "no-print specials" }, line.element, shown),
  );
  return { element: make("div", { class: "panel specimen keep" }, words, below), line };
}

/** Answer, notes and text: what stands first. `say` is told the word that is pointed at. */
function whyHead(why) {
  const { element, line } = specimen(why);
  const parts = [...notesOf(why, "fail"), inDoubt(why) ? note("fail", ...doubtText(why)) : null, answerOf(why), othersOf(why), element, ...notesOf(why, "caution")];
  return { parts: parts.filter(Boolean), say: (k) => (k === null ? line.say() : line.say(...lineOf(why, k))) };
}

function doubtText(why) {
  return [make("b", {}, "The scores do not add up. "), `They miss ${gapText(why.gaps.completeness)} of the model’s output, so the shares below are not exact.`];
}

// --- which words counted -----------------------------------------------------------------------------------------------------

/** The words beside bars: those that the sentence names, then those with the largest shares, from most for to most against; and what the others carry. */
function ranked(why) {
  const named = new Set([...why.answer.for, ...why.answer.against]);
  const all = evidence(why).sort((a, b) => named.has(b) - named.has(a) || Math.abs(why.words[b].share) - Math.abs(why.words[a].share));
  const shown = all.slice(0, Math.max(NAMED_BARS, named.size)).filter((k) => why.words[k].share !== 0).sort((a, b) => why.words[b].share - why.words[a].share);
  const rest = all.filter((k) => !shown.includes(k));
  return { shown, rest, carried: rest.reduce((sum, k) => sum + Math.abs(why.words[k].share), 0) };
}

function ordinal(place) {
  const ending = place % 100 > 10 && place % 100 < 14 ? "th" : ["th", "st", "nd", "rd"][place % 10] || "th";
  return `${place}${ending}`;
}

/** Of a word that stands in the text more than once: which one this is, “(4th word)”; marks are counted apart. */
function whichOf(why, k) {
  const { text, mark, segment } = why.words[k];
  const twins = evidence(why).filter((one) => why.words[one].text === text);
  if (twins.length < 2) return null;
  const other = segment === "pair" ? " of the second text" : String();
  const here = (one) => why.words[one].segment === segment;
  if (!mark) return `(${ordinal(evidence(why).filter((one) => here(one) && !why.words[one].mark).indexOf(k) + 1)} word${other})`;
  const same = twins.filter(here);
  return same.length === 1 ? `(${other.trim() || "of the first text"})` : `(${ordinal(same.indexOf(k) + 1)} of ${same.length}${other})`;
}

function restLine(why, { rest, carried }) {
  if (!rest.length) return null;
  const marks = rest.some((k) => why.words[k].mark) ? " and marks" : String();
  const what = rest.length === 1 ? `${why.unit}${marks ? " or mark" : String()} carries` : `${why.unit}s${marks} carry`;
  return make("p", { class: "small rest" }, `${counted(rest.length)} more ${what} ${percent(carried)}${rest.length === 1 ? String() : " together"}.`);
}

function everyNumber(why) {
  const heads = [why.unit, "share", "raw score", "token positions"];
  const rows = why.words.map((one) => [
    word(one.text), one.special ? "special" : why.method.signed ? signedPercent(one.share) : percent(one.share), rawNumber(one.score), one.tokens.join(" "),
  ]);
  return scrollBox("Every number", table(heads, rows, { numbers: [1, 2], said: true }));
}

function whichWords(why) {
  const order = ranked(why);
  const { signed } = why.method;
  const target = why.answer.target;
  const sum = (of) => evidence(why).reduce((so, k) => so + Math.max(0, of * why.words[k].share), 0);
  const [forIt, against] = [sum(1), sum(-1)];
  const rows = order.shown.map((k) => ({ k, name: why.words[k].text, which: whichOf(why, k), share: why.words[k].share, title: `raw score ${rawNumber(why.words[k].score)}` }));
  const heads = signed && against > 0 && forIt > 0
    ? make("div", { class: "bar-head", "aria-hidden": "true" }, make("span", {}), make("div", {}, make("span", {}, "← against"), make("span", {}, "for →")))
    : null;
  return make(
    "div", { class: "which" },
    make("div", { class: "head" }, make("h2", {}, signed ? "Which words counted, and which way" : "Which words counted"),
      make("p", { class: "lead" }, signed ? `Share of the evidence, by ${why.method.name}.` : `Share of the answer, by ${why.method.name}; it has no sign.`)),
    ...(signed ? balance([["against", against, `against ${target}`], ["for", forIt, `for ${target}`]], `For ${target} ${percent(forIt)}, against ${percent(against)}`) : []),
    heads, bars(rows, { signed, doubt: inDoubt(why), label: "Words by their share" }), restLine(why, order),
    aside("Every number, with the raw scores", () => everyNumber(why)),
  );
}

// --- can I trust this --------------------------------------------------------------------------------------------------------

/** One line from 0 to 100 %: where the whole text is, and where it is with words taken out. */
function track({ title, before, after, band = null, small, strong = false }) {
  const at = (value) => `${Math.max(0, Math.min(1, value)) * 100}%`;
  const span = [Math.min(before, after), Math.abs(before - after)];
  const line = make(
    "div", { class: "line", role: "img", "aria-label": `from ${probability(before)} to ${probability(after)}` },
    band ? make("span", { class: "range", style: { left: at(band[0]), width: at(band[1] - band[0]) } }) : null,
    make("span", { class: "way", style: { left: at(span[0]), width: at(span[1]) } }),
    make("span", { class: "dot from", style: { left: at(before) } }), make("span", { class: "dot to", style: { left: at(after) } }),
  );
  return make("div", { class: strong ? "track strong" : "track" }, make("div", { class: "what" }, make("span", {}, ...title), make("b", {}, probability(after))), line, make("p", { class: "small" }, small));
}

function wordsOf(why, places) {
  return listed(places.map((k) => said(why.words[k].text)));
}

function these(k) {
  return k === 1 ? "this word" : `these ${numberWord(k)} words`;
}

/** In how many random sets the model says something else; where it does not say the target, in how many the foil is likelier. */
function turningOf(why) {
  const { turned, count } = why.trust.random;
  const where = `; in ${counted(turned)} of ${counted(count)} `;
  if (isPredicted(why)) return turned ? `${where}the model says something else` : "; in none does the model say something else";
  if (why.answer.foil === null) return String();
  return turned ? `${where}${why.answer.foil} is likelier` : `; in none is ${why.answer.foil} likelier`;
}

function tracks(why) {
  const { trust, answer } = why;
  const { random } = trust;
  const now = trust.without_prediction === answer.target ? "; the model still says " : "; the model now says ";
  const of = random.all ? `average of all ${counted(random.count)} other sets` : `average of ${counted(random.count)} draws`;
  const range = random.low === random.high ? String() : `; they range from ${probability(random.low)} to ${probability(random.high)} (bar)`;
  return [
    track({ title: ["Without ", ...wordsOf(why, answer.for)], before: trust.whole, after: trust.without, strong: true, small: `was ${probability(trust.whole)}${now}${trust.without_prediction}` }),
    random.count && track({ title: [`Without ${trust.k === 1 ? "one random word" : `${numberWord(trust.k)} random words`}`], before: trust.whole, after: random.mean, band: [random.low, random.high],
      small: `${of}${range}${turningOf(why)}` }),
    track({ title: [`With ${these(trust.k)} alone`], before: trust.whole, after: trust.alone, small: "every other word taken out" }),
  ].filter(Boolean);
}

function trustPanel(why) {
  const { trust } = why;
  const measured = trust.measures || `probability of ${why.answer.target}`;
  const shown = trust.checks.filter((one) => one.id !== "removal" && one.id !== "reconstruction");
  const verdict = make("div", { class: `verdict check ${trust.verdict}` }, icon(trust.verdict), make("p", {}, make("span", { class: "heard" }, SPOKEN[trust.verdict]), trust.sentence));
  const scale = [
    make("p", { class: "small axis" }, make("span", {}, `0${THIN}%`), make("span", {}, measured), make("span", {}, `100${THIN}%`)),
    make("p", { class: "small marks" }, make("span", {}, make("span", { class: "dot from" }), " whole text"), make("span", {}, make("span", { class: "dot to" }), ` words taken out (${trust.filler.text})`)),
  ];
  return make(
    "section", { class: "panel trust", "aria-labelledby": "trust" }, make("h2", { id: "trust" }, "Can I trust this?"), verdict,
    ...(trust.k ? [...tracks(why), ...scale] : []),
    shown.length ? make("div", { class: "checks" }, ...shown.map((one) => check(one.state === "info" && one.id === "single" ? "info" : one.state, one.title, one.detail))) : null,
  );
}

// --- how fast the answer falls ------------------------------------------------------------------------------------------------

const PLOT = { width: 520, height: 268, left: 56, right: 20, top: 22, bottom: 206 };

function meanOf(lines) {
  return lines[0].map((_, i) => lines.reduce((sum, line) => sum + line[i], 0) / lines.length);
}

function fallPicture(why) {
  const { first, random } = why.trust.curve;
  const steps = first.length - 1;
  const x = (i) => PLOT.left + (i / steps) * (PLOT.width - PLOT.left - PLOT.right);
  const y = (value) => PLOT.bottom - value * (PLOT.bottom - PLOT.top);
  const path = (line) => line.map((value, i) => `${x(i).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  const mean = random.length ? meanOf(random) : null;
  const third = Math.min(why.trust.k || 3, steps);
  const finding = `${why.trust.measures || "Probability"} as words are taken out, highest score first: ${probability(first[0])} at first, ${probability(first[third])} after ${numberWord(third)}${mean ? `; in random order ${probability(mean[third])}` : String()}.`;
  const picture = draw("svg", { viewBox: `0 0 ${PLOT.width} ${PLOT.height}`, role: "img", "aria-label": finding, class: "fall" });
  for (const value of [0, 0.5, 1]) {
    picture.append(
      draw("line", { x1: PLOT.left, x2: PLOT.width - PLOT.right, y1: y(value), y2: y(value), class: "grid" }),
      draw("text", { x: PLOT.left - 8, y: y(value) + 4, "text-anchor": "end", class: "axis" }, `${value * 100}${THIN}%`),
    );
  }
  const every = Math.max(1, Math.ceil(steps / 10));
  for (let i = 0; i <= steps; i += every) picture.append(draw("text", { x: x(i), y: PLOT.bottom + 20, "text-anchor": "middle", class: "axis" }, String(i)));
  picture.append(draw("text", { x: (PLOT.left + PLOT.width - PLOT.right) / 2, y: PLOT.bottom + 44, "text-anchor": "middle", class: "axis" }, "words taken out"));
  for (const line of random) picture.append(draw("polyline", { points: path(line), class: "draw" }));
  if (mean) picture.append(draw("polyline", { points: path(mean), class: "mean" }));
  picture.append(draw("polyline", { points: path(first), class: "first" }));
  first.forEach((value, i) => picture.append(draw("circle", { cx: x(i), cy: y(value), r: steps > 20 ? 2 : 3.5, class: "point" }, draw("title", {}, `${i} taken out: ${probability(value)}`))));
  return picture;
}

function fallNumbers(why) {
  const { first, random } = why.trust.curve;
  const mean = random.length ? meanOf(random) : null;
  const heads = ["words taken out", "highest score first", ...(mean ? [`random order, mean of ${random.length}`] : [])];
  return scrollBox("Every number", table(heads, first.map((value, i) => [String(i), probability(value), ...(mean ? [probability(mean[i])] : [])]), { numbers: [1, 2] }));
}

function falling(why) {
  const { curve, k, filler } = why.trust;
  if (!k || curve.first.length < 3) return null;
  const ends = curve.first.length - 1 >= evidence(why).filter((one) => !why.words[one].mark).length;
  const told = [
    "Solid: the highest score first.", curve.random.length ? ` Dashed: the average of ${counted(curve.random.length)} random orders; thin: each of them.` : String(),
    ends ? ` The last point has no word left (${probability(why.trust.empty)}).` : String(), ` Taken out means: ${filler.text}.`,
  ];
  const lead = `The ${why.trust.measures || "probability"} as words go. The steeper the solid line, the better the scores point at what the model uses.`;
  return make(
    "section", { "aria-labelledby": "falling", class: "two keep" },
    make("div", {}, make("h2", { id: "falling" }, "How fast the answer falls"), make("p", { class: "lead" }, lead), make("p", { class: "small told" }, ...told), aside("Every number", () => fallNumbers(why))),
    make("figure", {}, make("figcaption", { class: "small" }, why.trust.measures || "probability"), fallPicture(why)),
  );
}

// --- the same sentence, read by several methods --------------------------------------------------------------------------------

/** The words that the answer or the sentence on agreement names: a table has a column for each. */
function namedWords(why) {
  const disagreed = disagreedWord(why);
  return new Set([...why.answer.for, ...why.answer.against, ...(disagreed === null ? [] : [disagreed])]);
}

/** The words that a table has room for, in the order of the text: those that the sentence names, then those with the largest shares. */
function columnsOf(why, most) {
  const all = evidence(why);
  const width = all.reduce((sum, k) => sum + Math.max(34, 12 + 8 * Math.min(14, why.words[k].text.length)), 0);
  if (all.length <= most && width <= COLUMNS_ROOM) return { shown: all, rest: [] };
  const weight = (k) => Math.max(...why.methods.map((one) => Math.abs(one.shares[k])));
  const named = namedWords(why);
  const order = [...all].sort((a, b) => named.has(b) - named.has(a) || weight(b) - weight(a));
  const shown = order.slice(0, Math.max(FEW_COLUMNS, named.size)).sort((a, b) => a - b);
  return { shown, rest: all.filter((k) => !shown.includes(k)) };
}

function wholePercent(share, signed) {
  const size = Math.abs(share * 100);
  if (size < 0.5) return "·";
  return `${signed ? (share < 0 ? MINUS : "+") : String()}${size.toFixed(0)}`;
}

function methodCell(one, k, most) {
  const share = one.shares[k];
  const cell = make("td", { class: "cell", "data-k": k, title: `${share < 0 ? MINUS : String()}${percent(Math.abs(share))} (raw score ${rawNumber(one.scores[k])})` }, wholePercent(share, one.signed));
  return Math.abs(share) < 0.005 ? cell : tinted(cell, share / most, hueOf(share, one.signed));
}

function restCell(one, rest) {
  return make("td", { class: "cell rest", title: "sum of shares without sign" }, wholePercent(rest.reduce((sum, k) => sum + Math.abs(one.shares[k]), 0), false));
}

function largestOfRow(one, places) {
  return places.reduce((so, k) => Math.max(so, Math.abs(one.shares[k])), 1e-30);
}

function bothNames(one) {
  return [make("b", {}, one.everyday), make("span", { class: "small" }, one.name)];
}

/** Methods as rows. Unsigned ones stand below a divider. */
function methodsWide(why, { shown, rest }) {
  const heads = [
    make("th", { scope: "col" }, "Method"), ...shown.map((k) => make("th", { scope: "col", class: "said", "data-k": k }, word(shortened(why.words[k].text, 14)))),
    rest.length ? make("th", { scope: "col" }, `${counted(rest.length)} others`) : null,
    make("th", { scope: "col", class: "number same" }, sameHead(why)),
  ];
  const row = (one) => make(
    "tr", {}, make("th", { scope: "row", class: "names" }, ...bothNames(one)), ...shown.map((k) => methodCell(one, k, largestOfRow(one, shown))),
    rest.length ? restCell(one, rest) : null, make("td", { class: "number" }, `${one.same_first} of ${why.agreement.k}`),
  );
  const [signed, unsigned] = [why.methods.filter((one) => one.signed), why.methods.filter((one) => !one.signed)];
  const divider = signed.length && unsigned.length
    ? make("tr", { class: "divider" }, make("td", { colspan: shown.length + 2 + (rest.length ? 1 : 0) }, "Without a sign: how much, not in which direction")) : null;
  return make("table", { class: "methods-table wide-table" }, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...signed.map(row), divider, ...unsigned.map(row)));
}

function sameHead(why) {
  return why.agreement.k === 1 ? "Same word first" : `Same ${numberWord(why.agreement.k)} words first`;
}

/** Words as rows, for narrow screens. */
function methodsNarrow(why, { shown, rest }) {
  const heads = [make("th", { scope: "col" }, "Word"), ...why.methods.map((one) => make("th", { scope: "col", class: "turned" }, make("span", {}, one.name)))];
  const most = why.methods.map((one) => largestOfRow(one, shown));
  const rows = shown.map((k) => make("tr", {}, make("th", { scope: "row", class: "said", "data-k": k }, word(shortened(why.words[k].text, 14))), ...why.methods.map((one, i) => methodCell(one, k, most[i]))));
  const others = rest.length ? make("tr", {}, make("th", { scope: "row" }, `${counted(rest.length)} others`), ...why.methods.map((one) => restCell(one, rest))) : null;
  const same = make("tr", {}, make("th", { scope: "row" }, sameHead(why)), ...why.methods.map((one) => make("td", { class: "cell rest" }, `${one.same_first} of ${why.agreement.k}`)));
  return make("table", { class: "methods-table narrow-table" }, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows, others, same));
}

/** How far the methods with signs are apart on a word: the least and the largest of its shares. */
function rangeOf(why, k) {
  const shares = why.methods.filter((one) => one.signed).map((one) => one.shares[k]);
  return [Math.min(...shares), Math.max(...shares)];
}

/** The word that methods with signs are furthest apart on, if they are apart. */
function disagreedWord(why) {
  if (why.methods.filter((one) => one.signed).length < 2) return null;
  const spread = (k) => rangeOf(why, k)[1] - rangeOf(why, k)[0];
  const most = evidence(why).reduce((so, k) => (so === null || spread(k) > spread(so) ? k : so), null);
  return most !== null && spread(most) >= LEAST_SPREAD ? most : null;
}

function agreementText(why) {
  const { same, of, k } = why.agreement;
  const first = k === 1 ? "the same word first" : `the same ${numberWord(k)} words first`;
  const told = same === of ? `All ${numberWord(of)} put ${first}.` : same < 2 ? `No other method puts ${first}.` : `${numberWord(same).replace(/^./, (letter) => letter.toUpperCase())} of ${numberWord(of)} put ${first}.`;
  const other = disagreedWord(why);
  return other === null ? [told] : [told, " They disagree most about ", said(why.words[other].text), ` (${rangeOf(why, other).map(signedPercent).join(" to ")}).`];
}

function methodsSection(why) {
  if (why.methods.length < 2) return null;
  const columns = columnsOf(why, MOST_COLUMNS);
  const signed = why.methods.some((one) => one.signed);
  const unsigned = why.methods.some((one) => !one.signed);
  const key = (hue, text) => make("span", { class: "key" }, make("span", { class: `swatch ${hue}` }), text);
  const below = make(
    "div", { class: "legend" }, signed ? key("against", `${MINUS} against`) : null, signed ? key("for", `+ for ${why.answer.target}`) : null, unsigned ? key("share", "no sign") : null,
    make("span", {}, "Percent of the row; the strongest colour is the row’s largest. · is under 0.5. Special tokens are left out."),
    columns.rest.length ? make("span", {}, `The ${numberWord(columns.shown.length)} words that are named or have the largest shares; the others are added up without their sign.`) : null,
  );
  const title = `The same text, read by ${numberWord(why.methods.length)} methods`;
  const lead = make("p", { class: "lead" }, "Each row is one method’s share of the evidence in percent. ", ...agreementText(why));
  return make(
    "section", { "aria-labelledby": "methods" }, make("div", { class: "head" }, make("h2", { id: "methods" }, title), lead),
    scrollBox("Methods and words", make("div", {}, methodsWide(why, columns), methodsNarrow(why, columns))), below,
  );
}

// --- where it comes from -------------------------------------------------------------------------------------------------------

const LIMIT_NAMES = {
  removal_ok: "words out, against random: passes from", removal_caution: "words out, against random: caution from", completeness_ok: "gap of the sum: passes up to",
  completeness_caution: "gap of the sum: caution up to", agreement_ok: "methods with the same words first: passes above",
};

function limitRows(why) {
  return Object.entries(why.limits).map(([name, value]) => [LIMIT_NAMES[name] || name.replace(/_/g, " "), name.startsWith("removal") ? `${(value * 100).toFixed(0)} points` : percent(value)]);
}

/** Whether there is something to write: not nothing, nor an empty list or table. */
function isGiven(value) {
  return value !== null && value !== undefined && value !== String() && !(typeof value === "object" && !Object.keys(value).length);
}

function plainly(value) {
  if (Array.isArray(value)) return value.filter(isGiven).map(plainly).join(", ");
  return typeof value === "object" ? assignments(value).join(", ") : typeof value === "number" ? String(Number(value.toPrecision(4))) : String(value);
}

/** `name = value` of everything that is given; what is in "options" needs no word before it. */
function assignments(values, before = String()) {
  return Object.entries(values).filter(([, value]) => isGiven(value)).flatMap(([key, value]) => {
    const name = `${before}${key.replace(/_/g, " ")}`;
    if (typeof value !== "object" || Array.isArray(value)) return [`${name} = ${plainly(value)}`];
    return assignments(value, key === "options" ? before : `${name} `);
  });
}

/** One line for each method that has options. */
function optionRows(why, methods) {
  const name = (id) => (why.methods.find((one) => one.id === id) || { name: id }).name;
  return Object.entries(methods || {}).map(([id, values]) => [`Options of ${name(id)}`, assignments(values).join("; ")]).filter(([, text]) => text);
}

function provenance(why) {
  const { provenance: from, gaps, method, trust } = why;
  const { command, methods, ...versions } = from;
  const rows = [
    ["Model", why.model], ["Task", why.task.replace(/-/g, " ")], why.classes ? ["Classes", why.classes.join(", ")] : null,
    ["Method", `${method.name} (${method.id}). ${method.reason}`], method.paper ? ["Paper", method.paper] : null,
    gaps.completeness === null ? null : ["Scores add up", `gap ${gapText(gaps.completeness)} (${gaps.completeness.toExponential(1)})`],
    gaps.reconstruction === null ? null : ["Layers rebuilt from their parts", `largest gap ${gaps.reconstruction.toExponential(1)}`],
    ["Words taken out", `${trust.filler.text} (${trust.filler.id})`],
    why.special_share > 0 ? ["Special tokens", `held ${percent(why.special_share)} of all scores without sign; left out of the shares`] : null,
    ...Object.entries(versions).filter(([, value]) => isGiven(value)).map(([name, value]) => [name[0].toUpperCase() + name.slice(1), plainly(value)]),
    ...optionRows(why, methods),
    ["Limits of the checks", limitRows(why).map((row) => row.join(" ")).join("; ")],
    command ? ["Make it again", make("code", {}, command)] : null,
  ];
  return facts(rows.filter(Boolean));
}

/** Everything below the text. */
function whySections(why) {
  return [make("div", { class: "two evidence" }, whichWords(why), trustPanel(why)), falling(why), methodsSection(why)].filter(Boolean);
}

function whyProvenance(why, { title = "Where these numbers come from", open = false } = {}) {
  return fold(title, "model, method, versions, what was checked, the command", () => provenance(why), { print: true, open });
}

function startWhy({ why }, root) {
  themeSwitch();
  root.querySelector("h1").replaceChildren(...questionOf(why));
  const { parts, say } = whyHead(why);
  const written = root.querySelector(".hero .answer");
  if (written) written.remove();
  root.querySelector(".hero").append(...parts);
  root.append(...whySections(why), make("section", { class: "folds" }, whyProvenance(why)));
  lightWords(root, say);
  document.documentElement.dataset.ready = "1";
}
