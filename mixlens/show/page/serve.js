"use strict";
// The served page: a form, and beside it one of four states. A question becomes a job of the server, which is followed to its end.

class Refused extends Error {
  constructor(told, status) {
    super(told.error || `the server answered ${status}.`);
    Object.assign(this, { told, status });
  }
}

class Gone extends Error {}

async function ask(path, options = {}) {
  const answer = await fetch(path, { cache: "no-store", ...options }).catch(() => { throw new Gone("no answer"); });
  const told = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(told, answer.status);
  return told;
}

function send(path, body) {
  return ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
}

const SOON = 500; // ms: work that is shorter shows no progress

function later(milliseconds) {
  return new Promise((resolve) => { setTimeout(resolve, milliseconds); });
}

class ServedPage {
  constructor(root, about, methods) {
    Object.assign(this, { root, job: null, shown: null, turn: 0, say: () => {} });
    this.state = make("div", { class: "state" });
    this.below = make("div", { class: "below-form" });
    this.form = new AskForm(about, methods, { ask: () => this.explain(), count: () => this.count() });
    this.grid = make("div", { class: "grid" }, this.form.element, this.state);
    root.append(this.grid, this.below);
    lightWords(root, (k) => this.say(k));
    themeSwitch(() => { if (this.shown && this.shown.redraw) this.shown.redraw(); });
    this.put("empty", ...emptyState());
    this.form.counted({ tokens: 0, most: this.form.chosenModel.max_tokens });
    this.learnTimes(20);
  }

  put(name, ...parts) {
    this.state.className = `state is-${name}`;
    this.grid.classList.toggle("active", name !== "empty");
    this.state.replaceChildren(...parts);
    this.grid.dataset.state = name;
    this.root.classList.toggle("has-answer", name === "done");
    if (name !== "empty" && this.state.getBoundingClientRect().top < 0) this.state.scrollIntoView({ block: "start" }); // on a phone it stands above the form
  }

  /** Times are measured while nobody waits: what is not known yet is asked for again. */
  async learnTimes(tries) {
    const { models } = await ask("api/models").catch(() => ({ models: [] }));
    for (const one of models) Object.assign(this.form.models.find((each) => each.name === one.name), { seconds: one.seconds });
    this.form.showTimes();
    const missing = models.some((one) => one.questions.some((question) => !one.seconds[question.name]));
    if (missing && tries > 0) setTimeout(() => this.learnTimes(tries - 1), 1500);
  }

  async count() {
    const { model, text, pair } = this.form.wanted();
    const told = await send("api/tokens", { model, text, ...(pair ? { pair } : {}) }).catch(() => null); // it is said when it is sent
    if (told && text === this.form.text.value) this.form.counted(told);
  }

  // - asking

  async explain(more = {}) {
    if (this.job !== null || this.form.question === null) return;
    const wanted = { ...this.form.wanted(), ...more };
    this.form.clearWrong();
    if (!wanted.text.trim()) return void this.fail({ kind: "empty", field: "text" }, wanted);
    this.job = "sent";
    this.form.busy(true);
    try {
      const { id } = await send("api/jobs", wanted);
      this.job = id;
      await this.follow(id, wanted);
    } catch (error) {
      this.failed(error, wanted);
    }
    this.job = null;
    this.form.busy(false);
  }

  async follow(id, wanted) {
    const running = new Running(wanted.question, () => this.stop(id));
    const began = performance.now();
    const took = this.form.chosenModel.seconds[wanted.question];
    for (;;) {
      const told = await ask(`api/jobs/${id}`);
      if (told.state === "done") return this.done(id, told, wanted);
      if (told.state === "cancelled") return this.cancelled();
      if (told.state === "failed") throw new Refused({ error: told.error, failed: true }, 0);
      if (performance.now() - began > SOON || told.state === "waiting") {
        if (this.grid.dataset.state !== "running") this.run(running);
        running.show(told, took ? took.seconds : null);
      }
      await later(told.seconds > 5 ? 600 : 120);
    }
  }

  run(running) {
    this.put("running", ...running.parts);
    this.below.replaceChildren();
    this.shown = null;
  }

  stop(id) {
    ask(`api/jobs/${id}`, { method: "DELETE" }).catch(() => null); // it is followed, so that its end is seen
  }

  cancelled() {
    this.put("empty", ...emptyState());
    this.state.prepend(make("p", { class: "small", role: "status" }, "Cancelled. Nothing was kept but your text."));
    this.form.text.focus();
  }

