/** A package that generates. */
import { Eviction } from "./columns.js";
import { choose } from "./device.js";
import { Adaptive, FIRST, Fixed } from "./draft_length.js";
import { Drafter, DrafterProposer } from "./drafter.js";
import { Embedding, Lookup } from "./embedder.js";
import { RequestError } from "./errors.js";
import { Files } from "./files.js";
import { answer, Row } from "./generation.js";
import { Graph } from "./graph.js";
import { declared, onnxruntime } from "./libraries.js";
import { allFiles, checkFitsWasm, openManifest } from "./manifest.js";
import { Prompts } from "./prompts.js";
import { Sampler, sampling } from "./sampling.js";
import { speculate } from "./speculation.js";
import { PREFILL_CHUNK, State } from "./state.js";

export const MAX_NEW_TOKENS = 256;
const MOST_DRAFT_TOKENS = 64;

/**
 * @typedef {object} Options  of `generate`; what is left out comes from generation_config.json
 * @property {number} [maxNewTokens]  left out: the file's or 256, shortened to what the model's positions hold
 * @property {boolean} [greedy]  decides where given; else temperature 0 is greedy, any sampling value samples
 * @property {number} [temperature]
 * @property {number} [topK]
 * @property {number} [topP]
 * @property {number} [minP]
 * @property {number} [repetitionPenalty]
 * @property {number} [seed]  makes draws repeatable, and the same as in Python
 * @property {string[]} [stop]  strings that end the answer
 * @property {boolean} [ignoreEos]
 * @property {boolean} [speculation]  left out: where the package is a pair; the answer is the same
 * @property {number} [numAssistantTokens]  proposed in a round; left out: as many as pay
 * @property {number} [prefillChunk]
 * @property {Record<string, unknown>} [template]  the chat template's own options
 * @property {(text: string, id: number) => void} [onToken]
 * @property {AbortSignal} [signal]  ends the answer; what came of it is the result
 */

/**
 * Load a package and make it ready to generate. Raises PackageError for one that is not right, DeviceError for a
 * device that cannot run it.
 *
 * @param {string} manifestUrl
 * @param {{device?: "auto" | "webgpu" | "wasm", onProgress?: (made: import("./files.js").Progress) => void,
 *   threads?: number, signal?: AbortSignal, libraries?: import("./libraries.js").Libraries}} [how]
 */
export async function load(manifestUrl, { device = "auto", onProgress, threads, signal, libraries = declared() } = {}) {
  const { manifest, base } = await openManifest(manifestUrl);
  const chosen = await choose(device, manifest);
  if (chosen.device === "wasm") checkFitsWasm(manifest);
  const files = new Files(base, { onProgress, signal });
  files.expect(allFiles(manifest));
  const opening = (/** @type {string} */ what) =>
    onProgress?.({ stage: "open", what, loaded: files.loaded, total: files.total, cached: files.cached });
  const [ort, prompts] = await Promise.all([
    onnxruntime(libraries, chosen.device, threads),
    Prompts.open(manifest, files, libraries),
    ...allFiles(manifest).map((file) => files.blob(file)),
  ]);
  opening("decoder");
  const presents = new Set(manifest.decoder.caches.map((cache) => cache.present));
  const graph = await Graph.open(ort, files, manifest.graphs.decoder, { device: chosen.device, keeps: (name) => presents.has(name) });
  const embedder = await openEmbedder(ort, files, manifest, chosen.device);
  let proposer = null;
  if (manifest.kind === "pair") {
    opening("drafter");
    proposer = new DrafterProposer(await Drafter.open(ort, files, manifest, chosen.device));
  }
  return new Model(manifest, graph, embedder, prompts, proposer, { ...chosen, remarks: [...chosen.remarks, ...files.remarks] });
}

async function openEmbedder(ort, /** @type {Files} */ files, /** @type {import("./manifest.js").Manifest} */ manifest, /** @type {"webgpu" | "wasm"} */ device) {
  if (!manifest.graphs.embedding || !manifest.embedding) return new Lookup(ort);
  const graph = await Graph.open(ort, files, manifest.graphs.embedding, { device, keeps: () => true });
  return new Embedding(graph, manifest.embedding, manifest.decoder.takes ?? []);
}

/**
 * A loaded package. The caches of one conversation stay between calls, so a next turn costs only what is new.
 * `device` runs it, `deviceName` is that in words, `remarks` say what a user should know.
 */
export class Model {
  /**
   * @param {import("./manifest.js").Manifest} manifest
   * @param {Graph} graph  the decoder
   * @param {Lookup | Embedding} embedder
   * @param {Prompts} prompts
   * @param {DrafterProposer | null} proposer
   * @param {import("./device.js").Chosen} chosen
   */
  constructor(manifest, graph, embedder, prompts, proposer, { device, name, remarks }) {
    this.manifest = manifest;
    this.graph = graph;
    this.embedder = embedder;
    this.prompts = prompts;
    this.proposer = proposer;
    this.device = device;
    this.deviceName = name;
    this.remarks = [...remarks, ...(manifest.remarks ?? [])];
    this.threads = graph.ort.env.wasm.numThreads;
    const { window } = manifest.decoder;
    this.eviction = window ? Eviction.usual(window) : null;
    this.draftLength = new Adaptive(undefined, manifest.drafter?.num_assistant_tokens ?? FIRST);
    /** @type {State | null} */
    this.kept = null;
    this.busy = false;
  }

