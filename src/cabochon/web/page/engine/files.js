/** The files of a package: downloaded once, kept in the browser's cache, and checked against their SHA-256. */
import { PackageError } from "./errors.js";

/**
 * @typedef {import("./manifest.js").FileEntry} FileEntry
 * @typedef {{stage: "download" | "open", loaded: number, total: number, cached: number, what?: string}} Progress
 *   bytes of all files; `cached` of them were there already
 */

const CACHE = "cabochon";
const REMEDY = "reload the page; where it happens again, check the package with `sha256sum -c SHA256SUMS`";

/** Downloads what it is asked for; two names of the same bytes are one file. */
export class Files {
  /**
   * @param {string} base  the URL that names are relative to
   * @param {{onProgress?: (made: Progress) => void, signal?: AbortSignal}} [how]
   */
  constructor(base, { onProgress = () => {}, signal } = {}) {
    this.base = base;
    this.signal = signal;
    /** What a user should know of the download. @type {string[]} */
    this.remarks = [];
    this.loaded = this.total = this.cached = 0;
    this.onProgress = onProgress;
    /** @type {Map<string, Promise<Blob>>} */
    this.blobs = new Map();
    /** One digest at a time: each holds its file in memory. @type {Promise<unknown>} */
    this.checked = Promise.resolve();
  }

  /** Announce the files to come, for `total`. */
  expect(/** @type {FileEntry[]} */ entries) {
    const distinct = new Map(entries.map((entry) => [keyOf(entry), entry.bytes]));
    this.total = [...distinct.values()].reduce((sum, bytes) => sum + bytes, 0);
  }

  /** @returns {Promise<Blob>} the file's bytes, on the disk where the browser keeps them there */
  blob(/** @type {FileEntry} */ entry) {
    const key = keyOf(entry);
    const started = this.blobs.get(key) ?? this.#open(entry, key);
    this.blobs.set(key, started);
    return started;
  }

  /** @returns {Promise<Uint8Array<ArrayBuffer>>} */
  async bytes(/** @type {FileEntry} */ entry) {
    return new Uint8Array(await (await this.blob(entry)).arrayBuffer());
  }

  /** The text of a small file; null where there is none. */
  async text(/** @type {string | null | undefined} */ name) {
    if (!name) return null;
    const response = await this.#fetch(name);
    return response.text();
  }

  async #open(/** @type {FileEntry} */ entry, /** @type {string} */ key) {
    const cache = await store();
    const kept = entry.sha256 ? await cache?.match(key) : undefined;
    if (kept) {
      this.cached += entry.bytes;
      this.#count(entry.bytes);
      return kept.blob();
    }
    try {
      const blob = await this.#download(entry, key, cache);
      await this.#check(entry, blob);
      return blob;
    } catch (error) {
      await cache?.delete(key);
      throw error;
    }
  }

  /** Into the cache where there is one, and room in it. */
  async #download(/** @type {FileEntry} */ entry, /** @type {string} */ key, /** @type {Cache | null} */ cache) {
    const before = this.loaded;
    if (cache && entry.sha256) {
      try {
        await this.#counted(entry, (response) => cache.put(key, response));
        const kept = await cache.match(key);
        if (kept) return await kept.blob();
      } catch (error) {
        if (Object(error).name !== "QuotaExceededError") throw error;
        this.remarks.push("the browser grants too little storage to keep the package: the next visit downloads it again");
      }
      this.loaded = before;
    }
    return this.#counted(entry, (response) => response.blob());
  }

  /**
   * A file whose bytes are counted as they come, and are as many as the manifest says.
   *
   * @template T
   * @param {FileEntry} entry
   * @param {(response: Response) => Promise<T>} take
   */
  async #counted(entry, take) {
    const { body } = await this.#fetch(entry.file);
    let came = 0;
    const counting = new TransformStream({
      transform: (/** @type {Uint8Array} */ chunk, controller) => {
        came += chunk.byteLength;
        this.#count(chunk.byteLength);
        controller.enqueue(chunk);
      },
    });
    try {
      const taken = await take(new Response(body?.pipeThrough(counting)));
      if (came === entry.bytes) return taken;
    } catch (error) {
      if (this.signal?.aborted || Object(error).name === "QuotaExceededError" || came >= entry.bytes) throw error;
    }
    throw wrong(entry, `${came} bytes came; expected ${entry.bytes}`);
  }

  async #fetch(/** @type {string} */ name) {
    const url = new URL(name, this.base).href;
    try {
      const response = await fetch(url, { signal: this.signal });
      if (response.ok) return response;
      throw new Error(`the server answers ${response.status}`);
    } catch (error) {
      if (this.signal?.aborted) throw error;
      const said = { at: url, remedy: "see that the server still runs and has all files", cause: error };
      throw new PackageError(`cannot be fetched: ${Object(error).message}`, said);
    }
  }

  async #check(/** @type {FileEntry} */ entry, /** @type {Blob} */ blob) {
    if (!entry.sha256 || !globalThis.crypto?.subtle) return;
    this.checked = this.checked.catch(() => {}).then(() => digest(blob));
    const found = await this.checked;
    if (found === entry.sha256) return;
    throw wrong(entry, `SHA-256 ${found}; expected ${entry.sha256}`);
  }

  #count(/** @type {number} */ bytes) {
    this.loaded += bytes;
    const { loaded, total, cached } = this;
    this.onProgress({ stage: "download", loaded, total, cached });
  }
}

function keyOf(/** @type {FileEntry} */ { sha256, file }) {
  return sha256 ? `https://sha256.cabochon.invalid/${sha256}` : file; // a cache asks for an address, not for a host
}

/** The browser's cache; null where it has none for this page. */
async function store() {
  try {
    return await globalThis.caches.open(CACHE);
  } catch {
    return null;
  }
}

async function digest(/** @type {Blob} */ blob) {
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", await blob.arrayBuffer()));
  return [...hash].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function wrong(/** @type {FileEntry} */ { file }, /** @type {string} */ found) {
  return new PackageError(found, { at: file, remedy: REMEDY });
}
