/** Figures in words. */

const UNITS = ["bytes", "kB", "MB", "GB"];

/** Bytes in the unit that suits them. */
export function bytes(/** @type {number} */ count) {
  const power = Math.min(Math.floor(Math.log10(Math.max(count, 1)) / 3), UNITS.length - 1);
  return `${(count / 1000 ** power).toFixed(power ? 1 : 0)} ${UNITS[power]}`;
}

/** How far loading came. */
export function progress(/** @type {import("./engine/files.js").Progress} */ { stage, loaded, total, cached, what }) {
  if (stage === "open") return `Preparing the ${what} ...`;
  const kept = cached ? `, ${bytes(cached)} of it kept from an earlier visit` : "";
  return `${bytes(loaded)} of ${bytes(total)}${kept}`;
}

/** How fast an answer came. */
export function speed(/** @type {import("./engine/generation.js").Generation} */ { ids, promptIds, reused, tokensPerSecond, prefillSeconds }) {
  const fed = promptIds.length - reused;
  return `${tokensPerSecond.toFixed(1)} tokens a second; ${ids.length} tokens, the first after ${prefillSeconds.toFixed(2)} s ` +
    `(${fed} of ${promptIds.length} prompt tokens were new)`;
}

/** What the drafter did. */
export function drafted(/** @type {import("./engine/generation.js").Generation} */ { rounds, proposed, accepted }) {
  if (!rounds) return "off";
  return `${accepted} of ${proposed} proposed tokens accepted, in ${rounds} rounds`;
}

/**
 * What is known of memory. `taken` is what the browser counts for the page and its worker: bytes, null where it does
 * not say, undefined as long as it measures.
 */
export function memory(/** @type {{device: string, weights: number, caches: number}} */ { device, weights, caches }, /** @type {number | null | undefined} */ taken = undefined) {
  const where = device === "webgpu" ? "on the GPU" : "in WebAssembly";
  const held = `weights ${bytes(weights)} and caches ${bytes(caches)} ${where} (counted)`;
  if (taken === undefined) return `${held}; the browser measures what scripts take ...`;
  return taken === null ? `${held}; this browser does not say what scripts take` : `${held}; scripts ${bytes(taken)} (measured by the browser)`;
}

/** Why an answer ended, where that is worth saying. */
export function ending(/** @type {string} */ stopped) {
  return { length: "Cut at the most tokens.", closed: "Stopped." }[stopped] ?? "";
}

/** A device and how much of it is used. */
export function device(/** @type {{device: string, deviceName: string, threads: number}} */ { device, deviceName, threads }) {
  if (device === "webgpu") return `WebGPU on ${deviceName}`;
  const alone = self.crossOriginIsolated ? "" : "; more need the headers that `cabochon web` sends";
  return `processor (WebAssembly), ${threads} ${threads === 1 ? "thread" : "threads"}${alone}`;
}
