/**
 * The libraries of the page's import map. A worker sees no import map, so it is told what the map says; and what
 * the map states as `integrity` holds for it as well.
 *
 * @typedef {{imports: Record<string, string>, integrity: Record<string, string>}} Libraries  URLs by name, hashes by URL
 */
import { DeviceError } from "./errors.js";

export const TOKENIZERS = "@huggingface/tokenizers";
export const JINJA = "@huggingface/jinja";

/**
 * The builds of onnxruntime-web. Those with WebGPU lack kernels of the processor, GatherBlockQuantized among them. Of
 * these two the one that suspends (JSPI) reads weights from the files as it needs them, the other holds all of them in
 * memory first.
 */
const WASM = { name: "onnxruntime-web/wasm", wasm: "ort-wasm-simd-threaded.wasm" };
const JSPI = { name: "onnxruntime-web/jspi", wasm: "ort-wasm-simd-threaded.jspi.wasm" };
const ASYNCIFY = { name: "onnxruntime-web/webgpu", wasm: "ort-wasm-simd-threaded.asyncify.wasm" };

/** @returns {Libraries} what the import map of this document says, with absolute URLs */
export function declared() {
  const map = JSON.parse(document.querySelector('script[type="importmap"]')?.textContent || "{}");
  const absolute = (/** @type {string} */ url) => new URL(url, document.baseURI).href;
  const { imports = {}, integrity = {} } = map;
  return {
    imports: Object.fromEntries(Object.entries(imports).map(([name, url]) => [name, absolute(url)])),
    integrity: Object.fromEntries(Object.entries(integrity).map(([url, hash]) => [absolute(url), hash])),
  };
}

/** A library as a module, by its name in the import map. */
export async function library(/** @type {Libraries} */ libraries, /** @type {string} */ name) {
  const response = await fetched(libraries, address(libraries, name), name);
  const url = URL.createObjectURL(new Blob([await response.text()], { type: "text/javascript" }));
  return import(url); // the URL stays: threads of the library are started from it
}

/**
 * onnxruntime-web with its WebAssembly.
 *
 * @param {Libraries} libraries
 * @param {"webgpu" | "wasm"} device
 * @param {number | undefined} threads  undefined: one per core; 1 where the page is not isolated
 */
export async function onnxruntime(libraries, device, threads) {
  const withGpu = "Suspending" in WebAssembly ? JSPI : ASYNCIFY;
  const build = device === "webgpu" ? withGpu : WASM;
  const ort = await library(libraries, build.name);
  const wasm = new URL(build.wasm, address(libraries, build.name)).href;
  ort.env.wasm.wasmBinary = await (await fetched(libraries, wasm, build.wasm)).arrayBuffer();
  ort.env.wasm.numThreads = self.crossOriginIsolated ? (threads ?? navigator.hardwareConcurrency ?? 1) : 1;
  ort.env.logLevel = "error";
  return ort;
}

function address(/** @type {Libraries} */ { imports }, /** @type {string} */ name) {
  if (name in imports) return imports[name];
  throw new DeviceError("the page's import map does not name it", { at: name, remedy: "make the page with `cabochon web`" });
}

async function fetched(/** @type {Libraries} */ { integrity }, /** @type {string} */ url, /** @type {string} */ name) {
  const expected = integrity[url];
  const failed = { at: name, remedy: `see that ${url} can be reached, or serve the libraries with --libraries` };
  try {
    const response = await fetch(url, expected ? { integrity: expected } : {});
    if (response.ok) return response;
    throw new Error(`the server answers ${response.status}`);
  } catch (error) {
    throw new DeviceError(`the library does not load: ${Object(error).message}`, { ...failed, cause: error });
  }
}
