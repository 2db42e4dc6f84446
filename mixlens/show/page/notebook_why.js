"use strict";
// An answer of `why` in a notebook: the question, the answer, the text, words and trust; the rest in folds.

async function startAnswer(host, { why }, style) {
  const { parts, say } = whyHead(why);
  const [evidence, ...more] = whySections(why);
  const frame = frameIn(
    host, style, make("p", { class: "question" }, ...questionOf(why)), ...parts, evidence,
    more.length ? fold("How fast the answer falls, and other methods", null, () => more) : null, whyProvenance(why),
  );
  lightWords(frame, say);
}