  async done(id, told, wanted) {
    const special = this.form.fields.special ? this.form.fields.special.checked : false;
    const shown = await answerState(await ask(`api/jobs/${id}/answer`), { special });
    const title = make("h2", { tabindex: -1, class: "question-asked" }, ...shown.title);
    const file = `api/jobs/${encodeURIComponent(id)}/file`;
    const links = make(
      "p", { class: "links" }, make("a", { href: file, target: "_blank", rel: "noopener" }, wanted.question === "methods" ? "Open the whole answer, with every layer" : "Open the whole answer"), " · ",
      make("a", { href: `${file}?save=true`, download: "mixlens-answer.html" }, "Save as one file"),
    );
    const notes = shown.kind === "why" ? [] : told.notes.map((text) => note("caution", text)); // of a why they stand in the answer
    this.shown = shown;
    this.say = shown.say || (() => {});
    this.put("done", title, ...notes, make("div", { class: `said-first shows-${shown.kind}` }, ...shown.first), links, make("p", { class: "small" }, `${secondsText(told.seconds)}. The page continues below.`));
    this.below.replaceChildren(make("div", { class: `shows-${shown.kind}` }, ...shown.below));
    if (shown.begin) shown.begin();
    title.focus({ preventScroll: true });
    this.learnTimes(0);
    document.documentElement.dataset.answers = String(Number(document.documentElement.dataset.answers || 0) + 1);
  }

  // - errors: what came, what is allowed, what to do

  failed(error, wanted) {
    if (error instanceof Gone) return this.fail({ kind: "gone" }, wanted);
    if (error instanceof Refused) return this.fail({ ...error.told, status: error.status }, wanted);
    throw error;
  }

  fail(told, wanted) {
    const { form } = this;
    const back = ["Back to the text", () => form.text.focus()];
    const again = ["Try again", () => this.explain()];
    const model = form.chosenModel;
    const line = told.error || "It could not be done.";
    const known = {
      empty: () => [{ title: "There is no text yet", came: ["The text is empty."], todo: "Type one, or try an example." }, [["Try an example", () => form.tryExample()], back], "There is no text yet."],
      too_long: () => [
        { title: "The text is too long for this model", came: [`It has ${counted(told.tokens)} tokens; at most ${counted(told.most)} are read. Nothing was computed.`], todo: `Shorten it by about ${percent(1 - told.most / told.tokens)}, or let mixlens explain the beginning.` },
        [[`Use the first ${counted(told.most)} tokens`, () => this.explain({ truncate: true })], back], `${counted(told.tokens)} tokens; at most ${counted(told.most)} are read.`,
      ],
      no_mask: () => [
        { title: `The text has no ${told.mask}`, came: [`This model fills in ${told.mask}, and the text has none, so no word is predicted.`], todo: `Put ${told.mask} where a word is missing.` },
        [[`Put ${told.mask} in place of the last word`, () => this.maskLast(told.mask)], back], `No ${told.mask} in the text.`,
      ],
      unknown_class: () => [
        { title: "There is no such class", came: [line], todo: `This model knows ${listed(model.labels).join(String())}.` }, [["Explain the predicted class", () => this.withoutTarget()], back], line,
      ],
      gone: () => [{ title: "The program behind this page does not answer", came: ["Nothing was computed; your text is kept."], todo: "Start it again with mixlens serve, then try again." }, [again, back], null],
    }[told.kind];
    const [says, acts, mark] = known ? known() : this.plainError(line, told, wanted, [again, back]);
    this.put("error", errorState(says, acts));
    this.below.replaceChildren();
    this.shown = null;
    if (told.field) form.markWrong(told.field, mark);
  }

  plainError(line, told, wanted, [again, back]) {
    const [came, ...rest] = line.split(/(?<=[.?]) (?=[A-Z])/);
    const titles = { 429: "Too many texts are waiting", 413: "The text is too long", 503: "Too many requests at once" };
    const acts = told.status === 429 || told.status === 503 ? [again, back] : wanted.target || wanted.foil ? [["Explain what the model predicts", () => this.withoutTarget()], back] : [back];
    return [{ title: titles[told.status] || "This could not be explained", came: [came[0].toUpperCase() + came.slice(1)], todo: rest.join(" ") }, acts, line];
  }

  maskLast(mask) {
    const { text } = this.form;
    text.value = text.value.replace(/[\p{L}\p{N}\p{M}'’-]+(?=[^\p{L}\p{N}]*$)/u, mask);
    if (!text.value.includes(mask)) text.value = `${text.value.trim()} ${mask}`;
    text.focus();
    this.explain();
  }

  withoutTarget() {
    for (const name of ["target", "foil"]) if (this.form.fields[name]) this.form.fields[name].value = String();
    this.explain();
  }
}

async function startForm(root) {
  const hero = root.querySelector(".hero");
  hero.querySelector(".about").remove();
  const said = hero.querySelector(".answer");
  said.className = "lead first-lead";
  const [about, { methods }] = await Promise.all([ask("api/models"), ask("api/methods")]).catch((error) => {
    root.append(errorState({ title: "The program behind this page does not answer", came: [error.message], todo: "Start it again with mixlens serve." }, [["Load the page again", () => location.reload()]]));
    throw error;
  });
  const page = new ServedPage(root, about, methods);
  document.documentElement.dataset.form = "ready";
  return page;
}
