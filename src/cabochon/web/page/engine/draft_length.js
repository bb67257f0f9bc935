/** How many tokens to propose in a round: always as many, or as many as pay by what was measured. */

/** @typedef {{proposed: number, accepted: number, verified: number, drafterSeconds: number, targetSeconds: number}} Round */

export const FIRST = 4;
const MOST = 8;
const PROBE_EVERY = 32;
const FORGET = 0.95;
const WIDEST_SURPRISE = 3;
const WORTHWHILE = 1.05; // what proposing must promise over plain decoding, as measured seconds waver

/** Always as many. */
export class Fixed {
  constructor(/** @type {number} */ most) {
    this.most = most;
  }

  next() {
    return this.most;
  }

  observe(/** @type {Round} */ _) {}
}

/**
 * The length that promises most tokens a second. k proposals, each kept with probability a if all before it were, give
 * (1 - a^(k+1)) / (1 - a) tokens and take T(k + 1) + k D seconds. a and D are means of what was seen lately, and T is
 * the straight line through the target's steps seen lately.
 */
export class Adaptive {
  constructor(most = MOST, first = FIRST) {
    this.most = most;
    this.first = Math.min(first, most);
    this.rounds = 0;
    this.kept = 3; // before anything was seen
    this.compared = 4;
    this.draftSeconds = 0;
    this.drafted = 0;
    this.line = new Line();
  }

  /** Tokens to propose; 0 is a plain step. */
  next() {
    if (this.rounds < 3) return [this.first, 0, this.most][this.rounds];
    const best = this.#best();
    return this.rounds % PROBE_EVERY === 0 ? this.#otherThan(best) : best;
  }

  /** What came of a round. */
  observe(/** @type {Round} */ made) {
    this.rounds++;
    if (made.proposed) {
      this.kept = FORGET * this.kept + made.accepted;
      this.compared = FORGET * this.compared + made.verified;
      this.draftSeconds = FORGET * this.draftSeconds + made.drafterSeconds;
      this.drafted = FORGET * this.drafted + made.proposed;
    }
    this.line.add(made.proposed + 1, made.targetSeconds);
  }

  /** Tokens a second that `count` proposals promise. */
  speed(/** @type {number} */ count) {
    const acceptance = Math.min(this.kept / this.compared, 0.99);
    const tokens = (1 - acceptance ** (count + 1)) / (1 - acceptance);
    const draft = this.drafted ? this.draftSeconds / this.drafted : 0;
    return tokens / (this.line.at(count + 1) + count * draft);
  }

  #best() {
    let best = 0;
    for (let count = 1; count <= this.most; count++) if (this.speed(count) > this.speed(best)) best = count;
    return this.speed(best) > WORTHWHILE * this.speed(0) ? best : 0;
  }

  #otherThan(/** @type {number} */ best) {
    return best > Math.floor(this.most / 2) ? 0 : Math.min(best + 2, this.most);
  }
}

/** Seconds of a step over its tokens: a straight line through the steps seen lately, the last ones counting most. */
class Line {
  n = 0;
  x = 0;
  y = 0;
  xx = 0;
  xy = 0;

  /** True once steps of two lengths were seen. */
  get known() {
    return this.n * this.xx - this.x ** 2 > 1e-6 * this.n ** 2;
  }

  /** A step. A much slower one than expected is most likely the machine's doing, and is cut short. */
  add(/** @type {number} */ tokens, /** @type {number} */ seconds) {
    const took = this.known ? Math.min(seconds, WIDEST_SURPRISE * this.at(tokens)) : seconds;
    this.n = FORGET * this.n + 1;
    this.x = FORGET * this.x + tokens;
    this.y = FORGET * this.y + took;
    this.xx = FORGET * this.xx + tokens ** 2;
    this.xy = FORGET * this.xy + tokens * took;
  }

  /** Seconds of a step of so many tokens; a longer step is never the faster one. */
  at(/** @type {number} */ tokens) {
    const { n, x, y, xx, xy } = this;
    const slope = this.known ? Math.max((n * xy - x * y) / (n * xx - x ** 2), 0) : 0;
    return Math.max(y / n + slope * (tokens - x / n), 1e-9);
  }
}
