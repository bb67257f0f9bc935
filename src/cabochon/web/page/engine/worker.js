/** The engine in a worker, so that the page stays responsive; `client.js` is the other end. */
import { packed } from "./errors.js";
import { load } from "./model.js";

/** @type {import("./model.js").Model | null} */
let model = null;
/** @type {Map<number, AbortController>} */
const running = new Map();

const METHODS = {
  async load([manifestUrl, how], { signal, report }) {
    model = await load(manifestUrl, { ...how, signal, onProgress: (made) => report("progress", made) });
    const { device, deviceName, threads, remarks, manifest, proposer, prompts } = model;
    const can = { speculates: proposer !== null, chats: prompts.chat !== null };
    return { device, deviceName, threads, remarks, manifest, ...can };
  },
  generate: ([prompt, options], { signal, report }) =>
    model?.generate(prompt, { ...options, signal, onToken: (text, token) => report("token", [text, token]) }),
  promptIds: ([prompt, options]) => model?.promptIds(prompt, options),
  forget: () => model?.forget(),
  memory: () => model?.memory(),
};

self.onmessage = async ({ data: { id, method, given } }) => {
  if (method === "abort") {
    running.get(id)?.abort();
    return;
  }
  const controller = new AbortController();
  running.set(id, controller);
  const report = (/** @type {string} */ event, /** @type {unknown} */ value) => self.postMessage({ id, event, value });
  try {
    report("result", await METHODS[method](given, { signal: controller.signal, report }));
  } catch (error) {
    report("error", packed(error));
  } finally {
    running.delete(id);
  }
};
