/** What makes of tokens that which a decoder is fed: itself, or the embedding of a full package. */
import { RequestError } from "./errors.js";
import { whole } from "./tensors.js";

/** The decoder looks its tokens up itself: a text package. */
export class Lookup {
  constructor(ort) {
    this.ort = ort;
    /** @type {Record<string, number>} */
    this.placeholders = {};
  }

  /** Ports of the decoder by name, for the ids of one row. */
  async feeds(/** @type {number[]} */ ids) {
    return { input_ids: whole(this.ort, ids, [1, ids.length]) };
  }
}

/** A graph that embeds. Placeholders of images and sound stand for nothing here: they are embedded as padding. */
export class Embedding {
  /**
   * @param {import("./graph.js").Graph} graph
   * @param {{pad: number, placeholders: Record<string, number>}} said
   * @param {string[]} takes  ports of the decoder that tokens come in by
   */
  constructor(graph, { pad, placeholders }, takes) {
    this.graph = graph;
    this.pad = pad;
    this.placeholders = placeholders;
    this.takes = takes;
    this.bare = new Set(Object.values(placeholders));
  }

  /** As `Lookup`; the tensors are let go after the step. */
  async feeds(/** @type {number[]} */ ids) {
    const { ort, inputs, outputs } = this.graph;
    const fed = ids.map((id) => (this.bare.has(id) ? this.pad : id));
    const feeds = { input_ids: whole(ort, fed, [1, fed.length]) };
    for (const [name, port] of Object.entries(inputs)) {
      if (name !== "input_ids") feeds[name] = none(ort, port);
    }
    const made = await this.graph.run(feeds, Object.keys(outputs));
    return this.takes.includes("input_ids") ? { ...made, input_ids: whole(ort, fed, [1, fed.length]) } : made;
  }
}

/** No rows of features. */
function none(ort, /** @type {import("./manifest.js").Port} */ { type, shape }) {
  const values = type === "float16" ? new (globalThis.Float16Array ?? Uint16Array)(0) : new Float32Array(0);
  return new ort.Tensor(type, values, [0, shape[1]]);
}

/** The error for an image or a sound. */
export function textAlone(/** @type {string} */ at) {
  return new RequestError("this page takes text alone, neither images nor sound", {
    at,
    remedy: "run the package with `cabochon run` or from Python, which take both",
  });
}
