/**
 * Speculative decoding: propose some tokens, let the target read them in one step, keep those it draws itself.
 *
 * A round has the state of the target hold all tokens but the newest. The target reads the newest and the proposals,
 * and draws a token behind each, in order, until one is not what was proposed; whatever it read beyond is forgotten.
 *
 * In float32 a step of several tokens gives other last bits than steps of one. A greedy choice that hangs on them is
 * made again as plain decoding makes it: on caches that were filled token by token since the prompt.
 */
import { matching, tooClose } from "./acceptance.js";
import { now } from "./generation.js";

/**
 * Fill the state with what it lacks of the row's prompt and decode in rounds.
 *
 * @param {import("./state.js").State} state
 * @param {import("./generation.js").Row} row
 * @param {import("./drafter.js").DrafterProposer} proposer
 * @param {import("./draft_length.js").Fixed | import("./draft_length.js").Adaptive} length
 */
export async function speculate(state, row, proposer, length) {
  const read = await state.feed(row.prompt.slice(state.length), { hidden: true, signal: row.signal });
  row.prefilled = now();
  const rounds = new Rounds(state, row, proposer, length, read);
  row.commit(row.scores(logitsOf(read).slice(-1)[0]));
  while (!row.stopped && !(await row.closes())) await rounds.goOn();
}

/** The rounds of one answer. */
class Rounds {
  /** `state` holds the prompt, and `read` is what its last step gave. */
  constructor(state, row, proposer, length, /** @type {import("./state.js").Output} */ read) {
    this.state = /** @type {import("./state.js").State} */ (state);
    this.row = /** @type {import("./generation.js").Row} */ (row);
    this.proposer = proposer;
    this.length = length;
    this.hidden = hiddenOf(read).slice(-1)[0];
    this.plain = this.state.length; // tokens whose caches are those of plain decoding
    this.guarded = this.row.sampler.how.greedy && this.state.graph.outputs.logits.type === "float32";
  }

  /** One round, of at least one token. */
  async goOn() {
    const { row, state } = this;
    const before = row.ids.length;
    const start = now();
    const drafts = await this.#drafts();
    const proposed = now();
    const read = await state.step([...row.soFar.slice(-1), ...drafts], { keep: 0, hidden: true });
    const seconds = { drafterSeconds: proposed - start, targetSeconds: now() - proposed };
    if (!drafts.length && this.plain === state.length - 1) this.plain = state.length;
    try {
      await this.#draw(read, drafts);
    } finally {
      await state.rewind(Math.min(state.length, row.soFar.length - 1));
    }
    const drawn = row.ids.slice(before);
    const verified = Math.min(drafts.length, drawn.length);
    const made = { proposed: drafts.length, accepted: matching(drafts, drawn), verified, ...seconds };
    this.length.observe(made);
    row.rounds.push(made);
  }

  /** @returns {Promise<number[]>} */
  async #drafts() {
    const { row, state, proposer } = this;
    const count = Math.min(this.length.next(), row.limit - row.ids.length - 1);
    if (count < 1) return [];
    return proposer.propose(state, row.soFar, this.hidden, count, (ahead, logits) => row.sampler.guess(ahead, logits));
  }

  async #draw(/** @type {import("./state.js").Output} */ read, /** @type {number[]} */ drafts) {
    const { row } = this;
    for (const [n, logits] of logitsOf(read).entries()) {
      this.hidden = hiddenOf(read)[n];
      let scores = row.scores(logits);
      const unsure = this.guarded && this.plain < row.soFar.length && tooClose(scores, logits);
      if (unsure) {
        const again = await this.#readPlainly();
        this.hidden = hiddenOf(again).slice(-1)[0];
        scores = row.scores(logitsOf(again).slice(-1)[0]);
      }
      row.commit(scores);
      if (unsure || row.stopped || n === drafts.length || row.ids[row.ids.length - 1] !== drafts[n]) return;
    }
  }

  /** Feed what followed since caches were those of plain decoding again, token by token. */
  async #readPlainly() {
    const { state, row } = this;
    await state.rewind(this.plain);
    const tokens = row.soFar.slice(this.plain);
    for (const token of tokens.slice(0, -1)) await state.step([token], { keep: null });
    const read = await state.step(tokens.slice(-1), { hidden: true });
    this.plain = state.length;
    row.readAgain += tokens.length;
    return read;
  }
}

function logitsOf(/** @type {import("./state.js").Output} */ read) {
  return /** @type {Float32Array[]} */ (read.logits);
}

function hiddenOf(/** @type {import("./state.js").Output} */ read) {
  return /** @type {Float32Array[]} */ (read.hidden);
}
