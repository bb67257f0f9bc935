/** The engine behind a worker: `load` and the model it gives are those of `model.js`, as far as a page needs them. */
import { DeviceError, unpacked } from "./errors.js";
import { declared } from "./libraries.js";

/** Messages to a worker, and the answers to them. */
class Calls {
  constructor(/** @type {Worker} */ worker) {
    this.worker = worker;
    this.last = 0;
    /** @type {Error | null} */
    this.failed = null;
    /** @type {Map<number, {resolve: Function, reject: Function, hear: Record<string, Function>}>} */
    this.open = new Map();
    worker.onmessage = ({ data }) => this.#hear(data);
    worker.onerror = (event) => this.fail(new DeviceError(event.message || "the worker does not start", { at: "worker", remedy: "reload the page" }));
  }

  /**
   * @param {string} method
   * @param {unknown[]} given
   * @param {{hear?: Record<string, Function>, signal?: AbortSignal}} [how]  `hear`: what to do with reports on the way
   */
  call(method, given, { hear = {}, signal } = {}) {
    if (this.failed) return Promise.reject(this.failed);
    const id = ++this.last;
    const abort = () => this.worker.postMessage({ id, method: "abort" });
    const made = new Promise((resolve, reject) => this.open.set(id, { resolve, reject, hear }));
    this.worker.postMessage({ id, method, given });
    if (signal?.aborted) abort();
    signal?.addEventListener("abort", abort);
    return made.finally(() => signal?.removeEventListener("abort", abort));
  }

  /** Nothing will come any more. */
  fail(/** @type {Error} */ error) {
    this.failed = error;
    for (const { reject } of this.open.values()) reject(error);
    this.open.clear();
  }

  #hear(/** @type {{id: number, event: string, value: any}} */ { id, event, value }) {
    const call = this.open.get(id);
    if (!call) return;
    if (event !== "result" && event !== "error") {
      call.hear[event]?.(value);
      return;
    }
    this.open.delete(id);
    if (event === "result") call.resolve(value);
    else call.reject(unpacked(value));
  }
}

/**
 * `load` of model.js in a worker of its own.
 *
 * @param {string} manifestUrl
 * @param {NonNullable<Parameters<typeof import("./model.js").load>[1]>} [how]
 */
export async function load(manifestUrl, { onProgress = () => {}, signal, libraries = declared(), ...how } = {}) {
  const calls = new Calls(new Worker(new URL("./worker.js", import.meta.url), { type: "module" }));
  const url = new URL(manifestUrl, document.baseURI).href;
  try {
    const facts = await calls.call("load", [url, { ...how, libraries }], { hear: { progress: onProgress }, signal });
    return new RemoteModel(calls, facts);
  } catch (error) {
    calls.worker.terminate();
    throw error;
  }
}

/** A model in a worker. `speculates` says whether it has a drafter, `chats` whether it has a chat template. */
export class RemoteModel {
  constructor(/** @type {Calls} */ calls, /** @type {any} */ { device, deviceName, threads, remarks, manifest, speculates, chats }) {
    this.calls = calls;
    this.device = device;
    this.deviceName = deviceName;
    this.threads = threads;
    /** @type {string[]} */
    this.remarks = remarks;
    /** @type {import("./manifest.js").Manifest} */
    this.manifest = manifest;
    this.speculates = speculates;
    this.chats = chats;
  }

  /**
   * @param {import("./prompts.js").Prompt} prompt
   * @param {import("./model.js").Options} [options]
   * @returns {Promise<import("./generation.js").Generation>}
   */
  generate(prompt, { onToken = () => {}, signal, ...options } = {}) {
    const token = (/** @type {[string, number]} */ made) => onToken(...made);
    return this.calls.call("generate", [prompt, options], { hear: { token }, signal });
  }

  /** @returns {Promise<number[]>} */
  promptIds(/** @type {import("./prompts.js").Prompt} */ prompt, options = {}) {
    return this.calls.call("promptIds", [prompt, options]);
  }

  forget() {
    return this.calls.call("forget", []);
  }

  /** As `Model.memory`. */
  memory() {
    return this.calls.call("memory", []);
  }

  /** End the worker and free what it holds. */
  close() {
    this.calls.worker.terminate();
    this.calls.fail(new DeviceError("the model was closed", { at: "worker", remedy: "load it again" }));
  }
}

/** Bytes that the browser counts for this page and its workers; null where it does not say. Takes up to a minute. */
export async function heap() {
  const measured = /** @type {any} */ (performance).measureUserAgentSpecificMemory;
  if (!self.crossOriginIsolated || !measured) return null;
  try {
    return (await measured.call(performance)).bytes;
  } catch {
    return null;
  }
}
