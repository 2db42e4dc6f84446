"use strict";
// The form of the served page: text, model, question, more choices. It knows nothing of jobs.

/** The small picture of a question. */
function questionIcon(name) {
  const bar = (y, width, hue) => draw("rect", { x: 1, y, width, height: 5, rx: 2, class: `i-${hue}` });
  const flow = () => draw("path", { d: "M6 27C6 12 20 18 20 4M20 27V4M34 27C34 12 20 18 20 4", class: "i-line" });
  const cells = () => [[9, 3, 3, -8, 3], [7, 5, 3, -6, 3], [5, 7, 3, -3, 3]].flatMap((row, y) => row.map((value, x) => draw("rect", {
    x: 1 + 8 * x, y: 3 + 9 * y, width: 7, height: 7, rx: 1.5, class: value < 0 ? "i-against" : value === 3 ? "i-edge" : "i-for", opacity: Math.abs(value) / 10,
  })));
  const lines = () => [4, 12, 20].map((y, i) => draw("rect", { x: 1 + 5 * i, y, width: 38 - 9 * i, height: 5, rx: 2, class: i ? "i-share" : "i-edge" }));
  const parts = { why: () => [bar(4, 24, "for"), bar(12.5, 15, "for"), bar(21, 10, "against")], flow, methods: cells, written: lines }[name]();
  return draw("svg", { class: "question-icon", viewBox: "0 0 40 30", "aria-hidden": "true" }, ...[parts].flat());
}

const TASKS = {
  classification: "classifies a text", "token-classification": "tags every word", "question-answering": "answers a question from a text",
  "masked-lm": "fills in a missing word", "causal-lm": "writes the next word",
};

/** "minilm-sst2: negative or positive". */
function modelLine(model) {
  const few = model.labels.length && model.labels.length <= 4;
  return `${model.name}: ${few ? listed(model.labels).join(String()).replace(/ and (?=[^,]*$)/, " or ") : TASKS[model.task] || "maps alone"}`;
}

/** "about 2 s", where it was measured with a text of a like length; else with the length it was measured with. */
function timeText(took, tokens) {
  if (!took) return String();
  const seconds = took.seconds < 0.95 ? "under 1 s" : `about ${Math.round(took.seconds)} s`;
  const alike = !tokens || (tokens <= 2 * took.tokens && 2 * tokens >= took.tokens);
  return alike ? seconds : `${seconds.replace("about ", String())} at ${counted(took.tokens)} tokens`;
}

function labelled(name, input, ...more) {
  input.id = freshId("ask");
  return make("div", { class: "f" }, make("label", { for: input.id }, name), input, ...more);
}

function selectOf(options, attributes = {}) {
  return make("select", attributes, ...options.map(([value, text]) => make("option", { value }, text)));
}

const USUAL = ["integrated_gradients", "deeplift", "attcat", "blank_out", "grad_x_input", "partial_lrp", "alti", "globenc", "value_zeroing", "attention_rollout"];

/** Several of many: each box with both names and what the method does. Those that few people ask for are folded. */
function boxesOf(legendText, methods, chosen) {
  const boxes = methods.map((one) => make("input", { type: "checkbox", value: one.name, checked: chosen.includes(one.name) }));
  const rows = methods.map((one, i) => make(
    "label", { class: "method-box" }, boxes[i], make("span", {}, one.everyday, make("span", { class: "small" }, `${one.title}. ${one.summary}`)),
  ));
  const isUsual = (_, i) => USUAL.includes(methods[i].name) || chosen.includes(methods[i].name);
  const [usual, others] = [rows.filter(isUsual), rows.filter((row, i) => !isUsual(row, i))];
  const folded = others.length ? aside(`${counted(others.length)} more`, () => make("div", { class: "method-boxes" }, ...others)) : null;
  return { element: make("fieldset", { class: "method-set" }, make("legend", {}, legendText), make("div", { class: "method-boxes" }, ...usual), folded), boxes };
}

