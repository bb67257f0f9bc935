/** The drafter of a pair: a small graph that reads the caches of its target, and where its input rows come from. */
import { Graph } from "./graph.js";
import { floating, numbers, whole } from "./tensors.js";

const OUTPUTS = ["logits", "projected_state"];

/** Two graphs: the drafter, and the token embedding over the target's own table, scaled. */
export class Drafter {
  /**
   * @param {Graph} graph
   * @param {Graph} embedding
   * @param {import("./manifest.js").Manifest} manifest
   */
  constructor(graph, embedding, { drafter, decoder }) {
    this.graph = graph;
    this.embedding = embedding;
    const pasts = new Map(decoder.caches.map((cache) => [cache.present, cache.past]));
    /** The target's cache behind each `shared_kv` port. @type {[string, string][]} */
    this.shared = Object.entries(drafter?.shared ?? {}).flatMap(([kind, parts]) =>
      Object.entries(parts).map(([part, present]) => /** @type {[string, string]} */ ([`shared_kv.${kind}.${part}`, pasts.get(present) ?? ""])),
    );
  }

  /**
   * @param {any} ort
   * @param {import("./files.js").Files} files
   * @param {import("./manifest.js").Manifest} manifest
   * @param {"webgpu" | "wasm"} device
   */
  static async open(ort, files, manifest, device) {
    const { drafter, token_embedding: embedding } = manifest.graphs;
    const graph = await Graph.open(ort, files, drafter, { device });
    const lookup = await Graph.open(ort, files, embedding, { device: await lookupDevice(files, embedding, device) });
    return new Drafter(graph, lookup, manifest);
  }

  /** A state of the target, as the steps of a round see it; nothing is copied. */
  view(/** @type {import("./state.js").State} */ state) {
    const { ort } = this.graph;
    const shared = Object.fromEntries(this.shared.map(([port, past]) => [port, state.values[past]]));
    return { ...shared, attention_mask: whole(ort, new Array(state.length).fill(1), [1, state.length]) };
  }

  /**
   * Logits of the token after `token`, and the state that stands in for the next `hidden`.
   *
   * @param {number} token
   * @param {Float32Array} hidden  the target's hidden state that `token` was drawn from, or such a state
   * @param {Record<string, any>} view
   */
  async step(token, hidden, view) {
    const { ort, inputs } = this.graph;
    const [port] = Object.keys(this.embedding.outputs);
    const rows = await this.embedding.run({ input_ids: whole(ort, [token], [1, 1]) }, [port]);
    const row = numbers(rows[port]);
    const both = new Float32Array(row.length + hidden.length);
    both.set(row);
    both.set(hidden, row.length);
    const embeds = floating(ort, inputs.inputs_embeds.type, both, [1, 1, both.length]);
    const made = await this.graph.run({ ...view, inputs_embeds: embeds }, OUTPUTS);
    return { logits: numbers(made.logits), hidden: numbers(made.projected_state) };
  }
}

/** Who proposes the tokens that a target verifies: one token after the other from the place behind the newest. */
export class DrafterProposer {
  constructor(/** @type {Drafter} */ drafter) {
    this.drafter = drafter;
  }

  /**
   * `count` tokens to follow `ids`. `state` is the target's and holds all of them but the newest, which was drawn from
   * `hidden`.
   *
   * @param {import("./state.js").State} state
   * @param {number[]} ids
   * @param {Float32Array} hidden
   * @param {number} count
   * @param {(ahead: number, logits: Float32Array) => number} guess
   */
  async propose(state, ids, hidden, count, guess) {
    const view = this.drafter.view(state);
    const drafts = [];
    for (let ahead = 0, token = ids[ids.length - 1]; ahead < count; ahead++) {
      const made = await this.drafter.step(token, hidden, view);
      hidden = made.hidden;
      token = guess(ahead, made.logits);
      drafts.push(token);
    }
    return drafts;
  }
}

/**
 * Where rows are looked up: on the processor, as the GPU holds the target's table once already; but builds with WebGPU
 * have no kernel of the processor for a table in blocks.
 *
 * @param {import("./files.js").Files} files
 * @param {import("./manifest.js").GraphEntry} embedding
 * @param {"webgpu" | "wasm"} device
 */
async function lookupDevice(files, embedding, device) {
  const inBlocks = (await (await files.blob(embedding)).text()).includes("GatherBlockQuantized");
  return inBlocks ? device : "wasm";
}
