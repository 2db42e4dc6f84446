"use strict";
// What stands beside the form: nothing yet, running, an error, or the answer.

// --- empty -------------------------------------------------------------------------------------------------------------------

function emptyState() {
  const ghosts = make("div", { class: "ghosts", "aria-hidden": "true" }, ...[120, 60, 90, 48, 110].map((width) => make("i", { style: { width: `${width}px` } })));
  const scale = make("div", { class: "legend" }, make("span", {}, "against"), make("span", { class: "ramp signed" }), make("span", {}, "for"));
  const step = (number, title, ...rest) => make("li", {}, make("b", { "aria-hidden": "true" }, String(number)), make("div", {}, make("span", { class: "t" }, title), ...rest));
  const list = make(
    "ol", {}, step(1, "The answer in one sentence", "which class or word, how sure, because of which words", ghosts), step(2, "Your text, words tinted for and against", scale),
    step(3, "Whether to trust it", "what happens without the top words, against random words; whether methods agree"),
  );
  return [make("h2", {}, "What you will get"), make("p", { class: "lead" }, "Type a text and choose a question. The answer appears here."), make("div", { class: "ghost" }, list)];
}

// --- running -----------------------------------------------------------------------------------------------------------------

const DOING = { why: "Finding the words that count", methods: "Asking every method", flow: "Following the words", written: "Writing, and looking back" };

/** What the model says, while the reasons are being computed. */
function knownAlready(known) {
  const rows = known.slice(0, 5).map(([name, share]) => make(
    "div", { class: "known-row" }, make("span", { class: "read" }, word(name)),
    make("span", { class: "known-track" }, make("i", { style: { width: `${share * 100}%` } })), make("b", {}, probability(share)),
  ));
  return make("div", { class: "known" }, make("h3", {}, "Known already"), make("p", { class: "small" }, "What the model says. Why is still being computed."), ...rows);
}

function secondsText(seconds) {
  return `${seconds < 10 ? seconds.toFixed(1) : seconds.toFixed(0)} s`;
}

/** Follows one job: step n of m in words, percent, seconds, who waits, Cancel. It is made once and then told where the job stands. */
class Running {
  constructor(question, cancel) {
    this.cancel = make("button", { type: "button", onclick: cancel }, "Cancel");
    this.bar = make("span", {});
    this.track = make("div", { class: "progress", role: "progressbar", "aria-valuemin": 0, "aria-valuemax": 100, "aria-label": "How far it is" }, this.bar);
    this.line = make("span", {});
    this.others = make("span", {});
    this.now = make("p", { class: "heard", role: "status" });
    this.steps = make("ol", { class: "steps" });
    this.within = make("span", { class: "small within" }); // beside the step that runs: how far it is
    this.known = make("div", {});
    this.title = make("h2", {}, DOING[question]);
    this.parts = [
      make("div", { class: "running-head" }, this.title, this.cancel), this.track, make("p", { class: "small progress-line" }, this.line, this.others), this.now, this.steps, this.known,
    ];
  }

  show(told, expected) {
    const share = told.state === "waiting" ? 0 : told.progress.share;
    this.bar.style.setProperty("width", `${share * 100}%`);
    this.track.setAttribute("aria-valuenow", String(Math.round(share * 100)));
    const left = expected && expected > told.seconds ? `, about ${secondsText(expected - told.seconds)} left` : String();
    const waits = `Waiting; ${counted(told.ahead)} before this one · ${secondsText(told.seconds)}`;
    this.line.replaceChildren(told.state === "waiting" ? waits : `Step ${told.begun} of ${told.steps.length}${told.within ? `, ${told.within}` : String()} · ${Math.round(share * 100)}${THIN}% · ${secondsText(told.seconds)} so far${left}`);
    this.others.replaceChildren(told.behind ? `${counted(told.behind)} waiting behind you` : "nobody is waiting behind you");
    this.showSteps(told);
    this.within.textContent = told.within;
    if (told.known.length && !this.known.hasChildNodes()) this.known.append(knownAlready(told.known));
  }

  showSteps(told) {
    const stamp = `${told.begun} ${told.steps.join("|")}`;
    if (stamp === this.stamp) return;
    this.stamp = stamp;
    this.now.replaceChildren(told.begun ? `Step ${told.begun} of ${told.steps.length}: ${told.steps[told.begun - 1]}` : String());
    this.steps.replaceChildren(...told.steps.map((text, i) => {
      const state = i + 1 < told.begun ? "done" : i + 1 === told.begun ? "now" : "waits";
      const mark = make("span", { class: "step-mark" }, state === "done" ? icon("ok") : null);
      return make("li", { class: state }, mark, make("span", {}, text, state === "now" ? this.within : null), make("span", { class: "small" }, { done: "done", now: `step ${i + 1} of ${told.steps.length}`, waits: "waiting" }[state]));
    }));
  }
}

// --- errors ------------------------------------------------------------------------------------------------------------------

/** What went wrong: what came, what is allowed, what to do. `acts`: [[text, function]]; the first one does it. */
function errorState({ title, came, todo }, acts) {
  const buttons = acts.map(([text, act], i) => make("button", { type: "button", class: i ? "quiet" : null, onclick: act }, text));
  return make(
    "div", { class: "error", role: "alert" }, icon("fail"),
    make("div", {}, make("h2", {}, title), ...came.map((text) => make("p", {}, text)), todo ? make("p", { class: "small" }, todo) : null, make("div", { class: "acts" }, ...buttons)),
  );
}

// --- the answer --------------------------------------------------------------------------------------------------------------

function trustLine(why) {
  const { state, sentence, without } = why.trust;
  return check(state, make("span", {}, ...set(sentence, why)), ...set(without, why), ".");
}

function whyState(why, { special, methodsFirst }) {
  const head = whyHead(why);
  const at = head.parts.findIndex((one) => one.classList.contains("specimen"));
  const [before, [text, ...cautions]] = [head.parts.slice(0, at), head.parts.slice(at)];
  const sections = whySections(why);
  if (methodsFirst) sections.sort((a, b) => Number(isMethods(b)) - Number(isMethods(a)));
  const box = text.querySelector(".specials input");
  const begin = () => { if (special && box) box.click(); }; // a click counts once it stands in the page
  return { kind: "why", title: questionOf(why), first: [...cautions, ...before, trustLine(why), text], below: [...sections, make("section", { class: "folds" }, whyProvenance(why))], say: head.say, begin };
}

function isMethods(element) {
  return element.getAttribute("aria-labelledby") === "methods";
}

async function flowState(flow) {
  const { said, parts, redraw, begin } = await flowParts(flow);
  return { kind: "flow", title: flowQuestion(flow), first: said, below: parts, redraw, begin };
}

function writtenState(generation) {
  const { said, texts, parts, redraw, begin } = generationParts(generation);
  return { kind: "written", title: ["What did each written word rest on?"], first: said, below: [texts, ...parts], redraw, begin };
}

/** The answer as the page shows it: what stands beside the form, and what continues below. */
async function answerState(answer, options) {
  if (answer.kind === "flow") return flowState(answer.flow);
  if (answer.kind === "written") return writtenState(answer.generation);
  return whyState(answer.page, { ...options, methodsFirst: answer.kind === "methods" });
}