class AskForm {
  constructor({ models, limits }, methods, acts) {
    Object.assign(this, { models, limits, methods, acts, tokens: null });
    this.text = make("textarea", { rows: 4, placeholder: "Paste or type a text", maxlength: limits.characters, dir: "auto", autocomplete: "off", spellcheck: "false" });
    this.count = make("span", { id: freshId("count") });
    this.wrong = make("p", { class: "field-error", id: freshId("wrong"), hidden: true });
    this.text.setAttribute("aria-describedby", `${this.count.id} ${this.wrong.id}`);
    this.model = selectOf(models.map((one) => [one.name, modelLine(one)]));
    this.cards = make("fieldset", { class: "questions" });
    this.more = make("div", { class: "inside" });
    this.go = make("button", { type: "submit", class: "main" }, "Explain");
    this.element = this.build();
    this.text.addEventListener("input", () => { this.clearWrong(); this.countSoon(); });
    this.model.addEventListener("change", () => this.modelChanged());
    this.modelChanged();
  }

  build() {
    const example = make("button", { type: "button", class: "quiet", onclick: () => this.tryExample() }, "Try an example");
    this.textField = labelled("Text", this.text, this.wrong, make("div", { class: "under-text" }, this.count, example));
    const folded = make("details", { class: "fold more" }, make("summary", {}, "More choices", make("span", {}, "class, methods, what is taken out")), this.more);
    const form = make(
      "form", { class: "ask", "aria-label": "Ask", novalidate: true }, this.textField, labelled("Model", this.model), this.cards, folded,
      make("div", { class: "go" }, this.go, make("span", { class: "small" }, "or ", make("kbd", {}, "Ctrl"), " ", make("kbd", {}, "Enter"))),
    );
    this.folded = folded;
    form.addEventListener("submit", (event) => { event.preventDefault(); this.acts.ask(); });
    form.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      this.acts.ask();
    });
    return form;
  }

  get chosenModel() {
    return this.models.find((one) => one.name === this.model.value);
  }

  get question() {
    const chosen = this.cards.querySelector("input:checked");
    return chosen ? chosen.value : null;
  }

  modelChanged() {
    const { questions } = this.chosenModel;
    const before = this.question;
    const kept = questions.some((one) => one.name === before) ? before : questions.length ? questions[0].name : null;
    this.times = new Map();
    this.cards.replaceChildren(make("legend", {}, "Question"), ...questions.map((one) => this.card(one, one.name === kept)));
    if (!questions.length) this.cards.append(make("p", { class: "small" }, "This model was loaded without a head, so it says nothing that could be explained."));
    this.showTimes();
    this.showMore();
    this.countSoon();
  }

  card(one, checked) {
    const input = make("input", { type: "radio", name: "question", value: one.name, checked, onchange: () => this.showMore() });
    const time = make("span", { class: "small time" });
    this.times.set(one.name, time);
    return make("label", { class: "question" }, input, questionIcon(one.name), make("span", {}, make("b", {}, one.title), make("span", { class: "small" }, one.help)), time);
  }

  showTimes() {
    for (const [name, place] of this.times) place.replaceChildren(timeText(this.chosenModel.seconds[name], this.tokens));
  }

  // - more choices: those that the question has

  showMore() {
    const { question, chosenModel: model } = this;
    this.fields = {};
    const parts = [];
    if (question === "why" || question === "methods") parts.push(...this.answerFields(model));
    if (question === "flow") parts.push(this.oneMethod("Map", this.methods.filter((one) => one.kind === "map")));
    if (question === "written") parts.push(this.numberField(), this.oneMethod("Method", this.methods.filter((one) => model.methods.includes(one.name) || one.kind === "map")));
    if (question !== "written") parts.push(this.line("pair", model.task === "question-answering" ? "The text with the answer" : "Second text", "For models that read two; else leave it empty."));
    this.more.replaceChildren(...parts);
    if (model.task === "question-answering" || (model.task === "token-classification" && question !== "flow")) this.folded.open = true;
  }

  answerFields(model) {
    const parts = [make("div", { class: "pair-fields" }, ...this.targetFields(model))];
    if (model.task !== "classification" && model.task !== "question-answering") parts.push(this.line("query", "Word", model.task === "token-classification" ? "The word whose tag is explained." : "Where it is read; by default where the model predicts."));
    const signed = boxesOf("For and against", this.methods.filter((one) => one.signed), model.methods);
    const sizes = boxesOf("How much, without a sign", this.methods.filter((one) => !one.signed), model.methods);
    this.boxes = [...signed.boxes, ...sizes.boxes];
    this.fields.filler = selectOf([[String(), "as the task has it"], ...Object.entries(model.fillers)]);
    this.fields.special = make("input", { type: "checkbox" });
    const shown = make("label", { class: "switch" }, this.fields.special, "Show special tokens");
    return [...parts, signed.element, sizes.element, labelled("Taking words out", this.fields.filler), shown];
  }

  targetFields(model) {
    const [first, second] = ["Explain", "Rather than"];
    if (!model.labels.length) return [this.line("target", first, "A word; by default the predicted one."), this.line("foil", second, "A word, or nothing.")];
    const classes = model.labels.map((name) => [name, name]);
    this.fields.target = selectOf([[String(), model.task === "classification" ? "the predicted class" : "the predicted tag"], ...classes]);
    this.fields.foil = selectOf([[String(), "nothing"], ...classes]);
    return [labelled(first, this.fields.target), labelled(second, this.fields.foil)];
  }

  oneMethod(name, methods) {
    this.fields.method = selectOf(methods.map((one) => [one.name, `${one.everyday} (${one.title})`]));
    this.fields.method.value = "alti";
    return labelled(name, this.fields.method);
  }

  numberField() {
    this.fields.generate = make("input", { type: "number", min: 1, max: 64, value: 20, inputmode: "numeric" });
    return labelled("Tokens to write", this.fields.generate);
  }

  line(name, label, help) {
    const hint = make("p", { class: "small", id: freshId("hint") }, help);
    this.fields[name] = make("input", { autocomplete: "off", dir: "auto", "aria-describedby": hint.id });
    return labelled(label, this.fields[name], hint);
  }

  /** What is asked, as the API reads it; choices that were left as they are say nothing. */
  wanted() {
    const { fields, question, chosenModel: model } = this;
    const wanted = { model: model.name, text: this.text.value, question };
    for (const name of ["target", "foil", "query", "pair", "filler"]) if (fields[name] && fields[name].value.trim()) wanted[name] = fields[name].value;
    if (fields.method && fields.method.value !== "alti") wanted.methods = [fields.method.value];
    if (fields.generate) wanted.generate = Number(fields.generate.value);
    if (question === "why" || question === "methods") {
      const chosen = this.boxes.filter((box) => box.checked).map((box) => box.value);
      if (chosen.length !== model.methods.length || chosen.some((name) => !model.methods.includes(name))) wanted.methods = chosen;
    }
    return wanted;
  }

  // - the text

  tryExample() {
    this.text.value = this.chosenModel.example;
    this.clearWrong();
    this.countSoon(0);
    this.text.focus();
  }

  countSoon(wait = 250) {
    clearTimeout(this.waiting);
    if (!this.text.value.trim()) return this.counted({ tokens: 0, most: this.chosenModel.max_tokens });
    this.waiting = setTimeout(() => this.acts.count(), wait);
    return undefined;
  }

  counted({ tokens, most }) {
    this.tokens = tokens;
    const over = tokens - most;
    this.count.replaceChildren(over > 0 ? `${counted(over)} ${over === 1 ? "token" : "tokens"} too many` : `${counted(tokens)} of ${counted(most)} tokens`);
    this.count.classList.toggle("over", over > 0);
    this.showTimes();
  }

  // - wrong, and busy

  markWrong(name, text) {
    const field = name === "text" ? this.text : this.fields[name];
    if (!field) return;
    field.setAttribute("aria-invalid", "true");
    field.closest(".f").classList.add("bad");
    if (name !== "text") { this.folded.open = true; return; }
    this.wrong.replaceChildren(icon("fail"), make("span", {}, text));
    this.wrong.hidden = false;
  }

  clearWrong() {
    for (const one of this.element.querySelectorAll("[aria-invalid]")) one.removeAttribute("aria-invalid");
    for (const one of this.element.querySelectorAll(".bad")) one.classList.remove("bad");
    this.wrong.hidden = true;
  }

  busy(is) {
    this.go.disabled = is;
    this.go.replaceChildren(is ? "Explaining …" : "Explain");
    this.element.setAttribute("aria-busy", String(is));
  }
}
