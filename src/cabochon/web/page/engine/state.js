/**
 * What the layers remember of the tokens fed so far: the caches of one row. Full caches hold every token, sliding ones
 * the last `length - evicted`. One row without padding is the same for every target, left-justified or not.
 */
import { cut, empty, Eviction } from "./columns.js";
import { RequestError } from "./errors.js";
import { pause } from "./pause.js";
import { rowsOf, whole } from "./tensors.js";

export const PREFILL_CHUNK = 512;

/** @typedef {{logits: Float32Array[] | null, hidden: Float32Array[] | null}} Output  rows of the kept positions */

/** The caches of one row. Every method leaves it either as it was or complete. */
export class State {
  /**
   * @param {import("./graph.js").Graph} graph  the decoder
   * @param {{feeds(ids: number[]): Promise<Record<string, any>>}} embedder
   * @param {import("./manifest.js").Manifest["decoder"]} ports
   * @param {Eviction | null} eviction
   */
  constructor(graph, embedder, ports, eviction, chunk = PREFILL_CHUNK) {
    this.graph = graph;
    this.embedder = embedder;
    this.ports = ports;
    this.eviction = eviction;
    this.chunk = chunk;
    /** @type {number[]} */
    this.tokens = [];
    this.evicted = 0;
    /** Caches by the name of their past. @type {Record<string, any>} */
    this.values = {};
    this.#forget();
  }

  /** Tokens fed so far. */
  get length() {
    return this.tokens.length;
  }

  /** Bytes of the caches. */
  get nbytes() {
    return Object.values(this.values).reduce((sum, { type, size }) => sum + size * (type === "float16" ? 2 : 4), 0);
  }

  /**
   * Feed `ids`; give the logits of the last `keep` of them (0: all, null: none), and their hidden states if asked for.
   *
   * @param {number[]} ids
   * @param {{keep?: number | null, hidden?: boolean}} [asked]
   * @returns {Promise<Output>}
   */
  async step(ids, { keep = 1, hidden = false } = {}) {
    const { ort } = this.graph;
    const { caches, keeps } = this.ports;
    this.#check(ids, keep);
    const fed = await this.embedder.feeds(ids);
    const total = this.length + ids.length;
    /** @type {Record<string, any>} */
    const feeds = { ...fed, ...this.values, attention_mask: whole(ort, new Array(total).fill(1), [1, total]) };
    if (keeps) feeds.logits_to_keep = new ort.Tensor("int64", [BigInt(keep ?? 1)], []);
    const tap = hidden ? this.ports.hidden : null;
    const fetched = [...(keep === null ? [] : ["logits"]), ...(tap ? [tap] : []), ...caches.map((c) => c.present)];
    const made = await this.graph.run(feeds, fetched);
    for (const tensor of [...Object.values(fed), ...Object.values(this.values)]) tensor.dispose();
    this.values = Object.fromEntries(caches.map((c) => [c.past, made[c.present]]));
    this.tokens = [...this.tokens, ...ids];
    await this.#evictWhenDue();
    return { logits: keep === null ? null : last(made.logits, keep), hidden: tap ? last(made[tap], keep ?? 0) : null };
  }

  /**
   * Feed tokens, at least one, in chunks; what the step of the last one gives. `signal` is looked at between chunks.
   *
   * @param {number[]} ids
   * @param {{hidden?: boolean, signal?: AbortSignal}} [asked]
   */
  async feed(ids, { hidden = false, signal } = {}) {
    let at = 0;
    for (; ids.length - at > this.chunk; at += this.chunk) {
      await this.step(ids.slice(at, at + this.chunk), { keep: null });
      await pause();
      signal?.throwIfAborted();
    }
    return this.step(ids.slice(at), { hidden });
  }

  /** True where the sliding caches still hold what the token at `position` would see. */
  canRewind(/** @type {number} */ position) {
    return !this.eviction || !this.evicted || position - this.evicted >= this.eviction.window - 1;
  }

  /** Forget all but the first `position` tokens; computed anew where the caches lost too much. */
  async rewind(/** @type {number} */ position) {
    if (position === this.length) return;
    if (!position || !this.canRewind(position)) {
      const ids = this.tokens.slice(0, position);
      this.#forget();
      if (ids.length) await this.feed(ids);
      return;
    }
    this.tokens = this.tokens.slice(0, position);
    await this.#cut((cache) => [0, position - (cache.sliding ? this.evicted : 0)]);
  }

  /** Let go of the caches. */
  dispose() {
    this.#forget();
  }

  #check(/** @type {number[]} */ ids, /** @type {number | null} */ keep) {
    const { vocabulary, last_only: lastOnly } = this.ports;
    const odd = ids.find((id) => !Number.isInteger(id) || id < 0 || id >= vocabulary);
    if (odd !== undefined || !ids.length) {
      throw new RequestError(`${odd ?? "nothing"}; expected token ids from 0 to ${vocabulary - 1}`, { at: "input_ids" });
    }
    if (lastOnly && keep !== null && keep !== 1) {
      throw new RequestError("this package gives the logits of the last position alone", {
        at: "logits_to_keep",
        remedy: "build it without --logits-to-keep",
      });
    }
  }

  #forget() {
    for (const tensor of Object.values(this.values)) tensor.dispose();
    const type = this.graph.outputs.logits.type;
    this.values = Object.fromEntries(this.ports.caches.map((cache) => [cache.past, empty(this.graph.ort, cache, type)]));
    this.tokens = [];
    this.evicted = 0;
  }

  /** Drop from the front of the sliding caches what no token can see any more. */
  async #evictWhenDue() {
    if (!this.eviction || this.length - this.evicted <= this.eviction.most) return;
    const dropped = this.length - this.evicted - this.eviction.keep;
    this.evicted += dropped;
    const held = this.length - this.evicted;
    await this.#cut((cache) => (cache.sliding ? [dropped, dropped + held] : null));
  }

  /** Cut each cache to the columns [first, end) that `span` says; null leaves it as it is. */
  async #cut(/** @type {(cache: import("./manifest.js").Cache) => [number, number] | null} */ span) {
    for (const cache of this.ports.caches) {
      const found = span(cache);
      if (found) this.values[cache.past] = await cut(this.graph.ort, this.values[cache.past], ...found);
    }
  }
}

/** The last `keep` rows of [1, rows, width]; all where it is 0. */
function last(tensor, /** @type {number} */ keep) {
  return rowsOf(tensor).slice(-keep);
}
