"use strict";
// The rows of a run: found by word, class and list, tinted by one method, opened into all of them.

const AT_ONCE = 20; // rows that "Show 20 more" adds
const FIRST_ROWS = 10;
const TINTED_SHARE = 0.06; // of a row's evidence: under it a word is plain
const ACROSS = 24; // words of a row above which its table has words as rows

const ORDERS = {
  row: ["as in the data", () => (one) => one.row],
  unsure: ["least sure first", () => (one) => one.probability ?? 2],
  sure: ["surest first", () => (one) => -(one.probability ?? -1)],
  fall: ["largest fall first", (method) => (one) => (one.check && one.check.left[method] !== null ? one.check.left[method] - one.probability : 2)],
  apart: ["least agreement first", () => (one) => one.agreement ?? 2],
  long: ["longest first", () => (one) => -one.tokens.length - one.leftOut],
  gap: ["largest reconstruction gap first", () => (one) => -(one.gap ?? -1)],
};

/** Shares of a row's words by one method: sums of tokens, as parts of the sum of absolute sums. */
function wordShares(one, scores) {
  const sums = one.words.map(([, , , tokens]) => tokens.reduce((so, token) => so + scores[token], 0));
  const total = sums.reduce((so, sum) => so + Math.abs(sum), 0);
  return sums.map((sum) => (total > 0 ? sum / total : 0));
}

/** The text of a row, its words tinted. */
function rowText(one, shares, signed) {
  const most = shares.reduce((so, share) => Math.max(so, Math.abs(share)), 1e-30);
  const box = make("span", { class: "row-text", dir: directionOf(one.text) });
  one.words.forEach(([text, before, segment], k) => {
    const share = shares[k];
    const apart = k && segment !== one.words[k - 1][2];
    box.append(...(apart ? [make("br")] : gapBefore(k ? before : String())));
    const element = make("span", { "data-value": share }, word(text));
    if (Math.abs(share) >= TINTED_SHARE) {
      const hue = hueOf(share, signed);
      element.classList.add(hue);
      element.title = `${text}: ${signed ? signedPercent(share) : percent(share)}`;
      tinted(element, share / most, hue);
    }
    box.append(element);
  });
  return box;
}

function sideOf(one, method) {
  const parts = [make("b", {}, word(one.prediction), one.probability === null ? String() : ` ${probability(one.probability)}`), " "];
  if (one.correct !== null) parts.push(make("span", { class: one.correct ? "right" : "wrong" }, one.correct ? "✓ right" : "✗ is ", one.correct ? null : word(one.label)));
  const left = one.check ? one.check.left[method] : null;
  if (left !== null) parts.push(make("br"), make("span", { class: "small" }, `without its top 3: ${probability(left)}${one.check.turned[method] ? ", turned" : String()}`));
  return make("span", { class: "row-side" }, ...parts);
}

/** Whole percents of a row's evidence by every method; words across, or down where there are many or the screen is narrow. */
function methodsTable(run, one, sheet) {
  const rows = one.methods.map((name, i) => {
    const number = run.methods.indexOf(name);
    return { name: run.names[number], signed: run.isSigned[number], shares: wordShares(one, sheet.row(i)), left: one.check ? one.check.left[i] : null };
  });
  rows.sort((a, b) => Number(b.signed) - Number(a.signed)); // unsigned below, in the order of the run
  const cell = (row, k) => {
    const share = row.shares[k];
    const whole = Math.round(Math.abs(share) * 100);
    const most = row.shares.reduce((so, value) => Math.max(so, Math.abs(value)), 1e-30);
    const sign = !row.signed || !whole ? String() : share < 0 ? MINUS : "+";
    return tinted(make("td", { class: "cell", "data-value": share }, whole ? `${sign}${whole}` : "·"), share / most, hueOf(share, row.signed));
  };
  const across = () => make(
    "table", { class: "methods across" }, make("thead", {}, make("tr", {}, make("td", {}), ...one.words.map(([text]) => make("th", { scope: "col", class: "read" }, word(text))))),
    make("tbody", {}, ...rows.map((row, i) => make("tr", { class: i && !row.signed && rows[i - 1].signed ? "divided" : null }, make("th", { scope: "row" }, row.name), ...one.words.map((_, k) => cell(row, k))))),
  );
  const down = () => make(
    "table", { class: "methods down" }, make("thead", {}, make("tr", {}, make("td", {}), ...rows.map((row) => make("th", { scope: "col" }, row.name)))),
    make("tbody", {}, ...one.words.map(([text], k) => make("tr", {}, make("th", { scope: "row", class: "read" }, word(text)), ...rows.map((row) => cell(row, k))))),
  );
  const many = one.words.length > ACROSS;
  return [...(many ? [] : [across()]), down()].map((made) => make("div", { class: many ? "always" : made.classList.contains("across") ? "broad" : "slim" }, scrollBox(`Row ${one.row} by every method`, made)));
}

