/**
 * web.json: what the page must know of a package. `cabochon web` writes it; see docs/web.md for its entries.
 *
 * @typedef {{file: string, bytes: number, sha256?: string}} FileEntry
 * @typedef {{type: string, shape: (string | number | null)[]}} Port
 * @typedef {FileEntry & {data: (FileEntry & {path: string})[], inputs: Record<string, Port>, outputs: Record<string, Port>}} GraphEntry
 * @typedef {{past: string, present: string, heads: number, size: number, sliding: boolean}} Cache
 * @typedef {object} Manifest
 * @property {number} format
 * @property {string} name
 * @property {"text" | "full" | "pair"} kind
 * @property {string} target
 * @property {string} precision
 * @property {"f32" | "f16"} activations
 * @property {boolean} needs_f16
 * @property {Record<string, GraphEntry>} graphs
 * @property {{mask: string, window: number | null, max_positions: number, vocabulary: number, keeps: boolean,
 *   last_only?: boolean, takes?: string[], hidden: string | null, caches: Cache[]}} decoder
 * @property {{pad: number, placeholders: Record<string, number>} | null} [embedding]
 * @property {{window: number | null, num_assistant_tokens: number, shared: Record<string, Record<string, string>>} | null} drafter
 * @property {(FileEntry & {config: string | null}) | null} tokenizer
 * @property {string | null} chat_template
 * @property {Record<string, any>} generation
 * @property {string[]} [remarks]
 */
import { DeviceError, PackageError } from "./errors.js";

const FORMAT = 1;
export const MOST_BYTES = 0x7fe00000; // of a file: Chromium's largest ArrayBuffer, 2 MiB below 2 GiB
const MOST_WASM = 2 ** 32 - 2 ** 28; // WebAssembly addresses 4 GiB, of which activations and caches need some

/** @returns {Promise<{manifest: Manifest, base: string}>} the manifest, and the URL its files are relative to */
export async function openManifest(/** @type {string} */ url) {
  const remedy = "serve the package with `cabochon web PACKAGE`";
  let manifest;
  try {
    const response = await fetch(url, { cache: "no-cache" });
    if (!response.ok) throw new Error(`the server answers ${response.status}`);
    manifest = await response.json();
  } catch (error) {
    throw new PackageError(`cannot be read: ${Object(error).message}`, { at: url, remedy, cause: error });
  }
  if (manifest?.format !== FORMAT) {
    throw new PackageError(`format ${JSON.stringify(manifest?.format)}; this page reads ${FORMAT}`, { at: url, remedy });
  }
  for (const file of allFiles(manifest)) checkSize(file);
  return { manifest, base: new URL(".", url).href };
}

/** Every file of the graphs. */
export function allFiles(/** @type {Manifest} */ manifest) {
  return Object.values(manifest.graphs).flatMap((graph) => [graph, ...graph.data]);
}

/** Raise DeviceError where the weights do not fit what WebAssembly addresses. */
export function checkFitsWasm(/** @type {Manifest} */ manifest) {
  const bytes = allFiles(manifest).reduce((sum, file) => sum + file.bytes, 0);
  if (bytes <= MOST_WASM) return;
  throw new DeviceError(`${bytes.toLocaleString("en")} bytes of weights; WebAssembly, where the processor runs them, holds 4 GiB`, {
    at: manifest.name,
    remedy: "use a browser with WebGPU, or build the package with --precision Q4_K_M",
  });
}

function checkSize(/** @type {FileEntry} */ { file, bytes }) {
  if (bytes <= MOST_BYTES) return;
  throw new PackageError(`${bytes.toLocaleString("en")} bytes in one file; a browser loads files below 2 GiB`, {
    at: file,
    remedy: "build the package with --target webgpu, whose data files are all smaller",
  });
}
