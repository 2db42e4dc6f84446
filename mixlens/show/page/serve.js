"use strict";
// The form above a served page: ask for maps of a text, see how far they are, cancel them.

async function ask(path, options = {}) {
  const answer = await fetch(path, { cache: "no-store", ...options });
  const told = await answer.json().catch(() => ({ error: `the server answered ${answer.status}` }));
  if (!answer.ok) throw new Error(told.error || `the server answered ${answer.status}`);
  return told;
}

function inputField(name, attributes, help) {
  const id = freshId("ask");
  const input = make(attributes.rows ? "textarea" : "input", { id, autocomplete: "off", ...attributes });
  const hint = help ? make("p", { class: "hint", id: `${id}-hint` }, help) : null;
  if (hint) input.setAttribute("aria-describedby", hint.id);
  return { element: make("div", { class: "field" }, make("label", { for: id }, name), input, hint), input, hint };
}

async function startForm(root, page) {
  const [{ models, limits }, { methods }] = await Promise.all([ask("api/models"), ask("api/methods")]);
  const model = selectField("Model", models.map((one) => [one.name, `${one.name} (${one.task})`]), () => modelChanged());
  const text = inputField("Text", { rows: 3, required: true, maxlength: limits.characters, dir: "auto" }, " ");
  const pair = inputField("Second text", { dir: "auto" }, "For models that read two; else leave it empty.");
  const target = inputField("Target", {}, " ");
  const foil = inputField("Against", {}, "A class or word that the target is explained against; may be empty.");
  const query = inputField("Position", {}, "A token or an index; by default where the model predicts.");
  const boxes = new Map();
  const group = (legend, kind) => make(
    "fieldset", { class: "field methods" }, make("legend", {}, legend),
    ...methods.filter((one) => one.kind === kind).map((one) => {
      const box = make("input", { type: "checkbox", value: one.name });
      box.checked = ["alti", "globenc"].includes(one.name);
      boxes.set(one.name, box);
      return make("label", { title: `${one.summary} Cost in forward passes: ${one.cost}.` }, box, make("span", {}, one.name));
    }),
  );
  const run = make("button", { type: "submit", class: "main" }, "Show");
  const cancel = make("button", { type: "button", disabled: true }, "Cancel");
  const bar = make("progress", { max: 1, value: 0, "aria-label": "How far it is", hidden: true });
  const status = make("p", { role: "status", class: "said" });
  const more = make(
    "details", {}, make("summary", {}, "Target, position, second text"),
    make("div", { class: "controls" }, target.element, foil.element, query.element, pair.element),
  );
  const form = make(
    "form", { class: "ask card", "aria-label": "Ask for maps", novalidate: true }, model.element, text.element,
    group("Maps", "map"), group("Attributions to the prediction", "attribution"), more,
    make("div", { class: "buttons" }, run, cancel, bar), status,
  );
  root.prepend(form);
  let job = null;

  function modelChanged() {
    const one = models.find((each) => each.name === model.select.value);
    const hints = {
      "masked-lm": `Write ${one.mask} where a word is to be predicted.`,
      "causal-lm": "The token that comes next is predicted.",
      classification: "The whole text is classified.",
    };
    text.hint.replaceChildren(`${hints[one.task] || String()} At most ${one.max_tokens} tokens.`);
    const classes = one.labels.length ? `One of ${one.labels.join(", ")}` : "A word that is one token";
    target.hint.replaceChildren(`${classes}; by default the predicted one.`);
    if (!text.input.value || models.some((each) => each.example === text.input.value)) text.input.value = one.example;
  }

  function working(is) {
    run.disabled = is;
    cancel.disabled = !is;
    bar.hidden = !is;
    form.setAttribute("aria-busy", String(is));
  }

  async function follow(id) {
    for (;;) {
      const told = await ask(`api/jobs/${id}`);
      if (told.state === "waiting") status.replaceChildren(`Waiting; ${told.ahead} before this one.`);
      if (told.state === "running") {
        bar.value = told.progress.share;
        status.replaceChildren(`${told.progress.doing} (${told.seconds.toFixed(0)} s)`);
      }
      if (told.state === "done") return [await ask(`api/jobs/${id}/page`), told.notes];
      if (told.state === "failed" || told.state === "cancelled") throw new Error(told.error);
      await new Promise((resolve) => { setTimeout(resolve, told.seconds > 5 ? 1000 : 200); });
    }
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const optional = { target, foil, query, pair };
    const wanted = { model: model.select.value, text: text.input.value, methods: [...boxes].filter(([, box]) => box.checked).map(([name]) => name) };
    if (!wanted.text.trim()) {  // told where everything else is told, and not by a bubble beside an old "Done."
      status.replaceChildren("The text is empty: write one.");
      text.input.focus();
      return;
    }
    for (const [name, field] of Object.entries(optional)) if (field.input.value.trim()) wanted[name] = field.input.value;
    working(true);
    status.replaceChildren("Sent.");
    try {
      const headers = { "Content-Type": "application/json" };
      job = (await ask("api/jobs", { method: "POST", headers, body: JSON.stringify(wanted) })).id;
      const [found, notes] = await follow(job);
      page.add(found);
      status.replaceChildren(["Done.", ...notes].join(" "));
    } catch (error) {
      status.replaceChildren(error.message);
    }
    job = null;
    working(false);
  });
  cancel.addEventListener("click", () => {
    if (job !== null) ask(`api/jobs/${job}`, { method: "DELETE" }).catch(() => null);
  });
  model.select.value = models[0].name;
  modelChanged();
  document.documentElement.dataset.form = "ready";
}