function insideOf(run, one, sheet) {
  const parts = sheet ? methodsTable(run, one, sheet) : [];
  const told = [`Percent of the row’s evidence for ${one.target ?? one.prediction}, each method on its own scale.`];
  const check = one.check;
  if (check && check.randomLeft.length) {
    const mean = check.randomLeft.reduce((so, left) => so + left, 0) / check.randomLeft.length;
    const turned = check.randomTurned.filter(Boolean).length;
    told.push(`Three random words taken out leave ${probability(mean)} on average; ${turned ? `${turned} of ${check.randomLeft.length} draws turn` : `none of ${check.randomLeft.length} draws turns`} the answer.`);
    one.methods.forEach((name, i) => told.push(`${run.names[run.methods.indexOf(name)]}: ${probability(check.left[i])}.`));
  }
  if (one.leftOut) told.push(`${counted(one.leftOut)} more tokens are not shown.`);
  parts.push(make("p", { class: "small" }, told.join(" ")));
  const known = [...(one.id === String(one.row) ? [] : [["id", one.id]]), ...one.carried, ...(one.agreement === null ? [] : [["mean rank correlation of methods", numberOf(one.agreement)]])];
  if (known.length) parts.push(facts(known));
  if (sheet) parts.push(aside("Every number", () => numbersOf(run, one, sheet)));
  if (one.maps) parts.push(aside("Layer maps", () => mapsOf(run, one)));
  return parts;
}

function numbersOf(run, one, sheet) {
  const rows = one.methods.map((_, number) => sheet.row(number));
  const lines = one.tokens.map((token, i) => [String(i), word(token), ...rows.map((row) => rawNumber(row[i]))]);
  const more = [...(one.gap === null ? [] : [["reconstruction gap", one.gap.toExponential(1)]]), ["time", timeText(one.seconds)]];
  const numbers = one.methods.map((_, i) => i + 2);
  return [facts(more), scrollBox(`Every number of row ${one.row}`, table(["position", "token", ...one.methods], lines, { numbers }))];
}

/** A word with the one that stands directly behind it: lists have an apostrophe and its ending ("it 's") as one word. */
function withEnding(words, i) {
  const next = words[i + 1];
  return words[i][0].length === 1 && "'’".includes(words[i][0]) && next && !next[1] ? words[i][0] + next[0] : words[i][0];
}

