/** Text to token ids and back. Control tokens come from templates and callers, never from text a user typed. */
import { PackageError, RequestError } from "./errors.js";

const BYTE = /^<0x[0-9A-F]{2}>$/;

/** The tokenizer of a package. `controls` maps the text of each control token to its id. */
export class Tokens {
  /**
   * @param {{Tokenizer: any}} library  @huggingface/tokenizers
   * @param {any} json  tokenizer.json
   * @param {Record<string, any>} config  tokenizer_config.json
   * @param {{bos?: number | null, placeholders?: number[]}} [said]
   *   `bos` counts where the config names none; `placeholders` are control tokens whatever the files say
   */
  constructor({ Tokenizer }, json, config, { bos = null, placeholders = [] } = {}) {
    /** @type {{id: number, content: string, special: boolean}[]} */
    const added = json.added_tokens ?? [];
    // a tokenizer that does not know of special tokens takes what looks like one for letters
    const letters = { ...json, added_tokens: added.filter((token) => !token.special) };
    try {
      this.tokenizer = new Tokenizer(letters, { ...config, additional_special_tokens: [] });
    } catch (error) {
      const said = { at: "tokenizer.json", remedy: "build the package again", cause: error };
      throw new PackageError(`not a tokenizer: ${Object(error).message}`, said);
    }
    wholeRuns(this.tokenizer.decoder);
    this.contents = new Map(added.map((token) => [token.id, token.content]));
    this.ids = new Map(added.map((token) => [token.content, token.id]));
    /** @type {Record<string, string>} */
    this.named = Object.fromEntries(specialNames(config));
    this.skipped = new Set(added.filter((token) => token.special).map((token) => token.id));
    const names = new Set(Object.values(this.named));
    /** @type {Map<string, number>} */
    this.controls = new Map(added.filter((t) => t.special || names.has(t.content)).map((t) => [t.content, t.id]));
    for (const id of placeholders) if (this.contentOf(id)) this.controls.set(this.contentOf(id) ?? "", id);
    this.bos = this.idOf(this.named.bos_token) ?? bos;
    this.unknown = this.idOf(json.model?.unk_token);
    const longestFirst = [...this.controls.keys()].sort((a, b) => b.length - a.length);
    this.control = new RegExp(longestFirst.map(escaped).join("|") || "(?!)", "gu");
    const starts = new Set([...this.controls.keys()].map((content) => escaped([...content][0])));
    this.starts = new RegExp([...starts].join("|") || "(?!)", "gu");
  }

  /** The id of a token by its text. @returns {number | null} */
  idOf(/** @type {string | undefined} */ content) {
    return content === undefined ? null : (this.ids.get(content) ?? this.tokenizer.token_to_id(content) ?? null);
  }

  /** The text of a token as the vocabulary has it. @returns {string | undefined} */
  contentOf(/** @type {number} */ id) {
    return this.contents.get(id) ?? this.tokenizer.id_to_token(id);
  }

  /**
   * Encode text a user typed: what looks like a control token is letters.
   *
   * Raises RequestError for text that is not Unicode or that cannot be told from a control token.
   *
   * @returns {number[]}
   */
  text(/** @type {string} */ text) {
    if (!text.isWellFormed()) {
      throw new RequestError("half a character; expected Unicode text", { at: "prompt", remedy: "write it again" });
    }
    /** @type {number[]} */
    const ids = text ? this.tokenizer.encode(text, { add_special_tokens: false }).ids : [];
    const controls = new Set(this.controls.values());
    const found = new Set(ids.filter((id) => controls.has(id)));
    if (!found.size) return ids;
    const pieces = this.#brokenUp(text);
    if (pieces.length > 1) return pieces.flatMap((piece) => this.text(piece));
    if (found.size === 1 && found.has(this.unknown ?? -1)) return ids; // letters the tokenizer has no token for
    throw new RequestError(`${JSON.stringify(text)} becomes the control token ${this.contentOf(Math.min(...found))}; expected letters`, {
      at: "prompt",
      remedy: "leave it out of the text",
    });
  }

