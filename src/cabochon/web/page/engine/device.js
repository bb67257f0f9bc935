/** Which device runs a package: the GPU through WebGPU, or the processor through WebAssembly. */
import { DeviceError } from "./errors.js";

/** @typedef {{device: "webgpu" | "wasm", name: string, remarks: string[]}} Chosen */

const INSTEAD = "it runs on the processor instead (WebAssembly), which is right but slower";

/**
 * `wanted` "auto" takes WebGPU where it can run the package, else falls back to wasm and says why.
 * Raises DeviceError where "webgpu" itself is asked for and cannot run it.
 *
 * @param {"auto" | "webgpu" | "wasm"} wanted
 * @param {import("./manifest.js").Manifest} manifest
 * @returns {Promise<Chosen>}
 */
export async function choose(wanted, manifest) {
  const wasm = { device: /** @type {const} */ ("wasm"), name: "processor" };
  if (wanted === "wasm") return { ...wasm, remarks: [] };
  const found = await adapter();
  const reason = refusal(found, manifest);
  if (!reason && found) return { device: "webgpu", name: nameOf(found), remarks: [] };
  if (wanted === "auto") return { ...wasm, remarks: [`${reason}: ${INSTEAD}`] };
  throw new DeviceError(reason, { at: "device", remedy: 'choose "auto", or "wasm" for the processor' });
}

/** Why WebGPU cannot run the package; "" where it can. */
function refusal(/** @type {GPUAdapter | null} */ found, /** @type {import("./manifest.js").Manifest} */ manifest) {
  if (manifest.target !== "webgpu") {
    return `this package was built with --target ${manifest.target}, whose operators WebGPU lacks or computes otherwise; ` +
      "one of --target webgpu would run on the GPU";
  }
  if (!("gpu" in navigator)) {
    return self.isSecureContext
      ? "this browser has no WebGPU"
      : "browsers give WebGPU to secure pages only (https, or localhost)";
  }
  if (!found) return "this browser has WebGPU, but offers no graphics adapter for it";
  if (manifest.needs_f16 && !found.features.has("shader-f16")) {
    return `the graphics adapter (${nameOf(found)}) lacks the feature shader-f16, which this float16 package needs`;
  }
  return "";
}

/** @returns {Promise<GPUAdapter | null>} */
async function adapter() {
  try {
    return (await navigator.gpu?.requestAdapter({ powerPreference: "high-performance" })) ?? null;
  } catch {
    return null;
  }
}

function nameOf(/** @type {GPUAdapter} */ { info }) {
  return [info?.vendor, info?.architecture, info?.description].filter(Boolean).join(" ") || "unnamed GPU";
}