  /**
   * Generate until end-of-sequence, a stop string or `maxNewTokens`. Raises RequestError, before anything is computed,
   * for a prompt or option that is wrong and for what the positions cannot hold.
   *
   * @param {import("./prompts.js").Prompt} prompt
   * @param {Options} [options]
   * @returns {Promise<import("./generation.js").Generation>}
   */
  async generate(prompt, options = {}) {
    if (this.busy) throw new RequestError("another answer is being generated", { at: "generate", remedy: "wait for it, or stop it" });
    const row = this.#row(this.promptIds(prompt, options), options);
    const length = this.#draftLength(options);
    this.busy = true;
    const state = await this.#resume(row.prompt, options.prefillChunk ?? PREFILL_CHUNK);
    row.reused = state.length;
    try {
      if (length && this.proposer) await speculate(state, row, this.proposer, length);
      else await answer(state, row);
    } catch (error) {
      if (!options.signal?.aborted || error !== options.signal.reason) throw error;
    } finally {
      this.kept = state;
      this.busy = false;
    }
    return row.generation();
  }

  /** The token ids of a prompt as `generate` would feed them. */
  promptIds(/** @type {import("./prompts.js").Prompt} */ prompt, /** @type {Options} */ options = {}) {
    return this.prompts.ids(prompt, options.template);
  }

  /** Let go of the caches of the last conversation. */
  forget() {
    this.kept?.dispose();
    this.kept = null;
  }

  /** Bytes of what the device holds between answers: weights, as their files have them, and caches. */
  memory() {
    const distinct = new Map(allFiles(this.manifest).map((file) => [file.sha256 ?? file.file, file.bytes]));
    const weights = [...distinct.values()].reduce((sum, bytes) => sum + bytes, 0);
    const caches = this.kept?.nbytes ?? 0;
    return { device: this.device, weights, caches };
  }

  #row(/** @type {number[]} */ ids, /** @type {Options} */ options) {
    const { generation, decoder } = this.manifest;
    const usual = generation.max_new_tokens ?? MAX_NEW_TOKENS;
    const limit = room(ids.length, options.maxNewTokens, decoder.max_positions, usual);
    const sampler = new Sampler(sampling(generation, options));
    const { onToken = () => {}, signal, stop = [], ignoreEos = false } = options;
    const eos = new Set(ignoreEos ? [] : generation.eos);
    return new Row(ids, sampler, { limit, eos, tokens: this.prompts.tokens, stop, onToken, signal });
  }

  /** The kept state, rewound to what it shares with the prompt but for its last token; else a fresh one. */
  async #resume(/** @type {number[]} */ prompt, /** @type {number} */ chunk) {
    const state = this.kept;
    this.kept = null;
    if (state) {
      const position = shared(state.tokens, prompt.slice(0, -1));
      if (state.canRewind(position)) {
        await state.rewind(position);
        state.chunk = chunk;
        state.eviction = this.eviction;
        return state;
      }
      state.dispose();
    }
    return new State(this.graph, this.embedder, this.manifest.decoder, this.eviction, chunk);
  }

  /** null for plain decoding. From now on sliding caches keep what so long drafts need. */
  #draftLength(/** @type {Options} */ { speculation, numAssistantTokens }) {
    if (speculation && !this.proposer) {
      throw new RequestError("nobody is there to propose tokens", { at: "speculation", remedy: "load a pair of a target and its drafter" });
    }
    if (numAssistantTokens !== undefined && !(Number.isInteger(numAssistantTokens) && numAssistantTokens >= 1 && numAssistantTokens <= MOST_DRAFT_TOKENS)) {
      throw new RequestError(`${numAssistantTokens}; expected a whole number from 1 to ${MOST_DRAFT_TOKENS}`, { at: "numAssistantTokens" });
    }
    if (!this.proposer || speculation === false) return null;
    const length = numAssistantTokens ? new Fixed(numAssistantTokens) : this.draftLength;
    if (this.eviction && this.eviction.reserve < length.most + 2) this.eviction = Eviction.usual(this.eviction.window, length.most);
    return length;
  }
}

/** How many tokens may follow a prompt of `tokens`; raise RequestError where they exceed the positions. */
function room(/** @type {number} */ tokens, /** @type {number | undefined} */ asked, /** @type {number} */ positions, /** @type {number} */ usual) {
  if (!tokens) throw new RequestError("an empty prompt; expected at least one token", { at: "prompt", remedy: "write something" });
  if (asked !== undefined && !(Number.isInteger(asked) && asked >= 1)) {
    throw new RequestError(`${asked}; expected a whole number from 1`, { at: "maxNewTokens" });
  }
  if (tokens + (asked ?? 1) > positions) {
    throw new RequestError(`a prompt of ${tokens} tokens${asked ? ` and ${asked} new ones` : ""}; the model has ${positions} positions`, {
      at: "context",
      remedy: "begin a new conversation, shorten the prompt or ask for fewer new tokens",
    });
  }
  return asked ?? Math.min(usual, positions - tokens);
}

/** Length of the common beginning. */
function shared(/** @type {number[]} */ a, /** @type {number[]} */ b) {
  let n = 0;
  while (n < Math.min(a.length, b.length) && a[n] === b[n]) n++;
  return n;
}