  /** Cut each control token that the tokenizer would still find behind its first character. */
  #brokenUp(/** @type {string} */ text) {
    const cuts = [...text.matchAll(this.control)].map((match) => match.index + [...match[0]][0].length);
    const ends = [...cuts, text.length];
    return [0, ...cuts].map((start, n) => text.slice(start, ends[n])).filter(Boolean);
  }

  /** Encode a template's output: control tokens are meant, except where `guard` (see `guarded`) breaks them. */
  markedUp(/** @type {string} */ text, guard = "") {
    const plain = (/** @type {string} */ piece) => this.text(guard ? piece.replaceAll(guard, "") : piece);
    /** @type {number[]} */
    const ids = [];
    let end = 0;
    for (const found of text.matchAll(this.control)) {
      ids.push(...plain(text.slice(end, found.index)), /** @type {number} */ (this.controls.get(found[0])));
      end = found.index + found[0].length;
    }
    return [...ids, ...plain(text.slice(end))];
  }

  /** The value with `guard` behind each character that may begin a control token, in every string within it. */
  guarded(/** @type {any} */ value, /** @type {string} */ guard) {
    if (typeof value === "string") return value.replaceAll(this.starts, (found) => found + guard);
    if (Array.isArray(value)) return value.map((item) => this.guarded(item, guard));
    if (!value || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [this.guarded(key, guard), this.guarded(item, guard)]));
  }

  /** The ids behind exactly one beginning-of-sequence token, where the tokenizer has one. */
  withOneBos(/** @type {number[]} */ ids) {
    if (this.bos === null) return ids;
    const first = ids.findIndex((id) => id !== this.bos);
    return [this.bos, ...ids.slice(first < 0 ? ids.length : first)];
  }

  /** The text of the ids, without control tokens; bytes that are no UTF-8 become U+FFFD. @returns {string} */
  decode(/** @type {number[]} */ ids) {
    const shown = ids.filter((id) => !this.skipped.has(id));
    return shown.length ? this.tokenizer.decode(shown, { clean_up_tokenization_spaces: false }) : "";
  }

  /** True for a token that is one byte of a character. */
  isByte(/** @type {number} */ id) {
    return BYTE.test(this.contentOf(id) ?? "");
  }
}

/** A private-use character that occurs nowhere in the value. */
export function unusedCharacter(/** @type {unknown} */ value) {
  const text = JSON.stringify(value);
  for (let code = 0xf0000; ; code++) {
    const character = String.fromCodePoint(code);
    if (!text.includes(character)) return character;
  }
}

/** [key, text] of each `*_token` of tokenizer_config.json; a token is a string or an object with `content`. */
function* specialNames(/** @type {Record<string, any>} */ config) {
  for (const [key, value] of Object.entries({ ...config, ...(config.model_specific_special_tokens ?? {}) })) {
    const content = typeof value === "string" ? value : value?.content;
    if (key.endsWith("_token") && typeof content === "string") yield [key, content];
  }
}

/** Judge a run of byte tokens as a whole, as the tokenizers library does: a run that is no UTF-8 is U+FFFD for each. */
function wholeRuns(/** @type {any} */ decoder) {
  for (const part of decoder?.decoders ?? (decoder ? [decoder] : [])) {
    if (part.config?.type !== "ByteFallback") continue;
    const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
    part.text_decoder = {
      decode(/** @type {Uint8Array} */ bytes) {
        try {
          return strict.decode(bytes);
        } catch {
          return "\ufffd".repeat(bytes.length);
        }
      },
    };
  }
}

function escaped(/** @type {string} */ text) {
  return text.replace(/[\\^$.*+?()[\]{}|/]/gu, "\\$&");
}
