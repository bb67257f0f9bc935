/** Token by token to text: characters stay whole, and stop strings end the flow without being part of it. */

/**
 * Ids in, text out as soon as it is certain. Bytes of a character come as tokens of their own, and the decoder judges
 * a run of them as a whole, so a run is held back until another token ends it.
 */
export class Detokenizer {
  constructor(/** @type {import("./tokens.js").Tokens} */ tokens) {
    this.tokens = tokens;
    /** @type {number[]} */
    this.said = [];
    /** @type {number[]} */
    this.held = [];
  }

  /** The text that became certain with this token; often empty. */
  add(/** @type {number} */ token) {
    if (this.tokens.skipped.has(token)) return "";
    this.held.push(token);
    return this.tokens.isByte(token) ? "" : this.#release(false);
  }

  /** What is still held. */
  finish() {
    return this.#release(true);
  }

  /** Decode behind the last piece, since some decoders treat the first token of a text otherwise. */
  #release(/** @type {boolean} */ final) {
    const before = this.tokens.decode(this.said);
    const text = this.tokens.decode([...this.said, ...this.held]).slice(before.length);
    if (!this.held.length || (text.endsWith("\ufffd") && !final)) return "";
    this.said = this.held;
    this.held = [];
    return text;
  }
}

/** Looks for stop strings in a flow of pieces; holds back an end that may become one. */
export class Stops {
  constructor(/** @type {string[]} */ stops) {
    this.stops = stops.filter(Boolean);
    this.held = "";
    this.found = false;
  }

  /** The text that is certain not to belong to a stop string; `found` tells when one came. */
  add(/** @type {string} */ piece) {
    if (this.found) return "";
    this.held += piece;
    const places = this.stops.map((stop) => this.held.indexOf(stop)).filter((at) => at >= 0);
    this.found = places.length > 0;
    return this.#take(this.found ? Math.min(...places) : this.held.length - this.#openEnd());
  }

  /** What was held back, now that nothing follows. */
  finish() {
    return this.found ? "" : this.#take(this.held.length);
  }

  #take(/** @type {number} */ count) {
    const text = this.held.slice(0, count);
    this.held = this.held.slice(count);
    return text;
  }

  /** Length of the longest end of the held text that begins a stop string. */
  #openEnd() {
    let longest = 0;
    for (const stop of this.stops) {
      for (let n = 1; n <= Math.min(this.held.length, stop.length - 1); n++) {
        if (this.held.endsWith(stop.slice(0, n))) longest = Math.max(longest, n);
      }
    }
    return longest;
  }
}
