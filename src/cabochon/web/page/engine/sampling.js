/** From logits to one token, as the Python runtime does it, steps in the order of transformers' generate(). */
import { PackageError, RequestError } from "./errors.js";
import { anySeed, gumbel, Pcg64 } from "./random.js";

/**
 * How a token is drawn. `greedy` takes the largest logit; 0 topK, 1 topP, 0 minP leave that step out.
 *
 * @typedef {{greedy: boolean, temperature: number, topK: number, topP: number, minP: number, repetitionPenalty: number,
 *   seed: number | null}} Sampling
 */

/** By our name: that of generation_config.json, what is good, and what to say where it is not. @type {Record<string, any>} */
const VALUES = {
  temperature: ["temperature", (x) => x >= 0 && x < Infinity, "a number above 0 (0 itself is greedy)", 1],
  topK: ["top_k", (x) => Number.isInteger(x) && x >= 0, "a whole number from 0 (off)", 0],
  topP: ["top_p", (x) => x > 0 && x <= 1, "a number above 0 and at most 1 (off)", 1],
  minP: ["min_p", (x) => x >= 0 && x <= 1, "a number from 0 (off) to 1", 0],
  repetitionPenalty: ["repetition_penalty", (x) => x > 0 && x < Infinity, "a number above 0 (1 is off)", 1],
  seed: ["seed", (x) => Number.isSafeInteger(x) && x >= 0, "a whole number from 0", null],
};
const DRAWS = ["temperature", "topK", "topP", "minP"];

/**
 * What a caller asked for over the package's generation_config.json. `greedy` decides where given. Else temperature 0
 * is greedy, any asked-for sampling value samples, and what is left follows `do_sample`.
 *
 * @param {Record<string, any>} defaults
 * @param {Record<string, any>} asked
 * @returns {Sampling}
 */
export function sampling(defaults, asked) {
  /** @type {Record<string, any>} */
  const how = {};
  for (const [name, [stated, good, expected, otherwise]] of Object.entries(VALUES)) {
    const value = asked[name] ?? defaults[stated] ?? otherwise;
    if (value !== null && !(typeof value === "number" && good(value))) {
      throw new RequestError(`${JSON.stringify(value)}; expected ${expected}`, { at: name, remedy: "change the value or leave it out" });
    }
    how[name] = value;
  }
  const cold = how.temperature === 0;
  const draws = cold ? [] : DRAWS.filter((name) => asked[name] !== undefined && asked[name] !== null);
  if (asked.greedy && draws.length) {
    throw new RequestError(`greedy beside ${draws.join(", ")}; expected one or the other`, { at: "greedy" });
  }
  const greedy = asked.greedy ?? (cold || !(draws.length || defaults.do_sample));
  return /** @type {Sampling} */ ({ ...how, greedy, temperature: cold ? 1 : how.temperature });
}

/** The place of the largest, the first of equal ones. */
export function argmax(/** @type {ArrayLike<number>} */ values) {
  let best = 0;
  for (let n = 1; n < values.length; n++) if (values[n] > values[best]) best = n;
  return best;
}

/** Each token seen so far divided (above zero) or multiplied (below) by the penalty (Keskar et al. 2019). */
export function penalised(/** @type {Float32Array} */ logits, /** @type {number[]} */ ids, /** @type {number} */ penalty) {
  if (penalty === 1) return logits;
  const made = logits.slice();
  for (const id of new Set(ids)) made[id] = logits[id] < 0 ? logits[id] * penalty : logits[id] / penalty;
  return made;
}

