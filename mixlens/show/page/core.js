"use strict";
// Numbers out of a page, and the few things that are computed from them. No element is touched here.

/** The bytes behind deflated base64. */
async function inflate(text) {
  const packed = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Reads arrays one after the other; the bytes of one significance stand together. */
class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.place = 0;
  }

  take(Kind, count) {
    const size = Kind.BYTES_PER_ELEMENT;
    const mixed = new Uint8Array(count * size);
    for (let plane = 0; plane < size; plane++) {
      const from = this.place + plane * count;
      for (let i = 0; i < count; i++) mixed[i * size + plane] = this.bytes[from + i];
    }
    this.place += count * size;
    return new Kind(mixed.buffer);
  }
}

/** Numbers out of 16 bits (half precision, none of them infinite). */
function halves(bits) {
  return Float32Array.from(bits, (half) => {
    const [power, part] = [(half >> 10) & 31, (half & 1023) / 1024];
    return (half & 0x8000 ? -1 : 1) * (power ? (1 + part) * 2 ** (power - 15) : part * 2 ** -14);
  });
}

/** The rows of one block. A row comes whole; what the page does not hold of it (left out, or rounded off) is summed up in `rest`. */
class Sheet {
  constructor({ rows, columns, coding, signed, keep = columns }, bytes) {
    const reader = new Reader(bytes);
    Object.assign(this, { columns, coding, signed, keep });
    if (coding === "float32") {
      this.values = reader.take(Float32Array, rows * columns);
      return;
    }
    this.scales = reader.take(Float32Array, rows);
    this.rests = reader.take(Float32Array, rows);
    if (coding === "top") this.steps = reader.take(Uint16Array, rows * keep);
    this.values = halves(reader.take(Uint16Array, rows * keep));
  }

  static async of(block) {
    return new Sheet(block, await inflate(block.data));
  }

  row(number) {
    const whole = new Float64Array(this.columns);
    const from = number * this.keep;
    const scale = this.scales ? this.scales[number] : 1;
    let key = 0;
    for (let i = 0; i < this.keep; i++) {
      key = this.steps ? key + this.steps[from + i] : i;
      whole[key] = this.values[from + i] * scale;
    }
    return whole;
  }

  rest(number) {
    return this.rests ? this.rests[number] : 0;
  }
}

/** What is shown as one: tokens, or words. `groups` are the positions of each; `of` says which one a position is in. */
function unitsOf(entry, byWord) {
  const groups = byWord ? entry.words.map((word) => word[1]) : entry.tokens.map((_, i) => [i]);
  const labels = byWord ? entry.words.map((word) => word[0]) : entry.tokens;
  const of = new Int32Array(entry.tokens.length).fill(-1);
  groups.forEach((places, unit) => places.forEach((place) => { of[place] = unit; }));
  return { groups, labels, of, size: groups.length, byWord };
}

/** One layer, [query key]: subwords summed over keys and averaged over queries. `rest` is what each row does not hold. */
function matrixOf(sheet, layer, units) {
  const { groups, of, size } = units;
  const values = new Float64Array(size * size);
  const rest = new Float64Array(size);
  let negative = false;
  groups.forEach((places, unit) => {
    for (const place of places) {
      const number = layer * sheet.columns + place;
      const row = sheet.row(number);
      for (let key = 0; key < row.length; key++) {
        if (row[key] < 0) negative = true;
        if (of[key] >= 0) values[unit * size + of[key]] += row[key] / places.length;
      }
      rest[unit] += sheet.rest(number) / places.length;
    }
  });
  return { size, values, rest, signed: negative, totals: totalsOf(values, rest, size) };
}

/** What each row holds in all, without signs: what a share is a share of. */
function totalsOf(values, rest, size) {
  return Float64Array.from(rest, (left, query) => {
    let total = Math.abs(left);
    for (let key = 0; key < size; key++) total += Math.abs(values[query * size + key]);
    return total || 1;
  });
}

function rowOf(matrix, query) {
  return matrix.values.slice(query * matrix.size, (query + 1) * matrix.size);
}

function columnOf(matrix, key) {
  return Float64Array.from({ length: matrix.size }, (_, query) => matrix.values[query * matrix.size + key]);
}

/** Scores of positions as scores of units: summed. */
function summed(scores, units) {
  return Float64Array.from(units.groups, (places) => places.reduce((sum, place) => sum + scores[place], 0));
}

/** Scores of one row as shares of what it holds, without signs. Special tokens that are hidden take no part. */
function viewOf(scores, { total = null, signed, special, hidden, rest = 0 }) {
  const whole = total === null ? scores.reduce((sum, score, i) => (hidden && special[i] ? sum : sum + Math.abs(score)), Math.abs(rest)) || 1 : total;
  return { scores, shares: Array.from(scores, (score) => score / whole), signed, special, hidden, rest: rest / whole };
}

/** Scores scaled so that the largest magnitude is 1. */
function sharesOf(scores) {
  let largest = 0;
  for (const score of scores) largest = Math.max(largest, Math.abs(score));
  return Array.from(scores, (score) => (largest > 0 ? score / largest : 0));
}