/** The rows, with what finds them. `find` sets the choices that are named, and goes to the rows. */
function rowsSection(data) {
  const { run } = data;
  const state = { text: String(), called: String(), only: String(), order: "row", method: run.lead ?? 0, most: FIRST_ROWS };
  const sheets = new Map();
  const sheetOf = (one) => {
    if (!sheets.has(one)) sheets.set(one, one.scores ? Sheet.of(one.scores) : Promise.resolve(null));
    return sheets.get(one);
  };
  const list = make("div", { class: "rows" });
  const said = make("p", { role: "status", class: "found small" });
  const more = make("button", { type: "button", class: "no-print", onclick: () => { state.most += AT_ONCE; show(); } });
  let turn = 0; // a list that was overtaken by a later choice is not drawn

  const holds = (one, text) => {
    const quoted = text.match(/^"(.+)"$/);
    if (quoted) return one.words.some(([own], i) => [own, withEnding(one.words, i)].some((written) => written.toLowerCase() === quoted[1]));
    return [one.text, one.pair, one.id, ...one.carried.map(([, value]) => value)].some((value) => value && value.toLowerCase().includes(text));
  };

  function wanted() {
    const text = state.text.trim().toLowerCase();
    const key = ORDERS[state.order][1](state.method);
    return run.examples
      .filter((one) => !state.called || one.prediction === state.called)
      .filter((one) => !state.only || (state.only === "bad" ? one.correct === false : one.tags.includes(state.only)))
      .filter((one) => !text || holds(one, text))
      .sort((a, b) => key(a) - key(b) || a.row - b.row);
  }

  async function rowView(one) {
    const sheet = await sheetOf(one);
    const own = one.methods.indexOf(run.methods[state.method]);
    const shares = sheet && own >= 0 ? wordShares(one, sheet.row(own)) : one.words.map(() => 0);
    const summary = make("summary", {}, make("span", { class: "row-number" }, counted(one.row)), rowText(one, shares, run.isSigned[state.method]), sideOf(one, Math.max(0, own)));
    return opening(make("details", { class: "row", "data-row": one.row }, summary), () => insideOf(run, one, sheet));
  }

  async function show() {
    turn += 1;
    const mine = turn;
    const found = wanted();
    const some = found.slice(0, state.most);
    try {
      const made = await Promise.all(some.map(rowView));
      if (mine !== turn) return;
      list.replaceChildren(...made);
      const hint = `Words from 6${THIN}% of the evidence are tinted; open a row for every method.`;
      said.replaceChildren(found.length ? `${counted(found.length)} of ${rowsText(run.examples.length)}. ${hint}` : "No row has this. Search for another word, or choose every row.");
    } catch (error) {
      said.replaceChildren(`The numbers of this page cannot be read: ${error.message}`);
    }
    more.hidden = some.length >= found.length;
    more.textContent = `Show ${Math.min(AT_ONCE, found.length - some.length)} more`;
    document.documentElement.dataset.ready = String(turn); // for whoever drives the page
  }

  const choose = (name, as = String) => (value) => {
    state[name] = as(value);
    state.most = FIRST_ROWS;
    show();
  };
  const any = String();
  const id = freshId("search");
  const search = make("input", { id, type: "search", oninput: () => choose("text")(search.value) });
  const there = [...new Set(run.examples.map((one) => one.prediction))].sort();
  const tags = Object.keys(LISTS).filter((tag) => run.examples.some((one) => one.tags.includes(tag)));
  const bad = run.examples.some((one) => one.correct === false) ? [["bad", "wrong"]] : [];
  const fields = {
    called: picked("Called", [[any, "any class"], ...there.map((name) => [name, name])], choose("called")),
    only: picked("Only", [[any, "every row"], ...bad, ...tags.map((tag) => [tag, LISTS[tag][2]])], choose("only")),
    method: picked("Tint by", run.names.map((name, i) => [i, name]), choose("method", Number)),
    order: picked("Order", Object.entries(ORDERS).filter(([name]) => name !== "fall" || run.removal).map(([name, [text]]) => [name, text]), choose("order")),
  };
  fields.method.select.value = String(state.method);
  const whole = run.examples.length === run.rows;
  const chosen = `${counted(run.examples.length)} of ${counted(run.rows)} rows are here: some evenly spaced over the data, and those where methods disagree most, the model is least sure or wrong, nothing turned it, or scores do not add up.`;
  const hue = run.isSigned.some(Boolean) ? "Blue with a solid line counts for what was predicted, orange with a dashed line against it" + (run.isSigned.every(Boolean) ? "." : "; violet has no sign.") : "Violet has no sign.";
  const element = section(
    { title: whole ? "All rows" : "Some rows", lead: [whole ? null : `${chosen} `, hue, run.held ? ` ${run.held}` : null].filter(Boolean).join(String()), id: "rows" },
    make("div", { class: "find no-print" }, make("div", { class: "field" }, make("label", { for: id }, "Word or text"), search), ...Object.values(fields).map((field) => field.element)),
    said, list, make("p", {}, more),
  );
  const find = (next) => {
    Object.assign(state, { text: String(), called: String(), only: String(), most: FIRST_ROWS }, next);
    search.value = state.text;
    fields.called.select.value = state.called;
    fields.only.select.value = state.only;
    show();
    element.scrollIntoView();
  };
  show();
  return { element, find };
}
