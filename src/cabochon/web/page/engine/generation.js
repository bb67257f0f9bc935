/** The loop: feed, draw, say. */
import { Detokenizer, Stops } from "./flow.js";
import { pause } from "./pause.js";

/**
 * One answer. `ids` are all tokens drawn, an end-of-sequence token included; `text` holds neither it nor a stop string.
 * `stopped` is "eos", "stop" (a stop string), "length", or "closed" where the caller stopped it. `reused` tokens of
 * the prompt were in the caches already. `tokensPerSecond` counts tokens after the first. `readAgain` tokens were fed
 * twice because a choice between two nearly equal logits hung on it (docs/speculation.md).
 *
 * @typedef {{ids: number[], text: string, stopped: string, promptIds: number[], reused: number, seconds: number,
 *   prefillSeconds: number, tokensPerSecond: number, rounds: number, proposed: number, accepted: number,
 *   readAgain: number, remarks: string[]}} Generation
 */

const ENOUGH = 16;
export const now = () => performance.now() / 1000;

/** One answer in the making. */
export class Row {
  /**
   * @param {number[]} prompt
   * @param {import("./sampling.js").Sampler} sampler
   * @param {{limit: number, eos: Set<number>, tokens: import("./tokens.js").Tokens | null, stop: string[],
   *   onToken: (text: string, id: number) => void, signal?: AbortSignal}} how
   */
  constructor(prompt, sampler, { limit, eos, tokens, stop, onToken, signal }) {
    this.prompt = prompt;
    this.sampler = sampler;
    this.limit = limit;
    this.eos = eos;
    this.onToken = onToken;
    this.signal = signal;
    this.flow = tokens && new Detokenizer(tokens);
    this.stops = new Stops(stop);
    this.soFar = [...prompt];
    /** @type {number[]} */
    this.ids = [];
    this.text = "";
    this.stopped = "";
    this.reused = 0;
    this.began = now();
    this.prefilled = 0;
    this.ended = 0;
    /** @type {import("./draft_length.js").Round[]} */
    this.rounds = [];
    this.readAgain = 0;
  }

  /** What the next token is drawn from. */
  scores(/** @type {Float32Array} */ logits) {
    return this.sampler.scores(this.soFar, logits);
  }

  /** Draw the next token from its scores, and say what became certain. */
  commit(/** @type {Float32Array} */ scores) {
    const token = this.sampler.draw(scores);
    this.soFar.push(token);
    this.ids.push(token);
    const ends = this.eos.has(token);
    let piece = ends ? "" : this.#say(this.flow?.add(token) ?? "");
    if (ends) piece += this.#finish("eos");
    else if (this.stops.found) piece += this.#finish("stop");
    else if (this.ids.length >= this.limit) piece += this.#finish("length");
    this.onToken(piece, token);
  }

  /** End here; true where that was asked for. */
  async closes() {
    await pause();
    if (!this.signal?.aborted || this.stopped) return false;
    this.#finish("closed");
    return true;
  }

  #say(/** @type {string} */ piece) {
    const certain = this.stops.add(piece);
    this.text += certain;
    return certain;
  }

  #finish(/** @type {string} */ reason) {
    const piece = this.#say(this.flow?.finish() ?? "");
    const rest = this.stops.finish();
    this.text += rest;
    this.stopped = this.stops.found ? "stop" : reason;
    this.ended = now();
    return piece + rest;
  }

  /** The answer as far as it came. @returns {Generation} */
  generation() {
    const { ids, text, rounds, began, reused, readAgain } = this;
    const ended = this.ended || now();
    const prefilled = this.prefilled || ended;
    const proposed = rounds.reduce((sum, round) => sum + round.proposed, 0);
    const accepted = rounds.reduce((sum, round) => sum + round.accepted, 0);
    const unfit = proposed >= ENOUGH && !accepted;
    return {
      ids: [...ids],
      text,
      stopped: this.stopped || "closed",
      promptIds: [...this.prompt],
      reused,
      seconds: ended - began,
      prefillSeconds: prefilled - began,
      tokensPerSecond: ids.length > 1 && ended > prefilled ? (ids.length - 1) / (ended - prefilled) : 0,
      rounds: rounds.length,
      proposed,
      accepted,
      readAgain,
      remarks: unfit ? [`0 of ${proposed} proposed tokens were accepted; is this the drafter of this target?`] : [],
    };
  }
}

/** Fill the state with what it lacks of the row's prompt and decode. */
export async function answer(/** @type {import("./state.js").State} */ state, /** @type {Row} */ row) {
  let read = await state.feed(row.prompt.slice(state.length), { signal: row.signal });
  row.prefilled = now();
  for (;;) {
    const [logits] = /** @type {Float32Array[]} */ (read.logits).slice(-1);
    row.commit(row.scores(logits));
    if (row.stopped || (await row.closes())) return;
    read = await state.step(row.ids.slice(-1));
  }
}
