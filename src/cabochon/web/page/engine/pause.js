/** A moment for the events of a worker or a page: WebAssembly runs a whole answer without one. */

const channel = new MessageChannel();
/** @type {Function[]} */
const waiting = [];
channel.port1.onmessage = () => waiting.shift()?.();

/** Resolves once events that waited were heard. @returns {Promise<void>} */
export function pause() {
  return new Promise((resolve) => {
    waiting.push(resolve);
    channel.port2.postMessage(null); // a timer would take 4 ms
  });
}