/** Indices of the largest magnitudes, largest first. */
function largestOf(scores, count) {
  const order = Array.from(scores, (_, i) => i).sort((a, b) => Math.abs(scores[b]) - Math.abs(scores[a]) || a - b);
  return order.slice(0, count).filter((i) => scores[i] !== 0);
}

/**
 * A row as its rollout convention wants it: the token itself added, then made to sum to 1. `spread` is what each number that
 * the row does not hold gets of the row's rest; `held` is what the row holds.
 */
function convened(sheet, number, query, convention, last) {
  const row = sheet.row(number);
  const rest = sheet.rest(number);
  let held = 0;
  let missing = 0;
  for (let key = 0; key <= last; key++) {
    held += row[key];
    if (row[key] === 0) missing += 1;
  }
  const lost = missing > 0 && (sheet.signed || rest > 0); // else it is rounding alone: the row is made to sum to 1 as it is
  let spread = lost ? rest / missing : 0;
  if (convention.residual) {
    if (row[query] === 0) row[query] = spread; // it is held from now on
    row[query] += 1;
  }
  const total = (lost ? held + rest : held) + (convention.residual ? 1 : 0);
  if (convention.normalize && total !== 0) {
    for (let key = 0; key <= last; key++) row[key] /= total;
    spread /= total;
  }
  return { row, spread };
}

/**
 * Where what stands at `unit` after `layer` came from. Level l is after layer l, level 0 the input.
 * mass[level][unit]: how much of it was there; edges: how much went from one unit to the next; paths: the strongest
 * single way from each input token. What a row does not hold is spread evenly over the tokens it does not hold (in a model
 * that looks back only: over those before). `rolled`, where the page holds it, is the rolled-out sheet: what is at the input,
 * and what flows from there, is scaled to its row, so that both pictures show the same numbers.
 */
function flowOf(sheet, convention, units, unit, layer, { rolled = null, causal = false } = {}) {
  const n = sheet.columns;
  const depth = layer + 1;
  let mass = new Float64Array(n);
  for (const place of units.groups[unit]) mass[place] = 1 / units.groups[unit].length;
  let best = Float64Array.from(mass);
  const masses = [];
  const edges = [];
  const back = [];
  let left = 0; // what the rolled-out row does not hold of what is at the input
  masses[depth] = summed(mass, units);
  for (let level = depth; level > 0; level--) {
    const below = new Float64Array(n);
    const bestBelow = new Float64Array(n);
    const from = new Int32Array(n).fill(-1);
    const found = []; // [query, key, flow] between positions
    const evenly = new Float64Array(n + 1); // what is spread over all keys up to a last one, by that one
    for (let query = 0; query < n; query++) {
      if (mass[query] === 0 && best[query] === 0) continue;
      const last = causal ? query : n - 1;
      const { row, spread } = convened(sheet, (level - 1) * n + query, query, convention, last);
      const little = mass[query] * spread;
      evenly[last] += little;
      for (let key = 0; key <= last; key++) {
        if (row[key] === 0) continue;
        const flow = mass[query] * row[key];
        below[key] += flow - little;
        found.push([query, key, flow]);
        const way = best[query] * row[key];
        if (Math.abs(way) > Math.abs(bestBelow[key])) {
          bestBelow[key] = way;
          from[key] = query;
        }
      }
    }
    let over = 0;
    for (let key = n - 1; key >= 0; key--) {
      over += evenly[key];
      below[key] += over;
    }
    const scale = level === 1 && rolled && sheet.coding !== "float32" ? scaledTo(rolled, layer, units.groups[unit], below) : null;
    const flows = new Map();
    for (const [query, key, flow] of found) {
      if (units.of[query] < 0 || units.of[key] < 0) continue;
      const edge = units.of[query] * units.size + units.of[key];
      flows.set(edge, (flows.get(edge) || 0) + flow * (scale ? scale.by[key] : 1));
    }
    for (const [edge, flow] of flows) {
      edges.push({ level, query: Math.floor(edge / units.size), key: edge % units.size, flow });
    }
    mass = scale ? scale.row : below;
    if (scale) left = scale.rest;
    best = bestBelow;
    back[level] = from;
    masses[level - 1] = summed(mass, units);
  }
  const paths = largestOf(best, 5).map((place) => {
    const way = [place];
    for (let level = 1; level <= depth; level++) way.push(back[level][way[level - 1]]);
    return { weight: best[place], way };
  });
  return { depth, masses, edges, paths, left };
}

/** The rolled-out row of some positions (their mean), what it does not hold, and by how much the masses at the input differ from it. */
function scaledTo(rolled, layer, places, below) {
  const row = new Float64Array(below.length);
  for (const place of places) rolled.row(layer * below.length + place).forEach((score, key) => { row[key] += score / places.length; });
  const rest = places.reduce((sum, place) => sum + rolled.rest(layer * below.length + place) / places.length, 0);
  return { row, rest, by: Float64Array.from(row, (score, key) => (below[key] === 0 ? 0 : score / below[key])) };
}

/** Can this browser unpack the numbers? If not, the page says so. */
function canUnpack(root) {
  if ("DecompressionStream" in globalThis) return true;
  root.replaceChildren(make("p", { role: "alert" }, "This page needs a browser of 2023 or later."));
  return false;
}
