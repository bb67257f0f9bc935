/** Graphs in sessions of onnxruntime-web. */
import { DeviceError, PackageError, RequestError } from "./errors.js";
import { withoutInitializer } from "./protobuf.js";

/** A graph in a session, and one method that runs it. */
export class Graph {
  constructor(ort, session, /** @type {import("./manifest.js").GraphEntry} */ entry, /** @type {"webgpu" | "wasm"} */ device) {
    this.ort = ort;
    this.session = session;
    this.device = device;
    this.inputs = entry.inputs;
    this.outputs = entry.outputs;
  }

  /**
   * Load a graph. Outputs that `keeps` says yes to stay on the GPU.
   *
   * @param {any} ort
   * @param {import("./files.js").Files} files
   * @param {import("./manifest.js").GraphEntry} entry
   * @param {{device: "webgpu" | "wasm", keeps?: (output: string) => boolean}} how
   */
  static async open(ort, files, entry, { device, keeps = () => false }) {
    const [graph, ...data] = await Promise.all([files.bytes(entry), ...entry.data.map((file) => files.blob(file))]);
    const required = "logits_to_keep" in entry.inputs ? withoutInitializer(graph, "logits_to_keep") : graph;
    const kept = Object.keys(entry.outputs).filter(keeps);
    const options = {
      executionProviders: [device],
      externalData: entry.data.map(({ path }, n) => ({ path, data: data[n] })),
      logSeverityLevel: 3,
      ...(device === "webgpu" && kept.length
        ? { preferredOutputLocation: Object.fromEntries(kept.map((name) => [name, "gpu-buffer"])) }
        : {}),
    };
    try {
      return new Graph(ort, await ort.InferenceSession.create(required, options), entry, device);
    } catch (error) {
      throw cannotLoad(entry, device, error);
    }
  }

  /**
   * Run once.
   *
   * @param {Record<string, any>} feeds  tensors by input
   * @param {string[]} fetched  outputs
   * @returns {Promise<Record<string, any>>} tensors by output
   */
  async run(feeds, fetched) {
    try {
      const made = await this.session.run(feeds, fetched);
      if (this.device === "webgpu") requireWell(await this.ort.env.webgpu.device);
      return made;
    } catch (error) {
      if (error instanceof DeviceError) throw error;
      throw new RequestError(`onnxruntime-web failed in a step: ${Object(error).message}`, {
        at: this.device,
        remedy: "where memory is short ask for less at once or choose wasm; else the package does not fit this device",
        cause: error,
      });
    }
  }
}

/** What went wrong on a GPU. @type {WeakMap<GPUDevice, string>} */
const troubles = new WeakMap();

/** Raise DeviceError where the GPU is lost or has failed: what it gave is not to be trusted. */
function requireWell(/** @type {GPUDevice} */ gpu) {
  if (!troubles.has(gpu)) {
    troubles.set(gpu, "");
    gpu.lost.then(({ message }) => troubles.set(gpu, message || "it was lost"));
    gpu.addEventListener("uncapturederror", ({ error }) => troubles.set(gpu, error.message));
  }
  const found = troubles.get(gpu);
  if (!found) return;
  throw new DeviceError(`the GPU failed: ${found}`, { at: "webgpu", remedy: "reload the page; where memory is short, run on the processor" });
}

function cannotLoad(/** @type {import("./manifest.js").GraphEntry} */ entry, /** @type {string} */ device, /** @type {unknown} */ error) {
  const { message } = Object(error);
  const said = `onnxruntime-web cannot load it for ${device}: ${message}`;
  if (/memory|allocat/i.test(message)) {
    const remedy = "close other pages, use a smaller precision such as Q4_K_M, or another device";
    return new DeviceError(said, { at: entry.file, remedy, cause: error });
  }
  return new PackageError(said, { at: entry.file, remedy: "choose another device, or build the package again", cause: error });
}