/** The ids that may be drawn, ascending, and their probabilities: temperature, top-k, top-p, min-p. */
export function candidates(/** @type {Float32Array} */ logits, /** @type {Sampling} */ how) {
  const most = logits[argmax(logits)];
  const score = (/** @type {number} */ id) => (logits[id] - most) / how.temperature;
  const likely = (/** @type {number[]} */ some) => softmax(some.map(score));
  const least = how.topK > 0 && how.topK < logits.length ? largest(logits, how.topK) : -Infinity;
  let ids = [];
  for (let id = 0; id < logits.length; id++) if (logits[id] >= least && score(id) > -Infinity) ids.push(id);
  if (how.topP < 1) {
    const kept = nucleus(likely(ids), how.topP);
    ids = ids.filter((_, n) => kept[n]);
  }
  if (how.minP > 0) {
    const shares = likely(ids);
    const enough = how.minP * shares[argmax(shares)];
    ids = ids.filter((_, n) => shares[n] >= enough);
  }
  return { ids, probabilities: likely(ids) };
}

/** The `count`-th largest value. */
function largest(/** @type {Float32Array} */ values, /** @type {number} */ count) {
  /** The largest so far, ascending. @type {number[]} */
  const found = [];
  for (const value of values) {
    if (found.length === count && value <= found[0]) continue;
    let at = found.length;
    while (at && found[at - 1] > value) at--;
    found.splice(at, 0, value);
    if (found.length > count) found.shift();
  }
  return found[0];
}

function softmax(/** @type {number[]} */ scores) {
  const most = scores.reduce((a, b) => Math.max(a, b), -Infinity);
  const powers = scores.map((score) => Math.exp(score - most));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum);
}

/** Which are left when the least likely, together at most 1 - topP, are dropped; the likeliest always stays. */
function nucleus(/** @type {number[]} */ probabilities, /** @type {number} */ topP) {
  const order = [...probabilities.keys()].sort((a, b) => probabilities[a] - probabilities[b]);
  const kept = new Array(probabilities.length).fill(true);
  let sum = 0;
  for (const n of order.slice(0, -1)) {
    sum += probabilities[n];
    if (sum > 1 - topP) break;
    kept[n] = false;
  }
  return kept;
}

/**
 * Draws the tokens of one answer; two samplers of one seed draw alike.
 *
 * A draw takes the largest of log-probability plus noise (Gumbel 1954), and the noise is a function of the seed, of how
 * many tokens were drawn before, and of the token's id. So `guess` can draw with the noise of a draw to come.
 */
export class Sampler {
  constructor(/** @type {Sampling} */ how) {
    this.how = how;
    this.random = new Pcg64(how.seed === null ? anySeed() : BigInt(how.seed));
    /** Of the draws to come. @type {bigint[]} */
    this.keys = [];
  }

  /** The logits after the penalty, which is what a token is drawn from. */
  scores(/** @type {number[]} */ ids, /** @type {Float32Array} */ logits) {
    if (!drawable(logits)) {
      throw new PackageError("the largest logit is NaN or infinite; expected a number", {
        at: "logits",
        remedy: "the device computes wrongly, or float16 is too small: choose wasm, or build with --precision f32",
      });
    }
    return penalised(logits, ids, this.how.repetitionPenalty);
  }

  /** The next token. Each call is one draw. */
  draw(/** @type {Float32Array} */ scores) {
    if (this.how.greedy) return argmax(scores);
    const token = this.#pick(scores, this.#key(0));
    this.keys.shift();
    return token;
  }

  /** What the draw that comes after `ahead` more would take if its scores were these logits. */
  guess(/** @type {number} */ ahead, /** @type {Float32Array} */ logits) {
    return this.how.greedy ? argmax(logits) : this.#pick(logits, this.#key(ahead));
  }

  #pick(/** @type {Float32Array} */ scores, /** @type {bigint} */ key) {
    const { ids, probabilities } = candidates(scores, this.how);
    return ids[argmax(gumbel(key, ids).map((noise, n) => Math.log(probabilities[n]) + noise))];
  }

  #key(/** @type {number} */ ahead) {
    while (this.keys.length <= ahead) this.keys.push(this.random.next());
    return this.keys[ahead];
  }
}

/** False where any logit is NaN, one is infinite or all are forbidden. */
function drawable(/** @type {Float32Array} */ logits) {
  let most = -Infinity;
  for (const logit of logits) {
    if (logit !== logit) return false;
    if (logit > most) most = logit;
  }
  return Number.isFinite(most);
}
